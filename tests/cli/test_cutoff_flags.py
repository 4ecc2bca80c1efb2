"""Flags that leave lists empty, users by name, and files in the wrong order, as typed on a command line."""

import json
import re

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main

FIT = ["fit", "sample", "--model", "PersonalFrequency"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models with ExpectedF1, FixedN, a guarantee and no cutoff; lists and the held-out baskets."""
    found = tmp_path_factory.mktemp("stopping")
    for name, flags in {
        "f1": ["--test", str(found / "held.parquet")],
        "fixed": ["--cutoff", "FixedN"],
        "guarantee": ["--min_precision", "0.1", "--confidence", "0.9"],
        "none": ["--cutoff", "none"],
    }.items():
        assert main([*FIT, "--out", str(found / name), *flags]) == 0
    for ending in ("parquet", "csv", "jsonl"):
        assert main(["recommend", str(found / "f1"), "--out", str(found / f"lists.{ending}")]) == 0
    return found


def run(capsys, *words):
    capsys.readouterr()
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def refuse(capsys, match, *words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert re.search(match, err), err


# ------------------------------------------------------------------ fit
@pytest.mark.parametrize(
    ("flags", "cutoff", "params"),
    [
        (["--coverage", "0.5"], "ExpectedF1", {"coverage": 0.5}),
        (["--coverage", "0.5", "--metric", "ndcg"], "ExpectedNDCG", {"coverage": 0.5}),
        (["--coverage", "0.5", "--cutoff", "Threshold"], "Threshold", {"coverage": 0.5}),
        (["--floor", "0.2"], "ExpectedF1", {"floor": 0.2}),
        (["--gain", "3", "--cost", "1"], "ExpectedValue", {"gain": 3, "cost": 1}),
        (["--cost", "0.5"], "ExpectedValue", {"gain": 1.0, "cost": 0.5}),
        (["--min_precision", "0.1"], "Guarantee", {"min_precision": 0.1, "confidence": 0.95}),
        (["--cutoff", "ExpectedF1"], "ExpectedF1", {}),
        (["--cutoff", "ExpectedValue"], "ExpectedValue", {}),
    ],
)
def test_fit_builds_the_cutoff(tmp_path, capsys, flags, cutoff, params):
    code, out, _ = run(capsys, *FIT, "--out", tmp_path / "m", *flags)
    assert code == 0
    found = sl.load_model(tmp_path / "m").cutoff_
    assert type(found).__name__ == cutoff
    assert {name: getattr(found, name) for name in params} == params
    assert re.search(r"\d+ of 300 users get a list", out)


def test_fit_says_who_gets_nothing(tmp_path, capsys):
    code, out, _ = run(capsys, *FIT, "--out", tmp_path / "m", "--coverage", "0.4", "--json")
    assert code == 0
    assert 150 < json.loads(out)["empty_lists"]["below_floor"] < 210
    code, out, _ = run(capsys, *FIT, "--out", tmp_path / "m", "--coverage", "0.4")
    assert re.search(r"get none: \d+ below_floor \(even the best list", out)


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (["--coverage", "0.5", "--floor", "0.1"], "--coverage and --floor exclude each other"),
        (["--gain", "2", "--min_precision", "0.1"], "--gain and --min_precision exclude each other"),
        (["--confidence", "0.9"], "--confidence needs the precision to guarantee.*--min_precision"),
        (["--cutoff", "Guarantee"], "--cutoff Guarantee needs .*--min_precision"),
        (["--cutoff", "FixedN", "--floor", "0.1"], "--floor belongs to ExpectedF1 or ExpectedNDCG"),
        (["--cutoff", "none", "--gain", "2"], "--gain belongs to ExpectedValue, got --cutoff none"),
        (["--quick", "--coverage", "0.5"], "--coverage needs validation, which --quick skips"),
        (["--coverage", "7"], "coverage must be a number between 0 and 1, got 7"),
        (["--cost", "-1"], "cost must be a number"),
        (["--min_precision", "0.99"], "no threshold guarantees .*lower --min_precision or --confidence"),
        (["--cutoff", "best"], "--cutoff must be auto, none or one of .*ExpectedF1"),
    ],
)
def test_fit_refuses_contradictions(tmp_path, capsys, flags, match):
    refuse(capsys, match, *FIT, "--out", tmp_path / "m", *flags)
    assert not (tmp_path / "m").exists()


def test_python_takes_every_cutoff():
    data = sl.load_dataset("sample")
    for cutoff in (
        sl.cutoff.ExpectedF1(coverage=0.5),
        sl.cutoff.ExpectedNDCG(floor=0.2),
        sl.cutoff.ExpectedValue(gain=3.0, cost=1.0),
        sl.cutoff.Guarantee(min_precision=0.1, confidence=0.9),
        sl.cutoff.Threshold(coverage=0.5),
    ):
        model = sl.fit(data, models="PersonalFrequency", cutoff=cutoff, users="buyers")
        assert model.cutoff_.get_params() == cutoff.get_params()
        assert model.recommend().cover_ratio > 0.2


# ------------------------------------------------------------------ recommend
def test_recommend_adjusts_the_saved_cutoff(folder, capsys):
    model = sl.load_model(folder / "f1")
    for flags, cutoff in (
        (["--coverage", "0.5"], model.cutoff_.with_coverage(0.5)),
        (["--floor", "0.3"], model.cutoff_.with_floor(0.3)),
    ):
        code, out, _ = run(capsys, "recommend", folder / "f1", *flags, "--json")
        assert code == 0
        shown = [(one["user_id"], one["items"], one["reason"]) for one in json.loads(out)]
        assert shown == [(one.user_id, one.items, one.reason) for one in model.recommend(cutoff=cutoff)]
        assert {reason for _, items, reason in shown if not items} == {"below_floor"}


def test_coverage_matches_a_cutoff_that_was_fitted_with_it(folder):
    split = sl.split.last_basket(sl.load_dataset("sample"))
    lists = sl.PersonalFrequency().fit(split.train).recommend(N=50)
    fitted = sl.cutoff.ExpectedF1().fit(lists, split.valid, history=split.train)
    for coverage in (0.0, 0.2, 0.5, 0.9, 1.0):
        asked = sl.cutoff.ExpectedF1(coverage=coverage).fit(lists, split.valid, history=split.train)
        assert fitted.with_coverage(coverage).floor_ == asked.floor_
    assert fitted.floor_ == fitted.utility_quantiles_.min()  # the cutoff itself is unchanged


def test_recommend_prices_items_with_the_saved_probabilities(folder, capsys):
    code, out, _ = run(capsys, "recommend", folder / "f1", "--gain", "3", "--cost", "1", "--json")
    assert code == 0
    lists = json.loads(out)
    assert {one["reason"] for one in lists} == {"value"}
    assert all(p > 0.25 for one in lists for p in one["probabilities"])
    assert any(not one["items"] for one in lists)


@pytest.mark.parametrize(
    ("model", "flags", "match"),
    [
        ("fixed", ["--coverage", "0.5"], "--coverage needs .*got FixedN; run shortlist fit --coverage 0.5"),
        ("fixed", ["--gain", "3"], "--gain and --cost need probabilities, got FixedN; run shortlist fit"),
        ("f1", ["--min_precision", "0.1"], "needs a saved guarantee .*got ExpectedF1; run shortlist fit"),
        ("guarantee", ["--min_precision", "0.3"], "needs a saved guarantee .*got min_precision=0.1"),
        ("guarantee", ["--min_precision", "0.1", "--confidence", "0.99"], "needs a saved guarantee"),
        ("f1", ["--N", "3", "--floor", "0.1"], "--N and --floor both set the length"),
        ("f1", ["--N", "3", "--cutoff", "boundary"], "--N and --cutoff both set the length"),
        (
            "f1",
            ["--cutoff", "boundary"],
            "--cutoff boundary needs a model with a boundary, which PersonalFrequency has not",
        ),
        ("f1", ["--floor", "0.1", "--coverage", "0.1"], "exclude each other"),
        ("f1", ["--cutoff", "ExpectedF1"], "--cutoff must be boundary or a file .*shortlist fit --cutoff"),
        ("none", [], "has no cutoff; pass --N 10 .*shortlist fit with --cutoff ExpectedF1"),
        ("f1", ["--at", "tomorrow"], "at must be a date.*'tomorrow'"),
        ("f1", ["--N", "0"], "N must be a whole number of at least 1, got 0"),
        ("f1", ["--min_items", "5", "--max_items", "3"], "min_items must not exceed"),
    ],
)
def test_recommend_speaks_of_flags(folder, capsys, model, flags, match):
    refuse(capsys, match, "recommend", folder / model, *flags)


def test_a_saved_guarantee_is_used(folder, capsys):
    code, out, _ = run(capsys, "recommend", folder / "guarantee", "--min_precision", "0.1", "--json")
    assert code == 0
    assert {one["reason"] for one in json.loads(out)} == {"guarantee"}


def test_written_lists_come_with_a_count_of_empty_ones(folder, tmp_path, capsys):
    for ending in ("parquet", "csv", "jsonl"):
        out = tmp_path / f"lists.{ending}"
        _, text, _ = run(capsys, "recommend", folder / "f1", "--floor", "0.3", "--out", out)
        empty = (sl.RankedLists.read(out).lengths == 0).sum()
        assert f"{300 - empty} of 300 users get a list; {empty} get none: {empty} below_floor" in text
    _, text, _ = run(capsys, "recommend", folder / "f1", "--floor", "0.3")
    assert f"{empty} get none: {empty} below_floor" in text


# ------------------------------------------------------------------ users
def test_several_users_after_one_flag(folder, capsys):
    code, out, _ = run(capsys, "recommend", folder / "f1", "--user", "u1", "u2", "--json")
    assert code == 0
    assert [one["user_id"] for one in json.loads(out)] == ["u1", "u2"]
    code, out, _ = run(capsys, "recommend", folder / "f1", "--user", "u1", "--user", "u2", "--json")
    assert [one["user_id"] for one in json.loads(out)] == ["u1", "u2"]
    refuse(capsys, "write the file of the model first", "recommend", "--user", "u1", folder / "f1")


def test_unknown_users_are_named(folder, capsys):
    code, out, err = run(capsys, "recommend", folder / "f1", "--user", "u1", "eve", "--json")
    assert code == 0
    assert [one["reason"] for one in json.loads(out)] == ["utility", "unknown_user"]
    assert err == "warning: unknown user 'eve': no list\n"
    refuse(capsys, "got the unknown users 'eve', 'bob'", "recommend", folder / "f1", "--user", "eve", "bob")
    code, *_ = run(capsys, "recommend", folder / "f1", "--user", "eve", "--fallback", "popular")
    assert code == 0


def test_models_without_lists_say_so(tmp_path, capsys):
    words = [
        "fit",
        "sample",
        "--model",
        "DKBPRMF",
        "--set",
        "n_epochs=2",
        "boundary=learned",
        "t=9",
        "--cutoff",
        "none",
        "--out",
        tmp_path / "m",
    ]
    code, out, err = run(capsys, *words)
    assert code == 0
    assert re.search(r"^warning: all \d+ lists of DKBPRMF are empty", err, re.MULTILINE)
    assert "0 of 300 users get a list" in out


# ------------------------------------------------------------------ evaluate
def test_truth_of_other_users_is_refused(folder, capsys):
    other = folder / "other.csv"
    pl.DataFrame({"user_id": ["x"], "item_id": ["i1"], "timestamp": [1]}).write_csv(other)
    refuse(capsys, "lists of other users", "evaluate", folder / "lists.csv", "--truth", other)


def test_a_flag_for_users_without_a_user_is_refused(folder, capsys):
    refuse(capsys, "--user needs one or more user ids, got none", "recommend", folder / "f1", "--user")


def test_the_stopping_rule_is_printed_with_its_settings(tmp_path, capsys):
    saved = tmp_path / "m.shortlist"
    _, out, _ = run(capsys, *FIT, "--cutoff", "FixedN", "--out", saved)
    N = sl.load_model(saved).cutoff_.N_
    assert f"Cutoff: FixedN() fitted: N={N}" in out
    _, out, _ = run(capsys, *FIT, "--coverage", "0.5", "--out", saved)
    assert "ExpectedF1(coverage=0.5)" in out
    assert "not compared with other cutoffs" in out
    _, out, _ = run(capsys, "inspect", saved, "--json")
    about = json.loads(out)
    assert about["cutoff"] == "ExpectedF1"
    assert about["stopping_rule"].startswith("ExpectedF1(coverage=0.5) fitted: ")


def test_no_list_is_worth_its_cost(folder, capsys):
    _, _, err = run(capsys, "recommend", folder / "f1", "--gain", "1", "--cost", "100")
    assert "lower the cost or raise the gain" in err
    assert "floor" not in err


def test_a_model_is_not_a_file_of_lists(folder, capsys):
    held, saved = folder / "held.parquet", folder / "copy.shortlist"
    saved.write_bytes((folder / "f1").read_bytes())
    advice = "shortlist recommend .*copy.shortlist --out lists.parquet"
    refuse(capsys, advice, "evaluate", saved, "--truth", held)
    refuse(capsys, "it is a saved model; pass the file with the interactions", "fit", saved)


def test_the_file_of_lists_with_another_column_is_named(folder, tmp_path, capsys):
    own = tmp_path / "own.csv"
    pl.read_csv(folder / "lists.csv").rename({"user_id": "Shopper Hash"}).write_csv(own)
    words = "own.csv: .* did you mean 'Shopper Hash'; rename the column"
    refuse(capsys, words, "evaluate", own, folder / "lists.csv", "--truth", folder / "held.parquet")
    _, _, err = run(capsys, "evaluate", own, "--truth", folder / "held.parquet")
    assert "--user_id" not in err
