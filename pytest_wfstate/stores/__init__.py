"""How a contract is kept: one folder a backend, one file a contract in each."""
