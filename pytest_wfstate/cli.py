"""The `wfstate` command: for now, a demonstration of the store fixtures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run the demonstration in a pytest of its own, which no configuration around it can change."""
    demo = Path(__file__).with_name("demo.py")
    alone = [f"--rootdir={demo.parent}", f"--config-file={os.devnull}", "--noconftest", "-p", "no:cacheprovider"]
    return subprocess.call([sys.executable, "-m", "pytest", str(demo), "-v", *alone])
