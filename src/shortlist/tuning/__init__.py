"""Hyper-parameter search on validation data."""

from shortlist.tuning.tune import Tuned, read_tuned, tune

__all__ = ["Tuned", "read_tuned", "tune"]
