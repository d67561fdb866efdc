"""Record what a run does to files, through Python's own calls and through SQLite."""
