"""The command `wfstate`."""
