"""EpochWatch: which trainings end early, and what `sl.fit` reports about them."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto import search as epoch_watch
from shortlist.auto.search import EpochWatch
from shortlist.errors import TrainingError
from shortlist.models.factorization import training
from shortlist.models.factorization.training import Progress
from tests.auto.test_fit import shoppers


def last_epoch(scores, leader):
    """The epoch after which training ends, or None."""
    watch = EpochWatch(leader)
    for epoch, score in enumerate(scores, 1):
        try:
            watch(Progress(epoch, 100, 1.0, score, 1.0, 0.1))
        except TrainingError:
            return epoch
    return None


FLAT = [0.1] * 40
RISING = list(np.linspace(0.0, 0.4, 40))


@pytest.mark.parametrize(
    ("scores", "leader", "expected"),
    [
        (FLAT, 0.12, 20),  # 0.1 < 0.85 * 0.12
        (FLAT, 0.117, None),  # 0.1 > 0.85 * 0.117
        (FLAT, 0.0, None),  # nothing is known of other models
        (RISING, 0.4, None),  # 0.195 after 20 epochs, 0.103 of it since epoch 10
        (RISING, 0.51, 20),  # 0.195 + 0.103 * log2(100 / 20) = 0.433 < 0.85 * 0.51
        (RISING, 0.5, None),
        (
            [0.01 * k for k in range(1, 23)] + FLAT,
            0.4,
            31,
        ),  # 0.22 + 0.07 (since epoch 15) * log2(100 / 31) < 0.34
        ([None] * 40, 1.0, None),  # no validation
    ],
)
def test_training_ends_where_the_f1_cannot_reach_the_goal(scores, leader, expected):
    assert last_epoch(scores, leader) == expected


def test_the_highest_f1_counts():
    """Epochs of lower F1 after the best one do not count as a loss."""
    assert last_epoch([0.12, *FLAT], 0.14) is None
    assert last_epoch([0.12, *FLAT], 0.145) == 20


def test_a_model_far_behind_is_reported_and_not_trained_to_the_end(monkeypatch):
    monkeypatch.setattr(epoch_watch, "MIN_EPOCHS", 6)
    models = ["BPRMF", "PersonalFrequency"]  # models with epochs are validated last, whatever the order
    monkeypatch.setattr(epoch_watch, "FAR", 10.0)
    report = sl.fit(shoppers(), models=models, budget=1).selection_
    assert [row["model"] for row in report.models] == ["PersonalFrequency"]
    assert report.skipped["BPRMF"].startswith("training ended after epoch 6: F1 0.")
    assert "left out: BPRMF (training ended after epoch 6" in str(report)
    monkeypatch.setattr(epoch_watch, "FAR", 0.0)
    report = sl.fit(shoppers(), models=models, budget=1).selection_
    assert {row["model"] for row in report.models} == set(models)


@pytest.mark.parametrize("arguments", [{"filter_seen": True}, {"validation": "by_time"}, {"metric": "ndcg"}])
def test_f1_that_cannot_be_compared_ends_no_training(monkeypatch, arguments):
    monkeypatch.setattr(epoch_watch, "MIN_EPOCHS", 6)
    monkeypatch.setattr(epoch_watch, "FAR", 10.0)
    report = sl.fit(shoppers(), models=["PersonalFrequency", "BPRMF"], budget=1, **arguments).selection_
    assert {row["model"] for row in report.models} == {"PersonalFrequency", "BPRMF"}


def test_a_configured_model_is_trained_to_the_end(monkeypatch):
    monkeypatch.setattr(epoch_watch, "MIN_EPOCHS", 6)
    monkeypatch.setattr(epoch_watch, "FAR", 10.0)
    report = sl.fit(shoppers(), models=["PersonalFrequency", sl.BPRMF(n_epochs=15)], budget=1).selection_
    assert {row["model"] for row in report.models} == {"PersonalFrequency", "BPRMF"}


def test_models_are_compared_at_the_lengths_that_training_scores():
    assert epoch_watch.EPOCH_LENGTHS == training.MAX_ITEMS
