"""The command line: one thin file per verb."""

from shortlist.cli.app import main

__all__ = ["main"]
