"""What a run did: file operations and markers in order, and how to describe them.

Start with `ops`, the items of a trace. `log.Log` collects them, `describe.OpDescriber` puts them into words.
"""
