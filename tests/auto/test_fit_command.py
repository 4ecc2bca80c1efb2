"""`shortlist fit`: what is decided for one model, what is warned of, and how many files a reader follows."""

import json

import numpy as np
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.errors import DataWarning
from tests.auto.test_choice import noise
from tests.test_walk import files_of


@pytest.fixture
def source(tmp_path):
    noise().to_frame().write_csv(tmp_path / "noise.csv")
    return tmp_path / "noise.csv"


def fit(capsys, source, *words):
    """The model that was saved, as JSON."""
    code = main(["fit", str(source), "--out", str(source.with_name("m")), "--json", *words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out), err


def test_a_cutoff_of_one_model_is_judged_by_users_who_did_not_choose_it(source, capsys):
    """The best fixed N stays unless the cutoff is better on them, also for a model that was named."""
    about, _ = fit(capsys, source, "--model", "PersonalFrequency")
    assert "on users who took no part in choosing it" in about["reason"]
    fixed = about["held_out"]["baselines"][1]
    assert fixed["name"].startswith("best N (")
    assert (about["cutoff"] == "FixedN") == (fixed["difference"] <= 0)
    named, _ = fit(capsys, source, "--model", "PersonalFrequency", "--cutoff", "ExpectedF1")
    assert named["cutoff"] == "ExpectedF1", "a cutoff that was named is kept"
    assert named["reason"].startswith("not compared with other cutoffs")


def test_a_warning_knows_the_unit_of_what_it_warns_about(source):
    """Lists that earn little are no poor prediction, and no list earns more than nothing at such a price."""
    with pytest.warns(DataWarning, match=r"no lists earn more than showing nothing \(earned per 1,000 users"):
        sl.fit(noise(), models="PersonalFrequency", gain=0.001, cost=1.0, users="buyers")
    sl.fit(noise(), models="PersonalFrequency", gain=0.001, cost=0.0, users="buyers")  # little, but no F1


def test_a_model_that_predicts_nothing_is_said_to(capsys):
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{rng.integers(10**6)}", 86_400 * day) for u in range(60) for day in range(4)]
    with pytest.warns(DataWarning, match="predicts almost nothing"):
        sl.fit(sl.Interactions.from_tuples(rows), models="PersonalFrequency")


def test_files_entered_by_a_fit_of_one_model(source, capsys):
    def call():
        words = ["--model", "PersonalFrequency", "--out", str(source.with_name("m"))]
        assert main(["fit", str(source), *words]) == 0

    entered = files_of(call)
    assert len(entered) <= 66, sorted(entered)
