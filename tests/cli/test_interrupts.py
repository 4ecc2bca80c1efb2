"""Ctrl-C while modules load: one sentence and the usual exit code, never a traceback."""

import subprocess
import sys

import pytest

LOADING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from shortlist.cli import main
sys.exit(main({tokens!r}))
"""


@pytest.mark.parametrize(
    ("module", "tokens"),
    [
        ("cyclopts", ["fit", "--help"]),
        ("shortlist.cli.app", ["fit", "--help"]),
        ("shortlist.cli.fit", ["fit", "--help"]),
        ("numpy", ["fit", "sample"]),
        ("polars", ["recommend", "shop.shortlist"]),
        ("numba", ["fit", "sample"]),
        ("rich.console", ["--help"]),
        ("shortlist.serve.run", ["serve", "shop.shortlist"]),
    ],
)
def test_ctrl_c_while_modules_load(module, tokens, tmp_path):
    code = LOADING.format(module=module, tokens=tokens)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == "shortlist: interrupted by Ctrl-C.\n"
    assert done.returncode == 130
