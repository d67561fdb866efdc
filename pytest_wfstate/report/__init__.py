"""What a person or a machine reads about a run: on the terminal, and in files."""
