"""What a disk can hold after a crash, derived from a trace by the rules of a model.

Start with `states.distinct_states`, which yields the disks to check, and `home.Home`, which builds them.
"""
