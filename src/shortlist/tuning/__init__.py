"""Validation of models and hyperparameter search."""

from shortlist.tuning.space import Range
from shortlist.tuning.tune import Tuned, read_tuned, tune

__all__ = ["Range", "Tuned", "read_tuned", "tune"]
