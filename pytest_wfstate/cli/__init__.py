"""The `wfstate` command."""
