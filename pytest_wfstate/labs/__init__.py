"""What the fixtures hand out: the crash lab and the race lab."""
