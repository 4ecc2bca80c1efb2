"""The command line: one file per verb, thin over the library."""

from shortlist.cli.app import main

__all__ = ["main"]
