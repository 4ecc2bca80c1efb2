"""Hyperparameters: by --set, from the environment and from files."""

import json
from dataclasses import dataclass, fields

import pytest

from shortlist.cli import main
from shortlist.cli.arguments import parse_value
from shortlist.core.options import help_texts
from shortlist.models.base import find_model_class, model_names

CLASSES = [find_model_class(name) for name in model_names() if name != "PrecomputedScores"]


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
    monkeypatch.setenv("SHORTLIST_LR", "0.3")
    name, values = params(capsys, "--config", "bpr.toml", "--seed", "12", "--set", "lr=0.2")
    assert (name, values["n_factors"], values["seed"], values["reg"]) == ("BPRMF", 5, 12, 0.25)
    assert values["lr"] == 0.2


def test_environment_can_set_model_and_file(capsys, monkeypatch):
    monkeypatch.setenv("SHORTLIST_MODEL", "Popularity")
    assert params(capsys)[0] == "Popularity"
    monkeypatch.delenv("SHORTLIST_MODEL")
    monkeypatch.setenv("SHORTLIST_CONFIG", "tuned.toml")
    name, values = params(capsys)
    assert (name, values["decay"]) == ("PersonalFrequency", 0.5)


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
    [
        ("N_FACTORS", "many", "n_factors must be a whole number"),
        ("MODEL", "Popularty", "did you mean 'Popularity'?"),
    ],
)
def test_bad_values_are_named(capsys, monkeypatch, name, value, words):
    monkeypatch.setenv(f"SHORTLIST_{name}", value)
    assert main(["fit", "sample"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("value", ["1.5", "inf", "nan", "-0.5"])
def test_whole_numbers_are_not_rounded(capsys, monkeypatch, value):
    assert main(["fit", "sample", f"--trials={value}"]) == 2
    assert f"--trials must be a whole number, got {value}" in capsys.readouterr().err
    assert main(["fit", "sample", "--set", f"n_epochs={value}"]) == 2
    assert "n_epochs must be a whole number" in capsys.readouterr().err
    monkeypatch.setenv("SHORTLIST_N_FACTORS", value)
    assert main(["fit", "sample"]) == 2
    assert "must be a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("0.25", 0.25),
        ("1e-3", 0.001),
        ("true", True),
        ("None", None),
        ("uniform", "uniform"),
        ('"4"', "4"),
        ("[1, 2]", [1, 2]),
        ("", ""),
    ],
)
def test_values_are_written_as_in_toml(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_every_parameter_of_every_model_can_be_set_and_is_listed(capsys):
    for cls in CLASSES:
        assert main(["inspect", cls.__name__, "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert list(listed) == [field.name for field in fields(cls)]
        assert all(about["help"] for about in listed.values()), cls.__name__


def test_parameters_are_described_by_the_docstrings_of_the_models():
    @dataclass
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

    assert help_texts(Model) == {"lr": "Two of them.", "reg": "Two of them.", "seed": "One."}


def test_values_keep_the_types_of_the_fields(capsys):
    words = ["--model", "DKBPRMF", "--set", "n_epochs=1"]
    _, values = params(capsys, *words, "negatives=uniform", "bias=true")
    assert (values["negatives"], values["bias"]) == ("uniform", True)
    _, values = params(capsys, *words, "--set", "negatives=2.5")
    assert values["negatives"] == 2.5


def test_no_two_parameters_of_a_model_share_a_description():
    for cls in CLASSES:
        texts = [text for text in help_texts(cls).values() if not text.startswith("As in")]
        assert len(texts) == len(set(texts)), cls.__name__


def test_model_that_differs_from_the_file_is_refused(capsys):
    assert main(["fit", "sample", "--config", "bpr.toml", "--model", "HRM"]) == 2
    assert "has parameters of BPRMF, got model HRM" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = ", "not TOML"),
        ("[params]\nlr = 1", 'model = "…"'),
        ('model = "EASE"\nscore = 1', "got 'score' too"),
        (None, "no parameter file"),
    ],
)
def test_unreadable_files_of_parameters_are_refused(tmp_path, capsys, text, words):
    path = tmp_path / "settings.toml"
    if text is not None:
        path.write_text(text)
    assert main(["fit", "sample", "--config", str(path), "--out", str(tmp_path / "m")]) == 2
    assert words in capsys.readouterr().err
