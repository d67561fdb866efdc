"""What a run did: file operations and markers in order, and how to describe them."""
