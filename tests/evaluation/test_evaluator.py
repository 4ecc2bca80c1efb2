"""evaluate: by hand, against plain definitions, against other libraries, inputs and errors."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import METRICS, evaluate, slice_metrics
from tests.evaluation import cases, naive
from tests.evaluation.cases import LISTS, TRUTH, interactions

LOG3 = 1 / math.log2(3)
NAMED = ("ann", "bob", "eve", "fay", "gus")
SHOWN = {**LISTS, "gus": ["a"]}


def by_user(report):
    return {row["user_id"]: row for row in report.users.to_dicts()}


def test_truth_accepts_tables_and_matrices():
    truth = interactions(TRUTH)
    tables = truth.to_frame(), truth.to_frame().to_pandas()
    expected = evaluate(LISTS, truth, history=truth).to_dict()
    assert all(evaluate(LISTS, table, history=table).to_dict() == expected for table in tables)
    numbered = evaluate({0: [1, 0], 1: []}, csr_array([[1, 0, 1], [0, 1, 0]]))
    assert numbered.values("f1").tolist() == [0.5, 0]
    with pytest.raises(DataError, match=r"must be a .* got dict"):
        evaluate(LISTS, TRUTH)


class TestUsersWithoutTruth:
    """Users named in `users=`."""

    def test_named_users_count_and_others_do_not_change(self):
        plain, named = (evaluate(SHOWN, interactions(TRUTH), users=ids) for ids in (None, NAMED))
        assert (plain.n_users, plain.ignored) == (4, 2)
        assert (named.n_users, named.ignored, named.unlisted) == (7, 0, 2)  # dan and fay have no list
        before, after = by_user(plain), by_user(named)
        assert {user: after[user] for user in before} == before
        assert named.mean("length") == (4 + 1 + 0 + 0 + 2 + 0 + 1) / 7
        assert named.cover_ratio == 4 / 7
        assert named.f1 == pytest.approx(plain.f1 * 4 / 7)
        assert named.mean("precision", "covered") == pytest.approx((2 / 4 + 1 + 0 + 0) / 4)

    def test_metrics_are_zero_with_and_without_a_list(self):
        found = by_user(evaluate(SHOWN, interactions(TRUTH), users=NAMED))
        for user, length in {"eve": 2, "fay": 0, "gus": 1}.items():
            assert (found[user]["relevant"], found[user]["length"]) == (0, length)
            assert {found[user][name] for name in METRICS if name != "length"} == {0.0}

    def test_their_probabilities_count_in_the_calibration_error(self):
        lists = RankedLists.from_frame(
            pl.DataFrame({"user_id": ["bob", "fay"], "item_id": ["a", "a"], "probability": [1.0, 1.0]})
        )
        assert evaluate(lists, interactions(TRUTH)).calibration_error == 0
        assert evaluate(lists, interactions(TRUTH), users=["fay"]).calibration_error == 0.5

    def test_they_have_a_slice_of_their_own(self):
        report = evaluate(LISTS, interactions(TRUTH), history=interactions(TRUTH), users=["fay", "eve"])
        assert slice_metrics(report, "basket_size")["slice"].to_list() == ["0", "1", "2", "3–5"]
        assert slice_metrics(report, "basket_size")["users"].to_list() == [2, 1, 2, 1]
        assert slice_metrics(report, "history_length")["users"].sum() == 6

    def test_naming_users_with_truth_changes_nothing(self):
        truth = interactions(TRUTH)
        assert evaluate(LISTS, truth, users=list(TRUTH)).to_dict() == evaluate(LISTS, truth).to_dict()
        assert evaluate(LISTS, truth, users=[]).to_dict() == evaluate(LISTS, truth).to_dict()

    def test_ids_of_another_type_are_refused(self):
        with pytest.raises(DataError, match="must have the type of the known ones"):
            evaluate(LISTS, interactions(TRUTH), users=[1, 2])


class TestByHand:
    def test_hits_after_a_miss(self):
        ann = by_user(evaluate(LISTS, interactions(TRUTH)))["ann"]
        # shown x a b y, relevant a b c: 2 hits of 4 shown and 3 relevant items
        assert (ann["hits"], ann["length"], ann["relevant"], ann["covered"]) == (2, 4, 3, True)
        assert ann["precision"] == 2 / 4
        assert ann["recall"] == pytest.approx(2 / 3)
        assert ann["f1"] == pytest.approx(4 / 7)
        ideal = 1 + LOG3 + 1 / 2
        assert ann["ndcg"] == pytest.approx((LOG3 + 1 / 2) / ideal)
        assert ann["ndcg_paper"] == pytest.approx((LOG3 + 1 / 2) / ideal)
        assert ann["average_precision"] == pytest.approx((1 / 2 + 2 / 3) / 3)
        assert ann["reciprocal_rank"] == 1 / 2

    def test_perfect_list_scores_one(self):
        bob = by_user(evaluate(LISTS, interactions(TRUTH)))["bob"]
        assert {bob[name] for name in METRICS} == {1.0}

    @pytest.mark.parametrize("user", ["cat", "dan"])
    def test_empty_and_missing_lists_score_zero(self, user):
        row = by_user(evaluate(LISTS, interactions(TRUTH)))[user]
        assert {row[name] for name in METRICS} == {0.0}
        assert row["covered"] is False
        assert row["confidence"] is None

    def test_short_list_lowers_ndcg_but_not_ndcg_paper(self):
        report = evaluate({"u": ["a"]}, interactions({"u": ["a", "b", "c"]}))
        assert report.mean("ndcg_paper") == 1
        assert report.mean("ndcg") == pytest.approx(1 / (1 + LOG3 + 1 / 2))

    def test_max_items_sets_normalizer_and_depth(self):
        report = evaluate({"u": ["a", "x", "b"]}, interactions({"u": ["a", "b", "c"]}), max_items=2)
        assert report.mean("ndcg") == pytest.approx(1 / (1 + LOG3))
        assert report.mean("average_precision") == pytest.approx(1 / 2)
        assert report.mean("recall") == pytest.approx(2 / 3)  # of the whole list
        assert report.mean("ndcg_paper") == pytest.approx((1 + 1 / 2) / (1 + LOG3 + 1 / 2))

    def test_views_and_counts_of_users(self):
        report = evaluate(LISTS, interactions(TRUTH))
        assert report.n_users == 4
        assert report.cover_ratio == 0.5
        assert (report.unlisted, report.ignored) == (1, 1)
        assert report.f1 == pytest.approx((4 / 7 + 1) / 4)
        assert report.mean("f1", "covered") == pytest.approx((4 / 7 + 1) / 2)
        assert report.mean("length") == 5 / 4
        assert report.users["user_id"].to_list() == ["ann", "bob", "cat", "dan"]

    def test_item_counts(self):
        counts = evaluate(LISTS, interactions(TRUTH)).items
        assert dict(zip(counts.ids.values, counts.shown, strict=True)) == {
            "a": 2,
            "b": 1,
            "c": 0,
            "d": 0,
            "e": 0,
        }
        assert counts.hits.tolist() == [2, 1, 0, 0, 0]
        assert counts.relevant.tolist() == [3, 2, 1, 1, 1]
        assert counts.n_unknown == 2  # ann's x and y; eve is not evaluated
        assert counts.coverage == pytest.approx(4 / 7)


class TestRepeats:
    HISTORY = interactions({"ann": ["a", "x", "z"], "eve": ["b"], "bob": ["b", "c"]})

    def test_by_hand(self):
        table = evaluate(LISTS, interactions(TRUTH), history=self.HISTORY).repeat_explore
        # of ann's shown items x and a are repeats, of her hits and of her truth only a
        assert table.select("kind", "shown", "hits", "relevant").rows() == [
            ("repeat", 2, 1, 1),
            ("explore", 3, 2, 7),
        ]
        assert table["share_of_hits"].to_list() == pytest.approx([1 / 3, 2 / 3])
        assert table["precision"].to_list() == pytest.approx([1 / 2, 2 / 3])
        assert table["recall"].to_list() == pytest.approx([1, 2 / 7])

    def test_per_user(self):
        ann = by_user(evaluate(LISTS, interactions(TRUTH), history=self.HISTORY))["ann"]
        assert (ann["history_length"], ann["repeat_hits"], ann["explore_hits"]) == (3, 1, 1)

    def test_missing_history_is_refused(self):
        with pytest.raises(DataError, match="history="):
            _ = evaluate(LISTS, interactions(TRUTH)).repeat_explore

    @given(cases.shown, cases.truths, cases.truths)
    def test_counts_match_sets(self, shown, relevant, before):
        assume(not shown or shown.keys() & relevant.keys())
        report = evaluate(shown, interactions(relevant), history=interactions(before))
        for row, user in enumerate(report.user_ids):
            earlier = set(before.get(user, []))
            assert report.repeats.shown[row] == len(earlier & set(shown.get(user, [])))
            assert report.repeats.hits[row] == len(earlier & set(shown.get(user, [])) & set(relevant[user]))
            assert report.repeats.relevant[row] == len(earlier & set(relevant[user]))


def with_probabilities(lists, p):
    return RankedLists.from_frame(lists.to_frame().with_columns(pl.Series("probability", p)))


class TestCalibration:
    def lists(self, p=(0.9, 0.5, 0.5, 0.1)):
        lists = RankedLists.from_frame(
            pl.DataFrame({"user_id": [1, 1, 2, 2], "item_id": ["a", "b", "a", "b"]})
        )
        return with_probabilities(lists, p)

    def test_per_user(self):
        report = evaluate(self.lists(), interactions({1: ["a"], 2: ["a", "b"], 3: ["a"]}))
        rows = by_user(report)
        assert rows[1]["expected_hits"] == pytest.approx(1.4)
        assert rows[1]["calibration_error"] == pytest.approx(0.4 / 2)
        assert rows[2]["calibration_error"] == pytest.approx(1.4 / 2)
        assert rows[3]["calibration_error"] is None

    def test_bins_of_all_shown_items(self):
        report = evaluate(self.lists(), interactions({1: ["a"], 2: ["a", "b"]}))
        assert report.calibration.rows() == [
            (1, pytest.approx(0.1), 1.0),
            (2, pytest.approx(0.5), 0.5),
            (1, pytest.approx(0.9), 1.0),
        ]
        assert report.calibration_error == pytest.approx((0.9 + 0 + 0.1) / 4)

    def test_confidence_is_the_first_probability(self):
        report = evaluate(self.lists(), interactions({1: ["a"], 2: ["a"]}))
        assert report.confidence.tolist() == [0.9, 0.5]

    def test_true_probabilities_have_a_small_error_and_halved_ones_a_large_one(self):
        rng = np.random.default_rng(3)
        p = rng.random(40_000)
        relevant = np.flatnonzero(rng.random(p.size) < p)
        users, items = np.append(relevant // 10, range(4000)), np.append(relevant, np.full(4000, 99_999))
        truth = Interactions.from_frame(pl.DataFrame({"user_id": users, "item_id": items}))
        frame = pl.DataFrame(
            {"user_id": np.arange(p.size) // 10, "item_id": np.arange(p.size), "probability": p}
        )
        assert evaluate(frame, truth).calibration_error < 0.01
        shrunk = frame.with_columns(pl.col("probability") / 2)
        assert evaluate(shrunk, truth).calibration_error == pytest.approx(0.25, abs=0.01)

    def test_missing_probabilities_are_refused(self):
        report = evaluate(LISTS, interactions(TRUTH))
        assert report.calibration_error is None
        with pytest.raises(DataError, match="needs probabilities"):
            _ = report.calibration

    def test_values_outside_0_and_1_are_refused(self):
        with pytest.raises(DataError, match="between 0 and 1"):
            evaluate(self.lists((0.5, 1.5, 0.5, 0.1)), interactions({1: ["a"]}))

    def test_items_without_a_probability_do_not_count(self):
        report = evaluate(self.lists((0.5, None, 0.5, None)), interactions({1: ["a"], 2: ["b"]}))
        assert report.calibration.rows() == [(2, 0.5, 0.5)]


class TestAgainstPlainDefinitions:
    @given(cases.shown, cases.truths, st.integers(1, 12))
    def test_every_metric(self, shown, relevant, max_items):
        assume(not shown or shown.keys() & relevant.keys())
        report = evaluate(shown, interactions(relevant), max_items=max_items)
        expected = {user: naive.metrics(shown.get(user, []), relevant[user], max_items) for user in relevant}
        for user, row in by_user(report).items():
            for name in METRICS:
                assert row[name] == pytest.approx(expected[user][name]), (user, name)
        covered = [row for user, row in expected.items() if shown.get(user)]
        for name in METRICS:
            assert report.mean(name) == pytest.approx(np.mean([row[name] for row in expected.values()]))
            if covered:
                assert report.mean(name, "covered") == pytest.approx(np.mean([row[name] for row in covered]))
        assert report.unlisted == len(relevant.keys() - shown.keys())
        assert report.ignored == len(shown.keys() - relevant.keys())

    @pytest.mark.parametrize("seed", range(3))
    def test_longer_random_lists(self, seed):
        shown, relevant = cases.random_case(seed, n_users=1500)
        rows = by_user(evaluate(shown, interactions(relevant)))
        for user in relevant:
            expected = naive.metrics(shown[user], relevant[user])
            assert {name: rows[user][name] for name in METRICS} == pytest.approx(expected)

    @given(cases.shown, cases.truths)
    def test_bounds(self, shown, relevant):
        assume(not shown or shown.keys() & relevant.keys())
        report = evaluate(shown, interactions(relevant))
        for name in set(METRICS) - {"hits", "length"}:
            assert (report.values(name) >= 0).all()
            assert (report.values(name) <= 1 + 1e-12).all()
        assert (report.values("ndcg") <= report.values("ndcg_paper") + 1e-12).all()
        assert (report.hits <= np.minimum(report.lengths, report.n_relevant)).all()


RANX = {  # name in ranx -> name here
    "f1": "f1",
    "ndcg@12": "ndcg",
    "precision": "precision",
    "recall": "recall",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
    "hits": "hits",
}
RUN_RANX = """
import json, sys, ranx
given = json.load(sys.stdin)
qrels = ranx.Qrels({user: dict.fromkeys(items, 1) for user, items in given["relevant"].items()})
shown = given["shown"].items()
run = ranx.Run({user: {item: -float(k) for k, item in enumerate(items)} for user, items in shown})
ranx.evaluate(qrels, run, given["metrics"])
json.dump({name: {u: float(v) for u, v in scores.items()} for name, scores in run.scores.items()}, sys.stdout)
"""


def test_ranx_agrees_for_every_user():
    """ranx has no empty lists and cuts NDCG at K, so all lists have items and K = max_items >= every list.

    It runs in a process of its own with its compiler off: compiling its metrics takes minutes.
    """
    if find_spec("ranx") is None:
        pytest.skip("ranx comes with the dev extra")
    shown, relevant = {}, {}
    for seed in range(4):
        one_shown, one_relevant = cases.random_case(seed, n_users=60, empty=0)
        shown |= {f"{seed}{user}": items for user, items in one_shown.items()}
        relevant |= {f"{seed}{user}": items for user, items in one_relevant.items()}
    text = json.dumps({"shown": shown, "relevant": relevant, "metrics": list(RANX)})
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN_RANX],
        input=text,
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    theirs = json.loads(done.stdout)
    rows = by_user(evaluate(shown, interactions(relevant), max_items=12))
    for name, ours in RANX.items():
        assert {user: row[ours] for user, row in rows.items()} == pytest.approx(theirs[name]), name


class FakeModel:
    """The part of a model that implicit's evaluation calls."""

    def __init__(self, lists):
        self.lists = lists  # (n_users, K)

    def recommend(self, userid, user_items, N, **_):
        return self.lists[userid, :N], np.zeros((len(userid), N), np.float32)


class TestAgainstImplicit:
    """Lists of one length. implicit's "precision" is all users' hits over the most that K items allow."""

    @pytest.mark.parametrize("K", [1, 5, 10])
    def test_one_length(self, K):
        from implicit.evaluation import ranking_metrics_at_k
        from scipy.sparse import csr_matrix

        rng = np.random.default_rng(K)
        n_users, n_items = 300, 50
        lists = np.stack([rng.permutation(n_items)[:K] for _ in range(n_users)]).astype(np.int32)
        test = csr_matrix((rng.random((n_users, n_items)) < 0.1).astype(np.float32))
        train = csr_matrix((n_users, n_items), dtype=np.float32)
        theirs = ranking_metrics_at_k(FakeModel(lists), train, test, K=K, show_progress=False, num_threads=1)
        ours = evaluate(
            {user: lists[user].tolist() for user in range(n_users)}, Interactions.from_csr(test), max_items=K
        )
        assert ours.ndcg == pytest.approx(theirs["ndcg"])
        assert ours.mean("average_precision") == pytest.approx(theirs["map"])
        assert ours.hits.sum() / np.minimum(ours.n_relevant, K).sum() == pytest.approx(theirs["precision"])


class TestInputs:
    FRAME = pl.DataFrame(
        [(user, item) for user, items in LISTS.items() for item in (items or [None])],
        schema=["user_id", "item_id"],
        orient="row",
    )

    @pytest.mark.parametrize(
        "convert",
        [
            lambda frame: frame,
            lambda frame: frame.lazy(),
            lambda frame: frame.to_pandas(),
            lambda frame: frame.to_arrow(),
            RankedLists.from_frame,
            lambda frame: [frame[:4], frame[4:].to_pandas()],
            lambda frame: iter([frame.to_arrow()]),
        ],
        ids=["polars", "lazy", "pandas", "arrow", "lists", "chunks", "stream"],
    )
    def test_every_kind_of_lists(self, convert):
        truth = interactions(TRUTH)
        assert evaluate(convert(self.FRAME), truth).users.equals(evaluate(LISTS, truth).users)

    @pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
    @pytest.mark.parametrize("kind", [str, Path])
    def test_paths(self, kind, ending, tmp_path):
        truth = interactions(TRUTH)
        path = RankedLists.from_frame(self.FRAME).write(tmp_path / f"lists.{ending}")
        assert evaluate(kind(path), truth).users.equals(evaluate(LISTS, truth).users)

    def test_pandas_integer_ids_with_an_empty_list(self):
        frame = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [7, 8, None], "rank": [1, 2, 0]}).to_pandas()
        assert frame["item_id"].dtype == np.float64
        report = evaluate(frame, interactions({1: [8], 2: [9]}))
        assert (report.hits.tolist(), report.lengths.tolist()) == ([1, 0], [2, 0])

    @pytest.mark.parametrize(
        ("lists", "message"),
        [
            (3, "got int"),
            ([3], "got int"),
            (pl.DataFrame({"name": ["ann"], "thing": ["a"]}).to_pandas(), "must have a column 'user_id'"),
            ({"ann": "a"}, "got 'a' for 'ann'"),
            ("missing.parquet", "missing.parquet"),
        ],
    )
    def test_refusals_are_one_short_sentence(self, lists, message):
        with pytest.raises(DataError, match=message) as caught:
            evaluate(lists, interactions(TRUTH))
        assert len(str(caught.value)) <= 300
        assert "\n" not in str(caught.value)

    @given(cases.shown, cases.truths, st.integers(1, 4))
    def test_chunks_give_the_same_bits(self, shown, relevant, size):
        assume(shown.keys() & relevant.keys())
        whole = RankedLists.from_frame(
            pl.DataFrame(
                [(user, item) for user, items in shown.items() for item in (items or [None])],
                schema={"user_id": pl.Int64, "item_id": pl.Int64},
                orient="row",
            )
        )
        chunks = (whole[k : k + size] for k in range(0, len(whole), size))
        truth = interactions(relevant)
        one, other = evaluate(whole, truth, history=truth), evaluate(chunks, truth, history=truth)
        assert one.users.equals(other.users)
        assert one.to_dict() == other.to_dict()
        assert one.items.shown.tolist() == other.items.shown.tolist()

    def test_order_of_lists_does_not_matter(self):
        shown, relevant = cases.random_case(5)
        other = dict(reversed(shown.items()))
        assert evaluate(other, interactions(relevant)).users.equals(
            evaluate(shown, interactions(relevant)).users
        )

    def test_repeated_item_in_the_truth_counts_once(self):
        truth = Interactions.from_tuples([("u", "a", 1), ("u", "a", 2), ("u", "b", 3)])
        report = evaluate({"u": ["a"]}, truth)
        assert report.n_relevant.tolist() == [2]
        assert report.items.relevant.tolist() == [1, 1]

    def test_item_shown_twice_is_one_hit(self):
        lists = RankedLists(
            IdMap.of(["u"]), IdMap.of(["a"]), np.array([0, 2]), np.zeros(2, np.int32), np.zeros(2, "f4")
        )
        assert evaluate(lists, interactions({"u": ["a", "b"]})).hits.tolist() == [1]

    def test_empty_mapping_scores_zero(self):
        report = evaluate({}, interactions(TRUTH))
        assert (report.f1, report.cover_ratio, report.unlisted) == (0, 0, 4)
        assert np.isnan(report.mean("f1", "covered"))
        assert report.to_dict()["covered"]["f1"] is None

    def test_int64_arrays_of_another_library(self):
        lists = RankedLists(
            IdMap.of([1]),
            IdMap.of([7, 8]),
            np.array([0, 2], np.int32),
            np.array([1, 0]),
            np.zeros(2, np.float64),
        )
        assert evaluate(lists, interactions({1: [8]})).first.tolist() == [1]


class TestErrors:
    def test_ids_of_another_type(self):
        with pytest.raises(DataError, match="ids of users must have one type"):
            evaluate({1: ["a"]}, interactions(TRUTH))
        with pytest.raises(DataError, match="ids of items must have one type"):
            evaluate({"ann": [1]}, interactions(TRUTH))

    def test_mixed_ids(self):
        with pytest.raises(DataError, match="mixture"):
            evaluate({"ann": ["a", 1]}, interactions(TRUTH))

    def test_lists_of_other_users_only(self):
        with pytest.raises(DataError, match="the 4 evaluated users, got 1 lists of other users"):
            evaluate({"zed": ["a"]}, interactions(TRUTH))

    def test_two_lists_of_one_user(self):
        lists = RankedLists.from_frame(pl.DataFrame({"user_id": ["ann", "bob"], "item_id": ["a", "a"]}))
        with pytest.raises(DataError, match="one list"):
            evaluate(lists.take([0, 0]), interactions(TRUTH))
        with pytest.raises(DataError, match="two chunks"):
            evaluate([lists, lists], interactions(TRUTH))

    def test_chunks_with_and_without_probabilities(self):
        lists = RankedLists.from_frame(pl.DataFrame({"user_id": ["ann", "bob"], "item_id": ["a", "a"]}))
        with pytest.raises(DataError, match="either all chunks or none"):
            evaluate([with_probabilities(lists[:1], [0.5]), lists[1:]], interactions(TRUTH))

    def test_no_truth(self):
        nothing = interactions(TRUTH).where(np.zeros(8, np.bool_))
        with pytest.raises(DataError, match="at least one interaction"):
            evaluate(LISTS, nothing)

    def test_max_items(self):
        with pytest.raises(ConfigError, match="at least 1, got 0"):
            evaluate(LISTS, interactions(TRUTH), max_items=0)

    @pytest.mark.parametrize(
        ("indptr", "items", "message"),
        [([0, 1], [5], "indices below 2"), ([0, 1], [-1], "indices below 2"), ([1, 1], [0], "start at 0")],
    )
    def test_arrays_that_kernels_cannot_index(self, indptr, items, message):
        lists = RankedLists(
            IdMap.of(["ann"]),
            IdMap.of(["a", "b"]),
            np.array(indptr),
            np.array(items, np.int32),
            np.zeros(len(items), np.float32),
        )
        with pytest.raises(DataError, match=message):
            evaluate(lists, interactions(TRUTH))

    def test_unknown_metric(self):
        with pytest.raises(ConfigError, match="'auc'"):
            evaluate(LISTS, interactions(TRUTH)).mean("auc")


@pytest.mark.parametrize("indptr", [[0, 2, 1, 2], [1, 1, 1, 2]])
def test_lists_with_wrong_starts_are_refused(indptr):
    lists = read_candidates({"ann": ["a"], "bob": ["b"], "eve": []})
    with pytest.raises(DataError, match="must start at 0 and never decrease"):
        evaluate(replace(lists, indptr=np.array(indptr)), interactions(TRUTH))


@pytest.mark.filterwarnings("ignore::shortlist.errors.DataWarning")
def test_a_folder_is_evaluated_as_its_lists(tmp_path):
    rows = [(user, item, rank) for user in SHOWN for rank, item in enumerate(SHOWN[user])]
    table = pl.DataFrame(rows, ["user_id", "item_id", "rank"], orient="row")
    truth, is_first = interactions(TRUTH), pl.col("user_id") == NAMED[0]
    (tmp_path / "lists").mkdir()
    for number, part in enumerate((table.filter(is_first), table.filter(~is_first))):
        part.write_parquet(tmp_path / "lists" / f"part-{number}.parquet")
    assert evaluate(tmp_path / "lists", truth).to_dict() == evaluate(table, truth).to_dict()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="must hold Parquet files with lists"):
        evaluate(tmp_path / "empty", truth)
