"""Judging lists against truth: all users, covered users, and what could have been.

The attribute `shortlist.evaluation` is the function; this package is for `from shortlist.evaluation import …`.
"""

from shortlist.evaluation.comparison import Comparison, compare
from shortlist.evaluation.coverage import RiskCoverage, risk_coverage
from shortlist.evaluation.evaluator import evaluate
from shortlist.evaluation.fixed_n import best_fixed_n, fixed_n_curve, gap_recovered, oracle
from shortlist.evaluation.matched import matched
from shortlist.evaluation.report import METRICS, Report
from shortlist.evaluation.significance import holm, paired_test
from shortlist.evaluation.slices import sliced

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
