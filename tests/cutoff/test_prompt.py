"""PromptCutoff: its subsets against all subsets, its empty lists against the probabilities it predicts."""

from itertools import product

import numpy as np
import pytest

import shortlist as sl
from shortlist.cutoff import Cutoff, ExpectedValue, FixedN, PromptCutoff, top_candidates
from shortlist.cutoff.prompt import MAX_UNITS, best_subset
from shortlist.errors import DataError

from ..auto.test_cut import questions


def best_by_trying(worth, sizes, limit):
    """The highest worth of any subset within the limit."""
    subsets = (np.array(bits, bool) for bits in product((False, True), repeat=sizes.size))
    return max(worth[subset].sum() for subset in subsets if sizes[subset].sum() <= limit)


@pytest.mark.parametrize("seed", range(30))
def test_the_subset_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    worth, sizes = rng.random(9), rng.integers(1, 40, 9).astype(float)
    limit = int(rng.integers(1, 120))
    subset = best_subset(worth, sizes, limit)
    assert sizes[subset].sum() <= limit
    assert worth[subset].sum() == pytest.approx(best_by_trying(worth, sizes, limit))


def test_fine_sizes_keep_the_limit_and_lose_next_to_nothing():
    rng = np.random.default_rng(1)
    worth, sizes, limit = rng.random(12), rng.random(12) * 1e6, 2.5e6
    subset = best_subset(worth, sizes, limit)
    assert sizes[subset].sum() <= limit
    nearly = best_by_trying(worth, sizes, limit * (1 - 12 / MAX_UNITS))
    assert worth[subset].sum() >= nearly - 1e-9


def test_probabilities_of_an_answer_are_calibrated_on_other_queries():
    scores, _, truth = questions()
    cut = PromptCutoff(n_candidates=20, min_relevant=0.5).fit(top_candidates(scores), truth, users=range(300))
    later, relevant, _ = questions(seed=1)
    p = cut.answer_probabilities(top_candidates(later))
    assert p.mean() == pytest.approx(relevant.any(axis=1).mean(), abs=0.05)
    lists = cut.apply(later)
    assert ((lists.lengths == 0) == (p < 0.5)).all()
    assert p[lists.lengths == 0].size > 50


def test_worth_within_the_limit_is_money_if_the_cutoff_knows_it():
    scores, _, truth = questions()
    lists = top_candidates(scores).with_sizes({item: 10.0 + item for item in range(20)})
    inner = ExpectedValue(gain=2.0, cost=0.2, calibration="platt")
    cut = PromptCutoff(n_candidates=20, cutoff=inner, max_size=30).fit(lists, truth)
    whole, limited = cut.cutoff_.apply(lists), cut.apply(lists)
    for before, after in zip(whole, limited, strict=True):
        sizes = 10.0 + np.array(before.items, float)
        worth = 2.0 * before.probabilities - 0.2 * (1 - before.probabilities)
        best = best_by_trying(worth, sizes, 30) if len(before) <= 12 else None
        p = after.probabilities
        assert best is None or (2.2 * p - 0.2).sum() == pytest.approx(best)


def test_files_keep_everything(tmp_path):
    scores, _, truth = questions()
    lists = top_candidates(scores).with_sizes(dict.fromkeys(range(20), 100.0))
    cut = PromptCutoff(n_candidates=20, cutoff=FixedN(), max_size=250, min_relevant=0.5)
    cut.fit(lists, truth, users=range(300))
    again = Cutoff.load(cut.save(tmp_path / "prompt.shortlist"))
    assert again.apply(lists).to_frame().equals(cut.apply(lists).to_frame())
    assert again.cutoff_.N_ == cut.cutoff_.N_


def test_what_is_missing_is_named():
    scores, _, truth = questions()
    lists = top_candidates(scores)
    with pytest.raises(DataError, match="lists without a relevant candidate"):
        PromptCutoff(n_candidates=20, min_relevant=0.5).fit(lists, truth)
    with pytest.raises(DataError, match="needs the size of each item"):
        PromptCutoff(n_candidates=20, max_size=100).fit(lists, truth).apply(lists)
    with pytest.raises(DataError, match="sizes must be positive numbers for all candidates, got nan"):
        lists.with_sizes({0: 1.0})
    assert sl.cutoff.PromptCutoff is PromptCutoff
