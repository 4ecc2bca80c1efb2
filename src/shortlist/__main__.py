"""`python -m shortlist` is the command line."""

import sys

from shortlist.cli import main

if __name__ == "__main__":
    sys.exit(main())
