"""Run clients against each other: in every schedule within a bound, or all at once.

Start with `explorer.RaceExplorer`. Clients are `processes`, `threads` or `tasks`; `search` picks schedules,
`conflicts` prunes them. What a process does to files goes through `file_stand_ins` to `file_steps`, its waits through
`waits`. `storm.Storm` runs real processes side by side.
"""
