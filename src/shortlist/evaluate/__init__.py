"""Judging lists against truth: all users, covered users, and what could have been."""

from shortlist.evaluate.judge import evaluate
from shortlist.evaluate.prefixes import best_fixed_n, fixed_n_curve, gap_recovered, oracle
from shortlist.evaluate.report import METRICS, Report

__all__ = ["METRICS", "Report", "best_fixed_n", "evaluate", "fixed_n_curve", "gap_recovered", "oracle"]
