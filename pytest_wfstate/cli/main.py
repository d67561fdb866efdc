"""The `wfstate` command: checks stores, lists clauses, shows the zoo."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pytest_wfstate.cli import check, clauses, zoo
from pytest_wfstate.suites.registry import UnusableContract

_COMMANDS = {
    "check": (check, "check stores against their contracts, and print a scorecard"),
    "clauses": (clauses, "list the promises of the contracts"),
    "zoo": (zoo, "show known-bad stores and the clauses that catch them"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 if all is well, 1 if a store breaks a promise, 2 if the command makes no sense."""
    parser = argparse.ArgumentParser(
        prog="wfstate", description="Check that the stores of durable agents keep their promises."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (command, summary) in _COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=summary, description=summary.capitalize() + "."))
    asked = parser.parse_args(arguments)
    try:
        return int(_COMMANDS[asked.command][0].run(asked))
    except (check.Unusable, UnusableContract) as error:
        sys.stderr.write(f"wfstate {asked.command}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("wfstate: interrupted\n")
        return 130
