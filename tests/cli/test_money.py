"""Money and everyone on the command line: fit, evaluate, compare and the report."""

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.errors import DataWarning

FIT = ["fit", "sample", "--model", "PersonalFrequency"]


def run(capsys, *words):
    capsys.readouterr()
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model for everyone within a week, its test set, and its lists beside ten for everyone."""
    found = tmp_path_factory.mktemp("money")
    flags = ["--gain", "1", "--cost", "0.05", "--users", "everyone", "--horizon", "7d"]
    assert main([*FIT, *flags, "--test", str(found / "held.parquet"), "--out", str(found / "m")]) == 0
    assert main(["recommend", str(found / "m"), "--out", str(found / "lists.parquet")]) == 0
    assert main(["recommend", str(found / "m"), "--N", "10", "--out", str(found / "ten.parquet")]) == 0
    return found


def test_report_of_money_speaks_of_money(tmp_path, capsys):
    """F1 says that a few items for everyone are better; a margin of 1.50 and a cost of 0.02 do not."""
    page = tmp_path / "report.html"
    flags = ["--gain", "1.5", "--cost", "0.02", "--users", "buyers", "--report", page]
    assert run(capsys, *FIT, *flags, "--cutoff", "ExpectedValue", "--out", tmp_path / "m")[0] == 0
    title = page.read_text().partition("<h1>")[2].partition("</h1>")[0]
    assert title.startswith("These lists earn more than ")
    assert "match" not in title


def test_value_chooses_the_model_and_says_what_was_earned(tmp_path, capsys):
    words = ["fit", "sample", "--gain", "1", "--cost", "0.1", "--users", "buyers"]
    code, out, err = run(capsys, *words, "--model", "PersonalFrequency", "--out", tmp_path / "m", "--json")
    assert code == 0, err
    about = json.loads(out)
    assert about["cutoff"] == "ExpectedValue"
    names = [row["name"] for row in about["held_out"]["baselines"]]
    assert names[0] == "10 for everyone"
    assert names[1].startswith("best N (")
    report = sl.load_model(tmp_path / "m").selection_
    assert (report.metric, report.gain, report.cost, report.users) == ("value", 1.0, 0.1, "buyers")
    assert "Earned per 1,000 users on users that took no part in choosing" in str(report)


def test_a_cutoff_for_money_is_chosen_by_money(tmp_path, capsys):
    words = ["fit", "sample", "--model", "PersonalFrequency", "--cutoff", "ExpectedValue"]
    _, _, err = run(capsys, *words, "--out", tmp_path / "m")
    assert "--users everyone --horizon 7d" in " ".join(err.split())
    report, cutoff = sl.load_model(tmp_path / "m").selection_, sl.cutoff.ExpectedValue()
    assert (report.metric, report.gain, report.cost) == ("value", cutoff.gain, cutoff.cost)


def test_buyers_only_warns_and_names_the_flag(tmp_path, capsys):
    _, _, err = run(capsys, *FIT, "--gain", "1", "--cost", "0.1", "--out", tmp_path / "m")
    assert "--users everyone --horizon 7d" in " ".join(err.split())
    _, _, err = run(
        capsys, *FIT, "--gain", "1", "--cost", "0.1", "--users", "buyers", "--out", tmp_path / "m"
    )
    assert "everyone" not in err
    _, _, err = run(capsys, "recommend", tmp_path / "m", "--user", "u1", "--gain", "2", "--cost", "0.1")
    assert "--users everyone --horizon 7d" in " ".join(err.split())


def test_the_last_week_is_held_out(folder):
    held = pl.read_parquet(folder / "held.parquet")
    data = sl.load_dataset("sample")
    split = sl.split.last_period(data, "7d")
    assert len(held) == split.test.n_rows
    model = sl.load_model(folder / "m")
    assert model.history_.n_rows == split.train_valid.n_rows
    assert model.selection_.users == "everyone"
    assert model.selection_.horizon == "604800s"


def test_evaluation_of_everyone(folder, capsys):
    money = ["--gain", "1", "--cost", "0.05"]
    words = ["evaluate", folder / "lists.parquet", "--truth", folder / "held.parquet", *money, "--json"]
    code, out, _ = run(capsys, *words)
    assert code == 0
    buyers = json.loads(out)
    everyone = json.loads(run(capsys, *words, "--users", "everyone")[1])
    assert everyone["users"] > buyers["users"]
    assert everyone["money"]["per_1000_users"] < buyers["money"]["per_1000_users"]
    text = run(capsys, *words[:-1])[1]
    assert "earned per 1,000 users" in text
    lists = [folder / "ten.parquet", folder / "lists.parquet"]
    words = ["evaluate", *lists, "--truth", folder / "held.parquet", *money, "--users", "everyone", "--json"]
    table = json.loads(run(capsys, *words)[1])["table"]
    assert table[1]["earned per 1,000 users"] == pytest.approx(everyone["money"]["per_1000_users"])
    assert table[0]["earned per 1,000 users"] < table[1]["earned per 1,000 users"]


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--metric", "value"], ["--metric value", "--gain"]),
        (["--users", "everyone"], ["everyone", "horizon"]),
        (["--horizon", "soon"], ["horizon", "'soon'", "1d"]),
        (["--horizon", "7d", "--validation", "by-time"], ["horizon", "validation"]),
        (["--horizon", "7d", "--quick"], ["--horizon", "--quick"]),
        (["--horizon", "900d"], ["horizon", "900"]),
        (["--gain", "-1", "--cost", "1"], ["gain", "-1"]),
    ],
)
def test_contradictions_are_refused(tmp_path, capsys, flags, parts):
    code, _, err = run(capsys, *FIT, *flags, "--out", tmp_path / "m")
    assert code == 2
    assert all(part in " ".join(err.split()) for part in parts), err
    assert not (tmp_path / "m").exists()


def test_fit_in_python_warns_too():
    data = sl.load_dataset("sample")
    with pytest.warns(DataWarning, match="users='everyone' and horizon='7d'"):
        sl.fit(data, models="Popularity", budget="quick", gain=1, cost=0.1)
