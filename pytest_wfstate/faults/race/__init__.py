"""Run clients against each other: in every schedule within a bound, or all at once."""
