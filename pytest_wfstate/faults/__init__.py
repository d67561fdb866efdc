"""Every way to hurt a store. It knows files, processes and clocks, never a contract."""
