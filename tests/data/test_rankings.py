"""Candidates and outcomes of other libraries become the same lists, whatever their form."""

import json

import pandas as pd
import polars as pl
import pytest

from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates, read_outcomes
from shortlist.errors import DataError

RUN = {"q1": {"a": 3.0, "b": 2.0}, "q2": {"c": 1.5}}
LISTS = {"q1": ["a", "b"], "q2": ["c"]}
ROWS = [("q1", "b", 2.0), ("q1", "a", 3.0), ("q2", "c", 1.5)]


def as_dict(lists):
    return {one.user_id: one.items for one in lists}


def frame(names):
    return pl.DataFrame(ROWS, schema=names, orient="row")


@pytest.mark.parametrize(
    "names",
    [
        ("user_id", "item_id", "score"),  # RecTools, LensKit
        ("query_id", "item_id", "rating"),  # RePlay
        ("user_idx", "item_idx", "relevance"),  # RePlay before 0.16
        ("q_id", "doc_id", "score"),  # ranx
        ("qid", "docno", "score"),  # TREC, PyTerrier
        ("query", "document_id", "similarity"),
        ("customer", "sku", "prediction"),
    ],
)
def test_columns_of_other_libraries(names):
    table = frame(names)
    for given in (table, table.lazy(), table.to_pandas(), table.to_arrow()):
        lists = read_candidates(given)
        assert as_dict(lists) == LISTS
        assert lists.scores.tolist() == [3.0, 2.0, 1.5]


def test_rank_decides_over_score_and_without_both_the_order_of_rows():
    table = frame(("user_id", "item_id", "score")).with_columns(rank=pl.Series([1, 2, 1]))
    assert as_dict(read_candidates(table)) == {"q1": ["b", "a"], "q2": ["c"]}
    assert as_dict(read_candidates(table.select("user_id", "item_id"))) == {"q1": ["b", "a"], "q2": ["c"]}


def test_integer_ids_that_pandas_made_floats_are_integers():
    table = pd.DataFrame({"user_id": [1, 1, 2], "item_id": [7, 8, None], "score": [2.0, 1.0, None]})
    lists = RankedLists.from_frame(table)
    assert as_dict(lists) == {1: [7, 8], 2: []}


def test_runs_and_judgments_of_ranx():
    ranx = pytest.importorskip("ranx")
    assert as_dict(read_candidates(ranx.Run(RUN))) == LISTS
    truth = read_outcomes(ranx.Qrels({"q1": {"a": 1, "b": 2}, "q2": {"c": 1}}))
    assert sorted(truth.to_frame().select("user_id", "item_id").rows()) == [
        ("q1", "a"),
        ("q1", "b"),
        ("q2", "c"),
    ]
    assert as_dict(read_candidates(RUN)) == LISTS
    assert as_dict(read_candidates(LISTS)) == LISTS


def test_trec_files(tmp_path):
    run, qrels = tmp_path / "bm25.run", tmp_path / "judged.qrels"
    run.write_text("q1 Q0 b 1 2.0 bm25\nq1\tQ0\ta\t2\t3.0\tbm25\n\nq2 Q0 c 1 1.5 bm25\n")
    assert as_dict(read_candidates(run)) == LISTS  # by score, as trec_eval does; ranks may be wrong
    qrels.write_text("q1 0 a 1\nq1 0 b 0\nq2 0 c -1\nq2 0 d 2\n")
    truth = read_outcomes(str(qrels))
    assert truth.to_frame().select("user_id", "item_id").rows() == [("q1", "a"), ("q2", "d")]
    run.write_text("q1 Q0 a 1 3.0\n")
    with pytest.raises(DataError, match=r"every line must have the fields .*got 'q1 Q0 a 1 3.0'; correct it"):
        read_candidates(run)
    run.write_text("q1 Q0 a 1 high bm25\n")
    with pytest.raises(DataError, match="score must be a number, got 'high'"):
        read_candidates(run)


def hits(*pairs):
    return {
        "took": 3,
        "hits": {"total": 9, "hits": [{"_id": i, "_score": s, "_source": {}} for i, s in pairs]},
    }


def test_answers_of_search_engines(tmp_path):
    answers = {"q1": hits(("a", 3.0), ("b", 2.0)), "q2": hits(("c", 1.5))}
    assert as_dict(read_candidates(answers)) == LISTS
    assert as_dict(read_candidates({"q2": answers["q2"]["hits"]["hits"]})) == {"q2": ["c"]}
    path = tmp_path / "hits.json"
    path.write_text(json.dumps(answers))
    assert as_dict(read_candidates(path)) == LISTS
    several = {"responses": list(answers.values())}
    assert as_dict(read_candidates(several)) == {0: ["a", "b"], 1: ["c"]}
    assert as_dict(read_candidates(answers["q1"])) == {0: ["a", "b"]}
    with pytest.raises(DataError, match="_score, got null; search without sort"):
        read_candidates({"q1": hits(("a", None))})


def test_judgments_of_zero_are_not_relevant(tmp_path):
    table = pl.DataFrame({"qid": [1, 1, 2], "docid": ["a", "b", "c"], "label": [1, 0, 2]})
    for source in (table, table.to_pandas(), table.to_arrow()):
        truth = read_outcomes(source)
        assert truth.to_frame().select("user_id", "item_id").rows() == [(1, "a"), (2, "c")]
    for ending in ("csv", "parquet"):
        path = tmp_path / f"judged.{ending}"
        getattr(table, f"write_{ending}")(path)
        assert read_outcomes(path).n_rows == 2
    assert read_outcomes({1: ["a"], 2: {"c": True, "d": False}}).n_rows == 2
    with pytest.raises(DataError, match="label must be a number or true and false"):
        read_outcomes(table.with_columns(label=pl.lit("yes")))


def test_a_judgment_without_a_number_is_refused():
    with pytest.raises(DataError, match=r"relevance must be a number, got None for 'b' of 'q'; pass 0 or 1"):
        read_outcomes({"q": {"a": 1, "b": None}})


def test_interactions_are_read_as_by_the_readers(tmp_path):
    path = tmp_path / "next.csv"
    path.write_text("customer,sku,quantity\nann,tea,2\nbob,jam,-1\n")
    truth = read_outcomes(path)
    assert truth.source is not None
    assert "negative weight" in truth.source.notes[0]
    assert truth.to_frame().select("user_id", "item_id").rows() == [("ann", "tea")]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "candidates must be a table with user, item and score"),
        ({"q1": 3}, "every query must have items, got 3"),
        ({"q1": {"a": 1.0}, 2: {"a": 1.0}}, "ids must be all strings or all integers"),
        (pl.DataFrame({"a": [1], "b": [2]}), "must have a column 'user_id'"),
    ],
)
def test_wrong_candidates_are_refused(source, message):
    with pytest.raises(DataError, match=message):
        read_candidates(source)


def test_wrong_files_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"no file at .*missing\.run; check the path"):
        read_candidates(tmp_path / "missing.run")
    bad = tmp_path / "bad.json"
    bad.write_text("[1, 2]")
    with pytest.raises(DataError, match="must hold an object with one entry per query, got a list"):
        read_candidates(bad)
    bad.write_text("{")
    with pytest.raises(DataError, match="not readable JSON"):
        read_outcomes(bad)
    with pytest.raises(DataError, match="every query must have items, got 3"):
        read_outcomes({"q1": 3})
