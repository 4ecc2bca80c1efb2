"""`shortlist tune` writes a file for `fit --config`; `shortlist compare` compares lists."""

import json
import shlex

import pytest

import shortlist as sl
from shortlist.auto.tune import read_tuned
from shortlist.cli import main

SMALL = ["--set", "n_factors=8", "n_epochs=2"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    place = tmp_path_factory.mktemp("tuned") / "tuned.toml"
    assert main(["tune", "sample", "--model", "BPRMF", "--trials", "2", "--out", str(place), *SMALL]) == 0
    return place


def test_fit_reads_the_file_and_flags_take_precedence(tuned, tmp_path, capsys):
    model, params = read_tuned(tuned)
    assert model == "BPRMF"
    assert main(["fit", "sample", "--config", str(tuned), "--set", "reg=0.5", "--quick", "--json",
                 "--out", str(tmp_path / "model")]) == 0  # fmt: skip
    capsys.readouterr()
    params_in_use = sl.load_model(tmp_path / "model").get_params()
    assert {name: params_in_use[name] for name in params} == params | {"reg": 0.5}


def test_model_that_differs_from_the_file_is_refused(tuned, tmp_path, capsys):
    code = main(["fit", "sample", "--config", str(tuned), "--model", "HRM", "--out", str(tmp_path / "m")])
    assert code == 2
    assert "has parameters of BPRMF, got model HRM" in capsys.readouterr().err


def test_tune_prints_trials_and_continues(tmp_path, capsys):
    command = ["tune", "sample", "--model", "PersonalFrequency", "--trials", "2", "--json",
               "--study", str(tmp_path / "s.jsonl"), "--out", str(tmp_path / "t.toml")]  # fmt: skip
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == "PersonalFrequency"
    assert "trial 2 of 2: validation F1 0." in err
    assert main(command) == 0
    again, quiet = capsys.readouterr()
    assert again == out
    assert "trial" not in quiet


def test_compare_prints_and_writes_the_same_table(tmp_path, capsys):
    lists, truth = tmp_path / "a.csv", tmp_path / "truth.csv"
    lists.write_text("user_id,item_id,rank\nu,x,1\nv,y,1\n")
    other = tmp_path / "b.csv"
    other.write_text("user_id,item_id,rank\nu,y,1\nv,y,1\n")
    truth.write_text("user_id,item_id\nu,x\nv,y\n")
    command = ["compare", f"good={lists}", str(other), "--truth", str(truth)]
    assert main([*command, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["table"]
    assert [(row["model"], row["F1"]) for row in table] == [("good", 1.0), ("b", 0.5)]
    assert main([*command, "--out", str(tmp_path / "table.md")]) == 0
    assert "| good" in (tmp_path / "table.md").read_text()
    assert main(["compare", str(lists), str(lists), "--truth", str(truth)]) == 2
    assert "different names" in capsys.readouterr().err


def test_tune_under_strict_time(tmp_path, capsys):
    command = ["tune", "sample", "--model", "PersonalFrequency", "--trials", "1", "--json",
               "--validation", "by-time", "--out", str(tmp_path / "t.toml")]  # fmt: skip
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    data = sl.load_dataset("sample")
    assert found["score"] == sl.tune("PersonalFrequency", data, n_trials=1, validation="by_time").score


def test_the_next_command_repeats_the_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user};i {item};2024-01-0{day}" for day in (1, 2, 3) for user in range(4) for item in range(3)]
    (tmp_path / "my orders.csv").write_text("Who Is It;What;day\n" + "\n".join(rows) + "\n")
    columns = ["--user_id", "Who Is It", "--item_id", "What", "--timestamp", "day", "--separator", ";"]
    command = ["tune", "my orders.csv", "--model", "PersonalFrequency", "--trials", "1", *columns]
    assert main(command) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: shortlist ")]
    words = shlex.split(line.removeprefix("Next: shortlist "))
    assert words == ["fit", "my orders.csv", "--config", "tuned.toml", *columns]
    assert main([*words, "--quick", "--out", "m"]) == 0
