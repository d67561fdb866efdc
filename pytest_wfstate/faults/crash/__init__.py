"""Crash a workload: at every operation, by failing operations, and by killing a real process."""
