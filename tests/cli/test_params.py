"""Hyperparameters as flags: generated from the models, also read from the environment and from files."""

import json
from dataclasses import fields

import pytest

from shortlist.cli import main
from shortlist.cli.params import CLASSES, FACTOR_MODELS, Params, describe_parameters, find_panel, given


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


def test_flags_take_precedence_over_environment_and_file(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_N_FACTORS", "5")
    monkeypatch.setenv("SHORTLIST_SEED", "11")
    name, found = params(capsys, "--config", "bpr.toml", "--seed", "12")
    assert (name, found["n_factors"], found["seed"], found["reg"]) == ("BPRMF", 5, 12, 0.25)


def test_environment_can_set_model_and_file(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_MODEL", "Popularity")
    assert params(capsys)[0] == "Popularity"
    monkeypatch.delenv("SHORTLIST_MODEL")
    monkeypatch.setenv("SHORTLIST_CONFIG", "tuned.toml")
    name, found = params(capsys)
    assert (name, found["decay"]) == ("PersonalFrequency", 0.5)


def test_environment_can_set_columns(capsys, monkeypatch, tmp_path):
    (tmp_path / "events.csv").write_text("customer,article\na,x\na,y\nb,x\nb,z\n")
    monkeypatch.setenv("SHORTLIST_USER_ID", "customer")
    monkeypatch.setenv("SHORTLIST_ITEM_ID", "article")
    assert main(["fit", "events.csv", "--model", "Popularity", "--json"]) == 0


def test_environment_cannot_set_output_paths(capsys, monkeypatch, tmp_path):
    for name in ("OUT", "TEST", "REPORT", "QUICK", "SOURCE"):
        monkeypatch.setenv(f"SHORTLIST_{name}", "elsewhere")
    assert params(capsys, "--model", "Popularity")[0] == "Popularity"
    assert (tmp_path / "model.shortlist").is_file()
    assert not (tmp_path / "elsewhere").exists()


def test_environment_does_not_set_a_positional_model(capsys, monkeypatch):
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


def test_typos_in_the_environment_are_reported(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_N_FACTOR", "5")
    monkeypatch.setenv("SHORTLIST_SERVICE_HOST", "10.0.0.1")
    capsys.readouterr()
    assert main(["fit", "sample", "--quick", "--model", "Popularity"]) == 0
    err = capsys.readouterr().err
    assert "SHORTLIST_N_FACTOR is not a parameter and is ignored; did you mean SHORTLIST_N_FACTORS?" in err
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


def test_whole_numbers_may_be_written_as_floats(capsys):
    _, found = params(capsys, "--model", "BPRMF", "--n_factors", "4.0", "--n_epochs", "1", "--lr", "0.25")
    assert (found["n_factors"], found["lr"]) == (4, 0.25)


def test_every_parameter_of_every_model_is_a_flag():
    flags = {field.name for field in fields(Params)}
    assert flags == {"config", *(field.name for cls in CLASSES for field in fields(cls))}
    assert given(Params(n_factors=3, seed=0, config="x.toml")) == {"n_factors": 3, "seed": 0}


def test_flags_are_described_by_the_docstrings_of_the_models():
    class Model:
        """Summary.

        Parameters
        ----------
        lr, reg
            Two of
            them. And more.
        seed
            One.

        Examples
        --------
        >>> code
        """

    assert describe_parameters(Model) == {"lr": "Two of them.", "reg": "Two of them.", "seed": "One."}


def test_flags_keep_the_types_of_the_fields(capsys):
    _, found = params(capsys, "--model", "DKBPRMF", "--n_epochs", "1", "--negatives", "uniform", "--bias")
    assert (found["negatives"], found["bias"]) == ("uniform", True)
    _, found = params(capsys, "--model", "DKBPRMF", "--n_epochs", "1", "--negatives", "2.5")
    assert found["negatives"] == 2.5


def test_no_two_parameters_of_a_model_share_a_description():
    for cls in CLASSES:
        texts = [text for text in describe_parameters(cls).values() if not text.startswith("As in")]
        assert len(texts) == len(set(texts)), cls.__name__


@pytest.mark.parametrize(
    ("owners", "panel"),
    [
        ({*FACTOR_MODELS}, FACTOR_MODELS),
        ({*FACTOR_MODELS, "TwoStage"}, FACTOR_MODELS),
        ({"HRM", "DKHRM", "UPCF"}, ("HRM", "DKHRM")),
        ({"DKBPRMF", "DKHRM", "LogMF"}, ("DKBPRMF", "DKHRM")),
        ({"TwoStage"}, ("TwoStage",)),
        ({"TwoStage", "ContentProfile"}, ()),
        ({"UPCF"}, ()),
    ],
)
def test_a_flag_stands_in_the_panel_of_its_models(owners, panel):
    assert find_panel(owners) == panel


def test_help_names_the_models_of_a_flag(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["fit", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Hyperparameters of TwoStage" in text
    assert "Baskets per group. For TIFUKNN." in text
    assert "Step size of the stochastic gradient descent. TwoStage: Step size of the trees." in text
