"""heads: whatever a ranker hands over becomes the same candidates."""

from importlib import import_module

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from shortlist.cutoff import FixedN, heads
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError

SCORES = np.array([[1.0, 3.0, np.nan, 3.0], [-np.inf, np.inf, 0.0, -1.0]], np.float32)
TABLE = Interactions.from_csr(np.ones((2, 4)), ["ann", "bob"], ["w", "x", "y", "z"])


def shown(lists: RankedLists):
    return {one.user_id: one.items for one in lists}


def test_dense_scores_rank_by_score_then_item_and_drop_what_cannot_rank():
    assert shown(heads(SCORES, ids=TABLE)) == {"ann": ["x", "z", "w"], "bob": ["x", "y", "z"]}


def test_without_tables_rows_and_columns_are_the_ids():
    assert shown(heads(SCORES, n_candidates=2)) == {0: [1, 3], 1: [1, 2]}


def test_a_callable_is_asked_in_blocks_for_the_users_that_matter(monkeypatch):
    monkeypatch.setattr(import_module("shortlist.cutoff.top_candidates"), "BLOCK", 1)
    asked = []

    def score(users):
        asked.append(users.tolist())
        return SCORES[users]

    assert shown(heads(score, ids=TABLE)) == shown(heads(SCORES, ids=TABLE))
    assert asked == [[0], [1]]
    assert shown(heads(score, ids=TABLE, users=np.array([1], np.int32))) == {"bob": ["x", "y", "z"]}
    assert len(heads(score, ids=TABLE, users=np.empty(0, np.int32))) == 0


def test_sparse_scores_hold_only_their_stored_entries():
    matrix = csr_array((np.array([0.0, -2.0, 5.0], np.float32), ([0, 0, 1], [3, 1, 2])), shape=(2, 4))
    assert shown(heads(matrix, ids=TABLE)) == {"ann": ["z", "x"], "bob": ["y"]}


def test_sparse_duplicates_are_summed_and_the_caller_keeps_his_matrix():
    matrix = coo_array((np.ones(3, np.float32), ([0, 0, 0], [1, 1, 2])), shape=(1, 4))
    assert heads(matrix).scores.tolist() == [2.0, 1.0]
    assert matrix.nnz == 3


def test_ranked_lists_are_reranked_where_they_are_not_best_first():
    lists = heads(SCORES, ids=TABLE)
    order = [2, 0, 1, 5, 4, 3]
    mixed = RankedLists(
        lists.users,
        lists.item_ids,
        lists.indptr,
        lists.items[order],
        lists.scores[order],
        np.linspace(0, 1, 6)[order],
    )
    back = heads(mixed)
    assert shown(back) == shown(lists)
    assert back.probabilities.tolist() == np.linspace(0, 1, 6).tolist()


def test_ranked_lists_lose_impossible_scores_and_what_lies_beyond_m():
    lists = RankedLists(
        TABLE.users,
        TABLE.items,
        np.array([0, 3, 4]),
        np.array([0, 1, 2, 3], np.int32),
        np.array([2, 1, np.nan, -np.inf], np.float32),
    )
    assert shown(heads(lists)) == {"ann": ["w", "x"], "bob": []}
    assert shown(heads(lists, n_candidates=1)) == {"ann": ["w"], "bob": []}


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (np.ones((3, 4)), r"\(2, 4\), got \(3, 4\)"),
        (np.ones(4), "users × items matrix, got 1 dimensions"),
        (lambda users: np.ones((users.size, 3)), r"a column per item, \(2, 4\), got \(2, 3\)"),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores, words):
    with pytest.raises(DataError, match=words):
        heads(scores, ids=TABLE)


def test_a_callable_needs_tables_and_m_a_size():
    with pytest.raises(DataError, match="pass history="):
        heads(lambda users: SCORES)
    with pytest.raises(ConfigError, match="n_candidates must be at least 1, got 0"):
        heads(SCORES, n_candidates=0)


def test_bare_scores_keep_the_names_they_were_fitted_with(tmp_path):
    cut = FixedN(N=1).fit(SCORES, TABLE)
    assert shown(cut.apply(SCORES)) == {"ann": ["x"], "bob": ["x"]}
    cut.save(tmp_path / "cut")
    assert shown(FixedN.load(tmp_path / "cut").apply(SCORES)) == {"ann": ["x"], "bob": ["x"]}
