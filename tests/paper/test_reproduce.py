"""reproduce on the sample: end to end, resumed after an interruption, with a report that loads nothing."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from shortlist.cli import main
from shortlist.errors import ConfigError
from shortlist.paper import protocol, variants
from shortlist.paper import reproduce as module
from shortlist.paper.experiment import Experiment, Runner, pack_values, unpack_values
from shortlist.paper.protocol import COVERED, FAILS, HOLDS
from shortlist.paper.reproduce import reproduce
from shortlist.paper.variants import FULL, QUICK, Workload

TINY = Workload(
    n_trials=2, epochs=(1, 2), cover_steps=1, valid_users=80, users=120, n_factors=8, sweep_seeds=1
)
FILES = ("results.json", "machine.json", "report.html", "table.md")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = tmp_path_factory.mktemp("done")
    results = reproduce("sample", out=place, n_seeds=2, budget=TINY, n_jobs=2)
    return place, results["datasets"]["sample"]


def test_all_files_are_written(done):
    place, _ = done
    assert {path.name for path in place.iterdir()} == {*FILES, "cache"}
    kinds = {path.name.partition("-")[0] for path in (place / "cache").iterdir()}
    assert kinds == {"trial", "variant", "sweep"}


def test_every_claim_has_a_verdict_and_every_dynamic_row_its_tests(done):
    _, found = done
    claims = found["claims"]
    assert list(claims["chosen"]) == list(protocol.MODELS)
    assert {each["verdict"] for each in claims["verdicts"]} <= {HOLDS, COVERED, FAILS}
    assert all(len(curve["f1"]) == 20 for curve in claims["figure2"].values())
    for row in found["rows"]:
        if row["model"] in protocol.ORIGINAL and row["selected_by"] != "ndcg":
            names = {"f1": {"f1_20", "ndcg_20", "f1_all_20"}, "harmonic": {"harmonic_20"}}
            assert set(row["tests"]) == names[row["selected_by"]]
            assert all(0 < test["p"] <= test["p_holm"] <= 1 for test in row["tests"].values())
        else:
            assert "tests" not in row


def test_figures_of_one_row_are_consistent(done):
    """The mean over all users is that over covered users times Cover-Ratio; harmonic F1 is not smaller."""
    _, found = done
    for row in found["rows"]:
        figures = {name: each["mean"] for name, each in row["figures"].items()}
        if row["model"] in protocol.ORIGINAL:
            if row["figures"]["cover_ratio"]["sd"] == 0:
                assert figures["f1_all_20"] == pytest.approx(figures["f1_20"] * figures["cover_ratio"])
            assert figures["harmonic_20"] >= figures["f1_20"] - 1e-9
        elif row["N"]["f1"] == row["N"]["harmonic"]:
            assert figures["harmonic"] >= figures["f1"] - 1e-9
            assert figures["ndcg_own"] >= 0


def test_interrupted_run_resumes_with_identical_results(done, tmp_path, monkeypatch):
    place, _ = done
    files = sorted((place / "cache").iterdir())
    kept = files[::2]
    (tmp_path / "cache").mkdir()
    for path in kept:
        shutil.copy(path, tmp_path / "cache")
    damaged = next(path for path in kept if path.name.startswith("variant"))
    (tmp_path / "cache" / damaged.name).write_text(damaged.read_text()[:100])
    lines = []
    reproduce("sample", out=tmp_path, n_seeds=2, budget=TINY, n_jobs=1, progress=lines.append)
    assert (tmp_path / "results.json").read_bytes() == (place / "results.json").read_bytes()
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {path.name for path in files}
    assert len(lines) == len(files) - len(kept) + 1
    for name in ("evaluate_rows", "evaluate_trial", "evaluate_sweep"):
        monkeypatch.setattr(variants, name, lambda *_: pytest.fail("ran again"))
    reproduce("sample", out=tmp_path, n_seeds=2, budget=TINY, n_jobs=1)
    assert (tmp_path / "results.json").read_bytes() == (place / "results.json").read_bytes()


def test_report_loads_nothing(done):
    place, _ = done
    page = (place / "report.html").read_text()
    assert not re.search(r"(src|href)=|url\(|@import|<script|https?://", page)
    assert page.count('<svg class="chart"') == 12 + 1
    for words in ("Table 1", "Figure 1", "Figure 2", "harmonic F1", "prefers-color-scheme: dark"):
        assert words in page


def test_table_has_the_variants_side_by_side(done):
    place, found = done
    lines = (place / "table.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert rows[0].count("item biases") == 2 * len(found["readings"])
    assert len(rows) - 2 == 5 * 4 + 2 * 10
    assert any(line.startswith("2 trials per model") for line in lines)


def test_sample_of_users_keeps_all_their_rows():
    whole, part = Experiment.load("sample").split.data, Experiment.load("sample", 50, seed=1).split.data
    assert part.active_users.size == 50
    for user in part.active_users[:5]:
        assert part.indptr[user + 1] - part.indptr[user] == whole.indptr[user + 1] - whole.indptr[user]


def test_command_line_prints_verdicts(tmp_path, capsys, monkeypatch):
    verdict = {"claim": "K beats N.", "verdict": HOLDS, "numbers": ""}
    reading = {"f1": "harmonic", "loss": "negative sampling", "bias": None}
    reading |= {"own_N": True, "cap": 20, "reached": 21, "cells": 24, "distance": 0.3}
    given = {}

    def fake_reproduce(dataset, **settings):
        given.update(settings, dataset=dataset)
        settings["progress"]("one result")
        return {
            "datasets": {"sample": {"claims": {"verdicts": [verdict]}}},
            "best": {"harmonic, most cells": reading},
        }

    monkeypatch.setattr(module, "reproduce", fake_reproduce)
    assert main(["reproduce", "--dataset", "sample", "--quick", "--out", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["verdicts"] == {"sample": [verdict]}
    assert found["best"]["harmonic, most cells"]["reached"] == 21
    assert "one result" in err
    assert (given["dataset"], given["budget"], given["n_seeds"]) == ("sample", QUICK, 2)
    assert main(["reproduce", "--dataset", "sample", "--out", str(tmp_path), "--trials", "3"]) == 0
    out = capsys.readouterr().out
    assert "K beats N." in out
    assert "21 of 24" in out
    assert (given["budget"], given["n_seeds"]) == (replace(FULL, n_trials=3), 5)


def test_unknown_dataset_raises(tmp_path):
    with pytest.raises(ConfigError, match="ml-100k"):
        reproduce("netflix", out=tmp_path)


# ---------------------------------------------------------------------- stored results
def test_results_are_computed_once_and_damaged_files_again(tmp_path):
    runner, calls = Runner(Experiment.load("sample", 50), tmp_path), []

    def compute(experiment, seed):
        calls.append(seed)
        return {"a": (1, 2.5)}

    for _ in range(2):
        assert runner.compute("run", "run", compute, 1) == {"a": [1, 2.5]}
    assert len(calls) == 1
    runner.path("run", [1]).write_text("{")
    runner.compute("run", "run", compute, 1)
    runner.compute("run", "run", compute, 2)
    assert len(calls) == 3


def test_pack_and_unpack_are_inverse():
    values = np.linspace(0, 1, 11)
    assert unpack_values(pack_values(values)) == pytest.approx(values, abs=1e-7)
