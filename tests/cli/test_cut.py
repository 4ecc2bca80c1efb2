"""`shortlist cut`: the same cutoff and lists as sl.cut, files in and out, and sentences for wrong flags."""

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main

from ..auto.test_cut import tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut")
    for name, seed in (("today", 0), ("tomorrow", 1)):
        candidates, truth = tables(n_lists=60, seed=seed)
        candidates.write_parquet(folder / f"{name}.parquet")
        truth.write_csv(folder / f"{name}_truth.csv")
    return folder


def run(*words):
    return main(["cut", *map(str, words)])


def test_command_gives_what_the_library_gives(folder, capsys):
    files = {name: folder / name for name in ("lists.parquet", "cut.shortlist", "report.html")}
    words = ["--truth", folder / "today_truth.csv", "--new", folder / "tomorrow.parquet"]
    words += [
        "--out",
        files["lists.parquet"],
        "--save",
        files["cut.shortlist"],
        "--report",
        files["report.html"],
    ]
    assert run(folder / "today.parquet", *words, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    candidates, later = (pl.read_parquet(folder / f"{name}.parquet") for name in ("today", "tomorrow"))
    expected = sl.cut(candidates, pl.read_csv(folder / "today_truth.csv"), new=later)
    assert about["gain"] == pytest.approx(expected.gain)
    assert about["gain_low"] < about["gain"] < about["gain_high"]
    assert sl.RankedLists.read(files["lists.parquet"]).to_frame().equals(expected.lists.to_frame())
    page = files["report.html"].read_text()
    assert "chosen and fitted on other users" in page
    assert f"{expected.report.f1:.4f}" in page
    assert "today.parquet" in page

    again = folder / "again.csv"
    assert run(folder / "tomorrow.parquet", "--cutoff", files["cut.shortlist"], "--out", again) == 0
    assert sl.RankedLists.read(again).lengths.tolist() == expected.lists.lengths.tolist()
    assert "lists (0 empty) written to" in capsys.readouterr().err


def test_trec_files_and_text_output(folder, capsys):
    candidates, truth = (pl.read_parquet(folder / "today.parquet"), pl.read_csv(folder / "today_truth.csv"))
    rows = candidates.with_columns(
        pl.lit("Q0").alias("iteration"), pl.lit(0).alias("rank"), pl.lit("x").alias("tag")
    )
    columns = ["query_id", "iteration", "doc_id", "rank", "score", "tag"]
    rows.select(columns).write_csv(folder / "today.run", separator=" ", include_header=False)
    truth.select("query_id", pl.lit(0).alias("iteration"), "doc_id", pl.lit(1).alias("relevance")).write_csv(
        folder / "today.qrels", separator=" ", include_header=False
    )
    assert run(folder / "today.run", "--truth", folder / "today.qrels") == 0
    captured = capsys.readouterr()
    assert "over the best fixed N (95% interval" in captured.out
    assert "60 lists, 1,800 candidates" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --truth to choose a cutoff, or --cutoff to use one, got neither"),
        (["--truth", "a.csv", "--cutoff", "b.shortlist"], "got both"),
        (["--cutoff", "b.shortlist"], "--cutoff needs --out"),
        (["--cutoff", "b.shortlist", "--save", "c.shortlist"], "--save needs --truth, got --cutoff"),
        (["--truth", "missing.csv"], "missing.csv"),
    ],
)
def test_wrong_flags_are_explained(folder, capsys, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    assert run("today.parquet", *words) == 2
    assert message in capsys.readouterr().err


def test_column_without_a_known_name_is_named(folder, capsys):
    pl.DataFrame({"who": ["a"], "what": ["b"], "score": [1.0]}).write_csv(folder / "odd.csv")
    assert run(folder / "odd.csv", "--truth", folder / "today_truth.csv") == 2
    assert "odd.csv: the table must have a column 'user_id'" in capsys.readouterr().err


def test_aims_are_passed_on(folder, capsys):
    words = ["--truth", folder / "today_truth.csv", "--gain", "3", "--cost", "1", "--users", "everyone"]
    assert run(folder / "today.parquet", *words, "--keep_order", "--json") == 0
    about = json.loads(capsys.readouterr().out)
    candidates, truth = pl.read_parquet(folder / "today.parquet"), pl.read_csv(folder / "today_truth.csv")
    expected = sl.cut(candidates, truth, gain=3, cost=1, users="everyone", keep_order=True)
    assert about["metric"] == "value"
    assert about["score"] == pytest.approx(expected.report.mean("value"))
    assert run(folder / "today.parquet", "--cutoff", "c.shortlist", "--out", "x.csv", "--gain", "3") == 2
    assert "--gain needs --truth" in capsys.readouterr().err


def test_sizes_are_a_column_of_the_candidates(folder, tmp_path, capsys):
    candidates = pl.read_parquet(folder / "today.parquet")
    sized = candidates.with_columns(tokens=100 + candidates["doc_id"].str.slice(1).cast(pl.Int64))
    sized.write_parquet(tmp_path / "sized.parquet")
    words = ["--truth", folder / "today_truth.csv", "--sizes", "tokens", "--max_size", "500"]
    files = ["--save", tmp_path / "cut.shortlist", "--out", tmp_path / "lists.parquet"]
    assert run(tmp_path / "sized.parquet", *words, *files) == 0
    assert "Mean size of a list" in capsys.readouterr().out
    shown = sl.RankedLists.read(tmp_path / "lists.parquet").to_frame().filter(pl.col("rank") > 0)
    sizes = shown.join(sized, left_on=["user_id", "item_id"], right_on=["query_id", "doc_id"])
    assert sizes.group_by("user_id").agg(pl.col("tokens").sum())["tokens"].max() <= 500
    again = ["--cutoff", tmp_path / "cut.shortlist", "--sizes", "tokens", "--out", tmp_path / "again.parquet"]
    assert run(tmp_path / "sized.parquet", *again) == 0
