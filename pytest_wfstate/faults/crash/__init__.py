"""Crash a workload: at every operation, by failing operations, and by killing a real process.

Start with `explorer.Explorer`, `io_errors.ErrorRun` and `kill.kill`: one for each of the three.
"""
