"""What a disk can hold after a crash, derived from a trace by the rules of a model."""
