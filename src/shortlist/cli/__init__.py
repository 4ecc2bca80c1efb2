"""The command line: one thin file per command."""

from shortlist.cli.app import main

__all__ = ["main"]
