"""Evaluation of lists against truth: over all users, over covered users, and against baselines."""

from shortlist.core.metrics import METRICS
from shortlist.evaluation.analysis import RiskCoverage, risk_coverage, slice_metrics
from shortlist.evaluation.baselines import best_fixed_n, fixed_n_curve, gap_recovered, match_baselines, oracle
from shortlist.evaluation.comparison import Comparison
from shortlist.evaluation.evaluate import compare, evaluate
from shortlist.evaluation.report import Report, TimedReport
from shortlist.evaluation.significance import PairedTest, holm, paired_test

__all__ = [
    "METRICS",
    "Comparison",
    "PairedTest",
    "Report",
    "RiskCoverage",
    "TimedReport",
    "best_fixed_n",
    "compare",
    "evaluate",
    "fixed_n_curve",
    "gap_recovered",
    "holm",
    "match_baselines",
    "oracle",
    "paired_test",
    "risk_coverage",
    "slice_metrics",
]
