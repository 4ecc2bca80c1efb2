"""The first fit of a few rows compiles little, with an empty cache in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "compile.py"


def test_a_first_fit_of_a_few_rows_compiles_little(tmp_path):
    """Functions of Numba count, too: sorting, indexing and the texts of errors."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--measure", "rows"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    n_specializations = {row["function"]: row["specializations"] for row in found["table"]}
    assert 20 < found["specializations"] == sum(n_specializations.values()) <= 95
    assert not [
        name for name in n_specializations if name.startswith(("kernels.sgd.", "numba.cpython.unicode"))
    ]
    assert max(n for name, n in n_specializations.items() if name.startswith("kernels.")) <= 3
