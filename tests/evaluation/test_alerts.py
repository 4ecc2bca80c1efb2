"""evaluate_alerts against a case worked by hand."""

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from shortlist.cutoff import ExpectedF1, top_candidates
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.evaluate import evaluate_alerts


def lists(rows):
    return RankedLists.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row"))


def test_two_days_by_hand():
    first = lists([("ann", "a"), ("ann", "b"), ("bob", "a"), ("cleo", None)])
    second = lists([("ann", None), ("bob", "c"), ("cleo", None)])
    truth = [
        Interactions.from_tuples([("ann", "a"), ("ann", "z")]),
        Interactions.from_tuples([("cleo", "c")]),
    ]
    report = evaluate_alerts(zip([first, second], truth, strict=True))
    assert report._asdict() == {
        "n_requests": 6, "messages": 4, "useful": 1, "relevant": 3, "lists": 3, "useless_lists": 2,
        "empty": 3, "correct_empty": 2, "f1": pytest.approx((2 / 4 + 0 + 1 + 1 + 0 + 0) / 6),
    }  # fmt: skip
    assert report.useful_share == 0.25


def test_no_days_are_refused():
    with pytest.raises(DataError, match="at least one pair"):
        evaluate_alerts([])


class TestChangingCandidates:
    """Lists from candidates that change by day and by user; the cutoff predicts what is relevant."""

    N_USERS, N_ITEMS, PER_DAY = 400, 60, 6

    def world(self, seed):
        """(scores, relevant): half of the users like few items, the others many; the scores are log-odds."""
        rng = np.random.default_rng(seed)
        level = np.where(np.arange(self.N_USERS) % 2, 6, 2)[:, None]
        odds = rng.normal(0, 2, (self.N_USERS, self.N_ITEMS)) - level
        return odds, rng.random(odds.shape) < expit(odds)

    def ranked(self, odds, columns):
        """The candidates of a day; `columns` (n_users, n) differ between users."""
        rows = np.full(odds.shape, -np.inf)
        np.put_along_axis(rows, columns, np.take_along_axis(odds, columns, 1), 1)
        return top_candidates(rows, n_candidates=self.PER_DAY)

    def truth(self, relevant, columns):
        member = np.zeros(relevant.shape, bool)
        np.put_along_axis(member, columns, True, axis=1)
        users, items = np.nonzero(relevant & member)
        return Interactions.from_tuples(list(zip(users.tolist(), items.tolist(), strict=True)))

    def days(self, odds, relevant, seed):
        """Ten days with other candidates for every user."""
        rng = np.random.default_rng(seed)
        order = rng.permuted(np.tile(np.arange(self.N_ITEMS), (self.N_USERS, 1)), axis=1)
        for day in range(self.N_ITEMS // self.PER_DAY):
            columns = order[:, day * self.PER_DAY : (day + 1) * self.PER_DAY]
            yield self.ranked(odds, columns), self.truth(relevant, columns)

    def fitted(self, **params):
        odds, relevant = self.world(1)
        columns = np.tile(np.arange(self.N_ITEMS), (self.N_USERS, 1))
        wide = top_candidates(odds, n_candidates=self.N_ITEMS)
        cut = ExpectedF1(n_candidates=self.N_ITEMS, calibration="platt", **params)
        return cut.fit(wide, self.truth(relevant, columns), users=range(self.N_USERS))

    def test_an_empty_list_is_correct_more_often_than_any_fixed_length(self):
        cut = self.fitted(count_empty_as_correct=True)
        days = list(self.days(*self.world(2), seed=3))
        found = evaluate_alerts([(cut.apply(lists), truth) for lists, truth in days])
        always = [evaluate_alerts([(lists.head(n), truth) for lists, truth in days]) for n in range(4)]
        loud = self.fitted(size="probabilities")
        other = evaluate_alerts([(loud.apply(lists), truth) for lists, truth in days])
        assert found.n_requests == 10 * self.N_USERS
        assert found.f1 > max(report.f1 for report in always) + 0.02
        assert found.f1 > other.f1 + 0.02
        assert found.empty > 0
        assert found.correct_empty / found.empty > 0.6

    def test_the_number_of_relevant_items_is_that_of_the_days_candidates(self):
        cut = self.fitted(count_empty_as_correct=True)
        expected, observed = [], []
        for lists, truth in self.days(*self.world(4), seed=5):
            expected.append(float(cut._probabilities(lists, None).sum()))
            observed.append(truth.n_rows)
        assert sum(expected) == pytest.approx(sum(observed), rel=0.05)

    def test_the_size_must_not_count_other_items(self):
        with pytest.raises(ConfigError, match="size must be 'auto' or 'probabilities'"):
            ExpectedF1(count_empty_as_correct=True, size="history").fit(
                np.eye(3), Interactions.from_tuples([(0, 0)])
            )
