"""What a person or a machine is told about a run."""
