"""scikit-learn: lists of classes that end by themselves, from the probabilities of a classifier."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import cross_val_predict

from shortlist.adapters import prepare_cutoff
from shortlist.cutoff import ExpectedF1, top_candidates
from shortlist.data.interactions import Interactions


class ListClassifier(ClassifierMixin, BaseEstimator):
    """Predict a list of classes for each row; `y` has one class per row or is a 0/1 matrix of classes."""

    def __init__(self, classifier: Any, cutoff: Any = None) -> None:
        self.classifier, self.cutoff = classifier, cutoff

    def fit(self, X: Any, y: Any) -> "ListClassifier":
        """Fit the classifier, and the cutoff on cross-validated probabilities."""
        scores = cross_val_predict(self.classifier, X, y, method="predict_proba")
        self.classifier_ = clone(self.classifier).fit(X, y)
        self.classes_ = self.classifier_.classes_
        truth = np.asarray(y) if np.ndim(y) == 2 else np.asarray(y)[:, None] == self.classes_
        cutoff = ExpectedF1(calibration="platt", floor=0.0) if self.cutoff is None else self.cutoff.clone()
        self.cutoff_ = cutoff.fit(top_candidates(scores), Interactions.from_csr(truth))
        return self

    def predict(self, X: Any) -> list[list[Any]]:
        """Return the classes to show for each row, best first."""
        show = prepare_cutoff(self.cutoff_)
        return [[self.classes_[k] for k in show(row)] for row in self.classifier_.predict_proba(X)]
