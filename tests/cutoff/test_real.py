"""Cutoffs on real data, with a simple ranker."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.cutoff import ExpectedF1, FixedN, top_candidates
from shortlist.cutoff.threshold import user_utilities
from shortlist.data.labeled import label_lists


def frequency(train, *, repeats):
    """Share of the user's baskets with the item, plus popularity; only new items unless `repeats`."""
    popularity = np.bincount(train.item, minlength=train.n_items) / train.n_baskets

    def score(users):
        rows = np.tile(popularity, (users.size, 1))
        for row, user in enumerate(users):
            own = train.item[train.indptr[user] : train.indptr[user + 1]]
            np.add.at(rows[row], own, 1 / max(np.diff(train.user_baskets)[user], 1) if repeats else -np.inf)
        return rows

    return score


def parts(name, n_users, *, repeats):
    """(split, candidates before validation, candidates before the test) of some users."""
    split = sl.split.last_basket(sl.load_dataset(name))
    candidates = [
        top_candidates(
            frequency(known, repeats=repeats),
            ids=known,
            users=np.random.default_rng(0).permutation(then.active_users)[:n_users],
        )
        for known, then in ((split.train, split.valid), (split.train_valid, split.test))
    ]
    return split, *candidates


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "repeats", "gain", "error"), [("ta-feng", True, 1.05, 0.005), ("ml-100k", False, 0.95, 0.005)]
)
def test_dynamic_lengths_beat_or_match_the_best_fixed_length_over_all_users(name, repeats, gain, error):
    split, before, now = parts(name, 4000, repeats=repeats)
    labels = label_lists(now, split.test)
    fixed = FixedN().fit(before, split.valid)
    cut = ExpectedF1().fit(before, split.valid, history=split.train)
    lists = cut.apply(now, history=split.train_valid)
    dynamic, best = (user_utilities(labels, one, "f1").mean() for one in (lists.lengths, fixed.lengths(now)))
    assert dynamic > gain * best
    calibrated = cut.calibration_.apply(now, history=split.train_valid)
    assert sl.evaluate(calibrated, split.test).calibration_error < error
