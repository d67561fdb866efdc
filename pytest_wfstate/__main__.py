"""`python -m pytest_wfstate` is the `wfstate` command."""

from __future__ import annotations

import sys

from pytest_wfstate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
