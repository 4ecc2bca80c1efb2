"""Choosing hyper-parameters, and the paper's experiments with a report on what holds."""

from shortlist.experiment.tune import Tuned, read_tuned, tune

__all__ = ["Tuned", "read_tuned", "tune"]
