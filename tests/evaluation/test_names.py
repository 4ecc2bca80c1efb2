"""`shortlist.evaluation` is a function to users and a package to imports, whichever comes first."""

import subprocess
import sys

import pytest

TRUTH = "from shortlist import Interactions; truth = Interactions.from_tuples([('u', 'a')])"
CALL = "import shortlist as sl; assert sl.evaluate({'u': ['a']}, truth).f1 == 1"


@pytest.mark.parametrize(
    "code",
    [
        f"{CALL}; from shortlist.evaluation import holm; from shortlist import evaluate; evaluate({{}}, truth)",
        f"import shortlist.evaluation.report; from shortlist.evaluation import compare; {CALL}",
    ],
)
def test_both_at_once(code):
    subprocess.run([sys.executable, "-c", f"{TRUTH}; {code}"], check=True, capture_output=True, timeout=120)
