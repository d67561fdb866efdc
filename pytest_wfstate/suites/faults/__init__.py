"""The clauses that hurt a store: crashes, races, lost servers, corrupt records."""
