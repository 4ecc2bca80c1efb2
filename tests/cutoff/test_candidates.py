"""top_candidates: the same candidates from every kind of scores."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from shortlist.cutoff import FixedN, top_candidates
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError

SCORES = np.array([[1.0, 3.0, np.nan, 3.0], [-np.inf, np.inf, 0.0, -1.0]], np.float32)
TABLE = Interactions.from_csr(np.ones((2, 4)), ["ann", "bob"], ["w", "x", "y", "z"])


def shown(lists: RankedLists):
    return {one.user_id: one.items for one in lists}


def test_dense_scores_are_ranked_by_score_then_item_without_nan():
    assert shown(top_candidates(SCORES, ids=TABLE)) == {"ann": ["x", "z", "w"], "bob": ["x", "y", "z"]}


def test_ids_default_to_row_and_column_numbers():
    assert shown(top_candidates(SCORES, n_candidates=2)) == {0: [1, 3], 1: [1, 2]}


def test_function_is_called_in_blocks_of_the_given_users(monkeypatch):
    monkeypatch.setattr("shortlist.cutoff.candidates.BLOCK", 1)
    called = []

    def score(users):
        called.append(users.tolist())
        return SCORES[users]

    assert shown(top_candidates(score, ids=TABLE)) == shown(top_candidates(SCORES, ids=TABLE))
    assert called == [[0], [1]]
    assert shown(top_candidates(score, ids=TABLE, users=np.array([1], np.int32))) == {"bob": ["x", "y", "z"]}
    assert len(top_candidates(score, ids=TABLE, users=np.empty(0, np.int32))) == 0


def test_stored_entries_of_sparse_scores_are_the_candidates():
    matrix = csr_array((np.array([0.0, -2.0, 5.0], np.float32), ([0, 0, 1], [3, 1, 2])), shape=(2, 4))
    assert shown(top_candidates(matrix, ids=TABLE)) == {"ann": ["z", "x"], "bob": ["y"]}


def test_sparse_duplicates_are_summed_without_changing_the_input():
    matrix = coo_array((np.ones(3, np.float32), ([0, 0, 0], [1, 1, 2])), shape=(1, 4))
    assert top_candidates(matrix).scores.tolist() == [2.0, 1.0]
    assert matrix.nnz == 3


def test_ranked_lists_are_sorted_by_score():
    lists = top_candidates(SCORES, ids=TABLE)
    order = [2, 0, 1, 5, 4, 3]
    mixed = RankedLists(
        lists.users,
        lists.item_ids,
        lists.indptr,
        lists.items[order],
        lists.scores[order],
        np.linspace(0, 1, 6)[order],
    )
    back = top_candidates(mixed)
    assert shown(back) == shown(lists)
    assert back.probabilities.tolist() == np.linspace(0, 1, 6).tolist()


def test_ranked_lists_are_filtered_and_truncated():
    lists = RankedLists(
        TABLE.users,
        TABLE.items,
        np.array([0, 3, 4]),
        np.array([0, 1, 2, 3], np.int32),
        np.array([2, 1, np.nan, -np.inf], np.float32),
    )
    assert shown(top_candidates(lists)) == {"ann": ["w", "x"], "bob": []}
    assert shown(top_candidates(lists, n_candidates=1)) == {"ann": ["w"], "bob": []}


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((3, 4)), r"\(2, 4\), got \(3, 4\)"),
        (np.ones(4), "users × items matrix, got 1 dimensions"),
        (lambda users: np.ones((users.size, 3)), r"one column per item, \(2, 4\), got \(2, 3\)"),
    ],
)
def test_scores_of_the_wrong_shape_are_refused(scores, message):
    with pytest.raises(DataError, match=message):
        top_candidates(scores, ids=TABLE)


def test_function_needs_ids_and_n_candidates_a_positive_number():
    with pytest.raises(DataError, match="pass history="):
        top_candidates(lambda users: SCORES)
    with pytest.raises(ConfigError, match="n_candidates must be a whole number of at least 1, got 0"):
        top_candidates(SCORES, n_candidates=0)


def test_scores_without_ids_use_those_of_the_fit(tmp_path):
    cut = FixedN(N=1).fit(SCORES, TABLE)
    assert shown(cut.apply(SCORES)) == {"ann": ["x"], "bob": ["x"]}
    cut.save(tmp_path / "cut")
    assert shown(FixedN.load(tmp_path / "cut").apply(SCORES)) == {"ann": ["x"], "bob": ["x"]}


def test_an_attribute_that_the_cutoff_does_not_declare_is_not_saved(tmp_path):
    cut = FixedN(N=1).fit(SCORES, TABLE)
    cut.other_ = 1
    with pytest.raises(DataError, match=r"FixedN.other_ is not declared.*write `other_: <type> = FITTED`"):
        cut.save(tmp_path / "cut")


def test_scores_without_ids_use_those_of_a_history_without_rows():
    history = TABLE.where(np.zeros(TABLE.n_rows, np.bool_))
    cut = FixedN(N=1).fit(SCORES, Interactions.from_tuples([("ann", "x")]), history=history)
    assert shown(cut.apply(SCORES, history=history)) == {"ann": ["x"], "bob": ["x"]}
    assert shown(FixedN(N=1).apply(SCORES, history=history)) == {"ann": ["x"], "bob": ["x"]}


def test_function_scores_the_users_of_the_truth_by_id():
    called = []

    def score(users):
        called.extend(users.tolist())
        return SCORES[users]

    truth = Interactions.from_tuples([("bob", "y"), ("unknown", "y")])  # bob is user 1 of the history
    cut = FixedN().fit(score, truth, history=TABLE)
    assert called == [1]
    assert cut.N_ == 2
