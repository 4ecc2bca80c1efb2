"""Parameters from the environment: below flags, above the file, and only where they mean a parameter."""

import json

import pytest

from shortlist.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned.toml").write_text('model = "PersonalFrequency"\n[params]\ndecay = 0.5\n')
    (tmp_path / "bpr.toml").write_text('model = "BPRMF"\n[params]\nn_factors = 3\nn_epochs = 1\nreg = 0.25\n')


def params(capsys, *flags):
    capsys.readouterr()
    assert main(["fit", "sample", "--quick", "--json", *flags]) == 0
    about = json.loads(capsys.readouterr().out)
    return about["class"], about["params"]


def test_flags_win_over_the_environment_and_it_over_the_file(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_N_FACTORS", "5")
    monkeypatch.setenv("SHORTLIST_SEED", "11")
    name, found = params(capsys, "--config", "bpr.toml", "--seed", "12")
    assert (name, found["n_factors"], found["seed"], found["reg"]) == ("BPRMF", 5, 12, 0.25)


def test_model_and_file_may_come_from_it(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_MODEL", "Popularity")
    assert params(capsys)[0] == "Popularity"
    monkeypatch.delenv("SHORTLIST_MODEL")
    monkeypatch.setenv("SHORTLIST_CONFIG", "tuned.toml")
    name, found = params(capsys)
    assert (name, found["decay"]) == ("PersonalFrequency", 0.5)


def test_columns_may_come_from_it(capsys, monkeypatch, tmp_path):
    (tmp_path / "events.csv").write_text("wer,was\na,x\na,y\nb,x\nb,z\n")
    monkeypatch.setenv("SHORTLIST_USER_ID", "wer")
    monkeypatch.setenv("SHORTLIST_ITEM_ID", "was")
    assert main(["fit", "events.csv", "--model", "Popularity", "--json"]) == 0


def test_where_files_go_is_said_aloud(capsys, monkeypatch, tmp_path):
    for name in ("OUT", "TEST", "REPORT", "QUICK", "SET", "SOURCE"):
        monkeypatch.setenv(f"SHORTLIST_{name}", "elsewhere")
    assert params(capsys, "--model", "Popularity")[0] == "Popularity"
    assert (tmp_path / "model").is_file()
    assert not (tmp_path / "elsewhere").exists()


def test_a_positional_model_is_no_parameter(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_MODEL", "Popularity")
    assert main(["inspect"]) == 2
    assert "MODEL requires an argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("N_FACTORS", "many", "SHORTLIST_N_FACTORS"), ("MODEL", "Popularty", 'Did you mean "Popularity"?')],
)
def test_bad_values_are_named(capsys, monkeypatch, name, value, words):
    monkeypatch.setenv(f"SHORTLIST_{name}", value)
    assert main(["fit", "sample"]) == 2
    assert words in capsys.readouterr().err


def test_slips_are_pointed_out_and_strangers_are_not(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_N_FACTOR", "5")
    monkeypatch.setenv("SHORTLIST_SERVICE_HOST", "10.0.0.1")
    capsys.readouterr()
    assert main(["fit", "sample", "--quick", "--model", "Popularity"]) == 0
    err = capsys.readouterr().err
    assert "SHORTLIST_N_FACTOR is no parameter and is left alone; did you mean SHORTLIST_N_FACTORS?" in err
    assert "SERVICE" not in err


@pytest.mark.parametrize("value", ["1.5", "inf", "nan", "-0.5"])
def test_whole_numbers_are_not_rounded(capsys, monkeypatch, value):
    for flag in ("--budget", "--n_epochs"):
        assert main(["fit", "sample", f"{flag}={value}"]) == 2
        assert f"{flag} must be a whole number, got {value}" in capsys.readouterr().err
    assert main(["reproduce", f"--seeds={value}"]) == 2
    monkeypatch.setenv("SHORTLIST_N_FACTORS", value)
    assert main(["fit", "sample"]) == 2
    assert "must be a whole number" in capsys.readouterr().err


def test_numbers_that_only_look_broken_are_taken(capsys):
    _, found = params(capsys, "--model", "BPRMF", "--n_factors", "4.0", "--n_epochs", "1", "--lr", "0.25")
    assert (found["n_factors"], found["lr"]) == (4, 0.25)
