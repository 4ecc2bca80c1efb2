"""The command line: one thin file per command."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; Ctrl-C while the parser loads ends as at any later time."""
    try:
        from shortlist.cli.app import INTERRUPTED, run_command
    except KeyboardInterrupt:
        sys.stderr.write("shortlist: interrupted by Ctrl-C.\n")
        return 130
    try:
        return run_command(argv)
    except KeyboardInterrupt:  # before the command or after it
        sys.stderr.write("shortlist: interrupted by Ctrl-C.\n")
        return INTERRUPTED
