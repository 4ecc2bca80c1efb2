"""reproduce on the sample: end to end, continued after a kill, and a report that stands alone."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from shortlist.cli import main
from shortlist.errors import ConfigError
from shortlist.paper import findings, paper, runs
from shortlist.paper import reproduce as module
from shortlist.paper.bench import Bench
from shortlist.paper.reproduce import FULL, QUICK, Budget, reproduce
from shortlist.paper.result_cache import ResultCache, packed, unpacked
from shortlist.paper.verdicts import COVERED, FAILS, HOLDS

TINY = Budget(n_trials=1, n_epochs=3, patience=3, sweep_seeds=1, steps=2, depth=10, users=150, n_factors=8)
FILES = ("results.json", "machine.json", "report.html", "table.md")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = tmp_path_factory.mktemp("done")
    results = reproduce("sample", out=place, n_seeds=2, budget=TINY, n_jobs=2)
    return place, results["datasets"]["sample"]


def test_everything_is_written(done):
    place, _ = done
    assert {path.name for path in place.iterdir()} == {*FILES, "units"}
    kinds = {path.name.partition("-")[0] for path in (place / "units").iterdir()}
    assert kinds == {"tune", "strictness", "run", "sweep"}


def test_every_model_and_decider_is_judged(done):
    _, found = done
    assert list(found["table1"]) == list(paper.MODELS)
    assert set(found["deciders"]) == {*paper.MODELS, *paper.BASELINES}
    assert {"fixed N", "own boundary", "expected F1", "oracle K"} <= set(found["deciders"]["DKHRM"])
    assert [len(found["figure1"][name]["f1"]) for name in found["figure1"]] == [5, 5, 6, 5]
    assert all(len(found["figure2"][model]["f1"]) == 20 for model in paper.MODELS)
    assert {one["verdict"] for one in found["verdicts"]} <= {HOLDS, COVERED, FAILS}


def test_figures_of_one_list_fit_together(done):
    """Over all users = over covered users × Cover-Ratio; no stopping rule beats hindsight."""
    place, _ = done
    units = [json.loads(path.read_text())["result"] for path in (place / "units").glob("run-*.json")]
    assert len(units) == 2 * len(paper.MODELS) + len(paper.BASELINES)
    for unit in units:
        for row in unit["lists"].values():
            assert row["f1"] == pytest.approx((row["f1_covered"] or 0) * row["cover"])
            assert row["f1"] == pytest.approx(unpacked(row["users"]["f1"]).mean(), abs=1e-6)
            assert row["f1"] <= unit["lists"]["oracle K"]["f1"] + 1e-12


def test_killed_run_continues_to_the_same_bytes(done, tmp_path):
    place, _ = done
    units = sorted((place / "units").iterdir())
    kept = [path for number, path in enumerate(units) if number % 3]
    (tmp_path / "units").mkdir()
    for path in kept:
        shutil.copy(path, tmp_path / "units")
    torn = next(path for path in kept if path.name.startswith("run"))
    (tmp_path / "units" / torn.name).write_text(torn.read_text()[:100])
    lines = []
    reproduce("sample", out=tmp_path, n_seeds=2, budget=TINY, n_jobs=1, progress=lines.append)
    assert (tmp_path / "results.json").read_bytes() == (place / "results.json").read_bytes()
    assert {path.name for path in (tmp_path / "units").iterdir()} == {path.name for path in units}
    made = [line for line in lines if line.endswith(" s")]
    lost = [path for path in units if path not in kept and path.suffix == ".json"]
    assert len(made) == len(lost) + 1


def test_finished_run_does_nothing_again(done, monkeypatch):
    place, _ = done
    before = {name: (place / name).read_bytes() for name in FILES}
    monkeypatch.setattr(module.runs, "run", lambda *_: pytest.fail("ran again"))
    reproduce("sample", out=place, n_seeds=2, budget=TINY, n_jobs=1)
    assert {name: (place / name).read_bytes() for name in FILES} == before


def test_report_stands_alone(done):
    place, _ = done
    page = (place / "report.html").read_text()
    assert not re.search(r"(src|href)=|url\(|@import|<script|https?://", page)
    assert page.count('<svg class="chart"') == 12 + 1 + 1 + 6
    for words in (
        "Table 1",
        "Figure 1",
        "Figure 2",
        "fair table",
        "prefers-color-scheme: dark",
        "own boundary",
    ):
        assert words in page


def test_markdown_table_has_a_row_per_model(done):
    place, _ = done
    lines = (place / "table.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(paper.MODELS)
    assert len({row.count("|") for row in rows}) == 1


def test_papers_numbers_stand_beside_ours():
    cells = {"f1": 0.0612, "cover": 0.71, "ndcg": 0.1219, "f1_mark": "+", "ndcg_mark": ""}
    from shortlist.paper.report import _cells

    row = cells | {"paper": paper.TABLE["ta-feng"]["DKHRM"]._asdict()}
    assert _cells(row) == ["0.0612+ (0.06)", "0.71 (0.7)", "0.122 (0.12)"]
    assert _cells(cells | {"paper": None}) == ["0.0612+", "0.71", "0.122"]


def test_strictness_comes_close_to_the_wanted_coverage():
    bench = Bench.of("sample", 150)
    params = {"n_factors": 8, "n_epochs": 5, "t": 1.0}
    found = runs.strictness(bench, "DKBPRMF", params, 0.6, 6)
    covers = [one["cover"] for one in sorted(found["tried"], key=lambda one: one["negatives"])]
    assert covers[0] >= covers[-1]
    assert abs(found["cover"] - 0.6) == min(abs(cover - 0.6) for cover in covers)
    assert abs(found["cover"] - 0.6) < 0.25


def test_subsample_keeps_whole_users():
    whole, part = Bench.of("sample").split.data, Bench.of("sample", 50, seed=1).split.data
    assert part.active_users.size == 50
    for user in part.active_users[:5]:
        assert part.indptr[user + 1] - part.indptr[user] == whole.indptr[user + 1] - whole.indptr[user]


def test_command_line_says_what_it_wrote(tmp_path, capsys, monkeypatch):
    verdict = {"claim": "K beats N.", "verdict": HOLDS, "numbers": ""}
    given = {}

    def pretend(dataset, **settings):
        given.update(settings, dataset=dataset)
        settings["progress"]("one unit")
        return {"datasets": {"sample": {"verdicts": [verdict]}}}

    monkeypatch.setattr(module, "reproduce", pretend)
    assert main(["reproduce", "--dataset", "sample", "--quick", "--out", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"sample": [verdict]}
    assert "one unit" in err
    assert (given["dataset"], given["budget"], given["n_seeds"]) == ("sample", QUICK, 2)
    assert main(["reproduce", "--dataset", "sample", "--out", str(tmp_path), "--trials", "3"]) == 0
    assert "K beats N." in capsys.readouterr().out
    assert (given["budget"], given["n_seeds"]) == (replace(FULL, n_trials=3), 5)


def test_unknown_dataset_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="ml-100k"):
        reproduce("netflix", out=tmp_path)


# ---------------------------------------------------------------------- parts
def runs_of(**lists):
    """Runs of one seed from per-user values: name -> (f1 of each user, length of each user)."""
    return [
        {
            "lists": {
                name: {"users": {"f1": packed(np.array(f1)), "length": packed(np.array(length, float))}}
                for name, (f1, length) in lists.items()
            }
        }
    ]


def test_same_users_asks_the_original_on_covered_users_only():
    dynamic = runs_of(**{"own boundary": ([0.5, 0.0, 1.0], [2, 0, 1])})
    fixed = runs_of(**{"fixed N": ([0.25, 0.75, 0.5], [3, 3, 3])})
    assert findings.same_users(dynamic, fixed, "f1") == pytest.approx((0.25 + 0.5) / 2)


def test_columns_are_tested_as_they_are_averaged():
    """Half the users are covered; they get 0.5, which the original gives to everybody or to nobody."""
    half = [1, 0] * 50
    dynamic = runs_of(**{"own boundary": ([0.5 * k for k in half], half)}) * 2
    alike, worse = (runs_of(**{"fixed N": ([f1] * 100, [1] * 100)}) for f1 in (0.5, 0.0))
    assert findings.covered_test(dynamic, alike, "f1") == 1.0
    assert findings.covered_test(dynamic, worse, "f1") < 0.001
    nobody = runs_of(**{"own boundary": ([0.0] * 100, [0] * 100)})
    assert findings.covered_test(nobody, worse, "f1") == 1.0


def test_units_are_made_once_and_survive_damage(tmp_path):
    units, made = ResultCache(tmp_path), []

    def make():
        made.append(1)
        return {"a": (1, 2.5)}

    for _ in range(2):
        assert units.get("run", {"seed": 1}, make, "run") == {"a": [1, 2.5]}
    assert len(made) == 1
    units.path("run", {"seed": 1}).write_text("{")
    units.get("run", {"seed": 1}, make, "run")
    units.get("run", {"seed": 2}, make, "run")
    assert len(made) == 3


def test_packed_numbers_come_back():
    values = np.linspace(0, 1, 11)
    assert unpacked(packed(values)) == pytest.approx(values, abs=1e-7)
