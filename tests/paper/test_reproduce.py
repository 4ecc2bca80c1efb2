"""reproduce on the sample: end to end, resumed after an interruption, with a report that loads nothing."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from shortlist.cli import main
from shortlist.errors import ConfigError
from shortlist.paper import claims, protocol
from shortlist.paper import reproduce as module
from shortlist.paper import verdicts as findings
from shortlist.paper.claims import FULL, QUICK, ClaimBudget
from shortlist.paper.experiment import Experiment, Runner, pack_values, unpack_values
from shortlist.paper.protocol import COVERED, FAILS, HOLDS
from shortlist.paper.report import table1_cells
from shortlist.paper.reproduce import reproduce
from shortlist.paper.variants import FULL_VARIANTS, QUICK_VARIANTS, VariantBudget

TINY = ClaimBudget(
    n_trials=1,
    n_epochs=3,
    patience=3,
    sweep_seeds=1,
    strictness_steps=2,
    n_candidates=10,
    users=150,
    n_factors=8,
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
    assert kinds == {"tune", "strictness", "run", "sweep"}


def test_every_model_and_cutoff_is_evaluated(done):
    _, found = done
    assert list(found["table1"]) == list(protocol.MODELS)
    assert set(found["cutoffs"]) == {*protocol.MODELS, *protocol.BASELINES}
    assert {"fixed N", "learned boundary", "expected F1", "oracle"} <= set(found["cutoffs"]["DKHRM"])
    assert [len(found["figure1"][name]["f1"]) for name in found["figure1"]] == [5, 5, 6, 5]
    assert all(len(found["figure2"][model]["f1"]) == 20 for model in protocol.MODELS)
    assert {one["verdict"] for one in found["verdicts"]} <= {HOLDS, COVERED, FAILS}


def test_figures_of_one_list_are_consistent(done):
    """The mean over all users is that over covered users times Cover-Ratio; no cutoff beats the oracle."""
    place, _ = done
    results = [json.loads(path.read_text())["result"] for path in (place / "cache").glob("run-*.json")]
    assert len(results) == 2 * len(protocol.MODELS) + len(protocol.BASELINES)
    for result in results:
        for row in result["lists"].values():
            assert row["f1"] == pytest.approx((row["f1_covered"] or 0) * row["cover_ratio"])
            assert row["f1"] == pytest.approx(unpack_values(row["users"]["f1"]).mean(), abs=1e-6)
            assert row["f1"] <= result["lists"]["oracle"]["f1"] + 1e-12


def test_interrupted_run_resumes_with_identical_results(done, tmp_path):
    place, _ = done
    files = sorted((place / "cache").iterdir())
    kept = [path for number, path in enumerate(files) if number % 3]
    (tmp_path / "cache").mkdir()
    for path in kept:
        shutil.copy(path, tmp_path / "cache")
    damaged = next(path for path in kept if path.name.startswith("run"))
    (tmp_path / "cache" / damaged.name).write_text(damaged.read_text()[:100])
    lines = []
    reproduce("sample", out=tmp_path, n_seeds=2, budget=TINY, n_jobs=1, progress=lines.append)
    assert (tmp_path / "results.json").read_bytes() == (place / "results.json").read_bytes()
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {path.name for path in files}
    computed = [line for line in lines if line.endswith(" s")]
    lost = [path for path in files if path not in kept and path.suffix == ".json"]
    assert len(computed) == len(lost) + 1


def test_finished_run_computes_nothing_again(done, monkeypatch):
    place, _ = done
    before = {name: (place / name).read_bytes() for name in FILES}
    monkeypatch.setattr(claims, "run", lambda *_: pytest.fail("ran again"))
    reproduce("sample", out=place, n_seeds=2, budget=TINY, n_jobs=1)
    assert {name: (place / name).read_bytes() for name in FILES} == before


def test_report_loads_nothing(done):
    place, _ = done
    page = (place / "report.html").read_text()
    assert not re.search(r"(src|href)=|url\(|@import|<script|https?://", page)
    assert page.count('<svg class="chart"') == 12 + 1 + 1 + 6
    for words in (
        "Table 1",
        "Figure 1",
        "Figure 2",
        "Results over all users",
        "prefers-color-scheme: dark",
        "learned boundary",
    ):
        assert words in page


def test_markdown_table_has_a_row_per_model(done):
    place, _ = done
    lines = (place / "table.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(protocol.MODELS)
    assert len({row.count("|") for row in rows}) == 1


def test_table_cells_show_the_papers_numbers():
    cells = {"f1": 0.0612, "cover_ratio": 0.71, "ndcg": 0.1219, "f1_mark": "+", "ndcg_mark": ""}
    row = cells | {"paper": protocol.TABLE["ta-feng"]["DKHRM"]._asdict()}
    assert table1_cells(row) == ["0.0612+ (0.06)", "0.71 (0.7)", "0.122 (0.12)"]
    assert table1_cells(cells | {"paper": None}) == ["0.0612+", "0.71", "0.122"]


def test_strictness_search_approaches_the_target():
    experiment = Experiment.load("sample", 150)
    params = {"n_factors": 8, "n_epochs": 5, "t": 1.0, "boundary": "learned"}
    found = claims.strictness(experiment, "DKBPRMF", params, 0.6, 6)
    covers = [one["cover_ratio"] for one in sorted(found["tried"], key=lambda one: one["negatives"])]
    assert covers[0] >= covers[-1]
    assert abs(found["cover_ratio"] - 0.6) == min(abs(cover - 0.6) for cover in covers)
    assert abs(found["cover_ratio"] - 0.6) < 0.25


def test_sample_of_users_keeps_all_their_rows():
    whole, part = Experiment.load("sample").split.data, Experiment.load("sample", 50, seed=1).split.data
    assert part.active_users.size == 50
    for user in part.active_users[:5]:
        assert part.indptr[user + 1] - part.indptr[user] == whole.indptr[user + 1] - whole.indptr[user]


def test_command_line_prints_verdicts(tmp_path, capsys, monkeypatch):
    verdict = {"claim": "K beats N.", "verdict": HOLDS, "numbers": ""}
    given = {}

    def fake_reproduce(dataset, **settings):
        given[type(settings["budget"])] = settings | {"dataset": dataset}
        settings["progress"]("one result")
        if isinstance(settings["budget"], ClaimBudget):
            return {"datasets": {"sample": {"verdicts": [verdict]}}}
        cells = [{"reading": "r", "bias": True, "own_N": False, "cap": 20, "reached": 1, "cells": 2}]
        extended = {"cells": [one | {"combination": "c", "own_N": True} for one in cells]}
        return {"datasets": {"sample": {"cells": cells, "extended": extended}}}

    monkeypatch.setattr(module, "reproduce", fake_reproduce)
    assert main(["reproduce", "--dataset", "sample", "--quick", "--out", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["sample"]
    assert found["verdicts"] == [verdict]
    assert found["cells"][0]["reached"] == 1
    assert found["extended_cells"][0]["combination"] == "c"
    assert "one result" in err
    for budget in (QUICK, QUICK_VARIANTS):
        settings = given[type(budget)]
        assert (settings["dataset"], settings["budget"], settings["n_seeds"]) == ("sample", budget, 2)
    assert main(["reproduce", "--dataset", "sample", "--out", str(tmp_path), "--trials", "3"]) == 0
    assert "K beats N." in capsys.readouterr().out
    for budget in (FULL, FULL_VARIANTS):
        settings = given[type(budget)]
        assert (settings["budget"], settings["n_seeds"]) == (replace(budget, n_trials=3), 5)
    given.clear()
    assert main(["reproduce", "--dataset", "ml-100k", "--part", "variants", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "r, with item biases, one N or setting, at most 20" in out
    assert "c; r, with item biases, at most 20" in out
    assert list(given) == [VariantBudget]
    assert (given[VariantBudget]["dataset"], given[VariantBudget]["budget"]) == ("ml-100k", FULL_VARIANTS)


def test_unknown_dataset_raises(tmp_path):
    with pytest.raises(ConfigError, match="ml-100k"):
        reproduce("netflix", out=tmp_path)


# ---------------------------------------------------------------------- parts
def runs_of(**lists):
    """Runs of one seed from per-user values: name -> (F1 of each user, list length of each user)."""
    return [
        {
            "lists": {
                name: {
                    "users": {"f1": pack_values(np.array(f1)), "length": pack_values(np.array(length, float))}
                }
                for name, (f1, length) in lists.items()
            }
        }
    ]


def test_same_users_averages_the_original_over_covered_users():
    dynamic = runs_of(**{"learned boundary": ([0.5, 0.0, 1.0], [2, 0, 1])})
    fixed = runs_of(**{"fixed N": ([0.25, 0.75, 0.5], [3, 3, 3])})
    assert findings.same_users(dynamic, fixed, "f1") == pytest.approx((0.25 + 0.5) / 2)


def test_columns_are_tested_with_the_means_of_the_table():
    """Half of the users are covered with F1 0.5; the original gives all users 0.5, or all users 0."""
    half = [1, 0] * 50
    dynamic = runs_of(**{"learned boundary": ([0.5 * k for k in half], half)}) * 2
    equal, zero = (runs_of(**{"fixed N": ([f1] * 100, [1] * 100)}) for f1 in (0.5, 0.0))
    assert findings.covered_test(dynamic, equal, "f1") == 1.0
    assert findings.covered_test(dynamic, zero, "f1") < 0.001
    uncovered = runs_of(**{"learned boundary": ([0.0] * 100, [0] * 100)})
    assert findings.covered_test(uncovered, zero, "f1") == 1.0


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
