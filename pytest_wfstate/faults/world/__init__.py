"""The outside world: objects that do not crash along with the workload.

Start with `world.Worlds`. `state` copies and restores them, `remote` reaches them from a killed child.
"""
