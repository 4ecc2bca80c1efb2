"""Judging lists against truth: all users, covered users, and what could have been.

The attribute `shortlist.evaluate` is the function; this package is for `from shortlist.evaluate import …`.
"""

from shortlist.evaluate.comparison import Comparison, compare
from shortlist.evaluate.coverage import RiskCoverage, risk_coverage
from shortlist.evaluate.judge import evaluate
from shortlist.evaluate.matched import matched
from shortlist.evaluate.prefixes import best_fixed_n, fixed_n_curve, gap_recovered, oracle
from shortlist.evaluate.report import METRICS, Report
from shortlist.evaluate.significance import holm, paired_test
from shortlist.evaluate.slices import sliced

__all__ = [
    "METRICS",
    "Comparison",
    "Report",
    "RiskCoverage",
    "best_fixed_n",
    "compare",
    "evaluate",
    "fixed_n_curve",
    "gap_recovered",
    "holm",
    "matched",
    "oracle",
    "paired_test",
    "risk_coverage",
    "sliced",
]
