"""Run clients against each other: in every schedule within a bound, or all at once.

Start with `explorer.RaceExplorer`. Clients are `processes`, `threads` or `tasks`; `search` picks schedules,
`conflicts` prunes them. `storm.Storm` runs real processes side by side.
"""
