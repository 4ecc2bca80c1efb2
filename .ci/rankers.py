"""Run the examples of docs/rankers.md whose packages are too large for the tests, each in its own process."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "rankers.md"
BLOCK = re.compile(r"^### ([^\n]+)\n(?:(?!^#).)*?^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIRST = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAX_LINES = 25
SECONDS = 600


def main() -> int:
    """Print one line per library; 1 if an example fails or is too long."""
    text = PAGE.read_text(encoding="utf-8")
    prelude = FIRST.search(text)[1].partition("result = ")[0]
    failed = 0
    for name, code in BLOCK.findall(text):
        lines = len(code.strip().splitlines())
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "example.py"
            file.write_text("import numpy as np\n" + prelude + code, encoding="utf-8")
            words = [sys.executable, file]
            done = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        passed = done.returncode == 0 and lines <= MAX_LINES
        failed += not passed
        sys.stdout.write(f"{'ok    ' if passed else 'FAILED'} {name} ({lines} lines)\n")
        if done.returncode:
            sys.stdout.write(done.stderr[-2000:])
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
