"""The outside world: objects that do not crash along with the workload."""
