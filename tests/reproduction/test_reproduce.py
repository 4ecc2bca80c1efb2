"""reproduce on the sample: end to end, resumed after an interruption, with a report that loads nothing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reproduction import protocol
from reproduction.__main__ import reproduce
from reproduction.runs import Runs, Workload

TINY = Workload(
    n_trials=2, epochs=(1, 2), cover_steps=1, valid_users=80, users=120, n_factors=8, sweep_seeds=1, n_seeds=2
)
FILES = ("results.json", "machine.json", "report.html", "table.md")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = tmp_path_factory.mktemp("done")
    results = reproduce(["sample"], place, TINY, n_jobs=2)
    return place, results["datasets"]["sample"]


def test_all_files_are_written(done):
    place, _ = done
    assert {path.name for path in place.iterdir()} == {*FILES, "cache"}
    kinds = {path.name.partition("-")[0] for path in (place / "cache").iterdir()}
    assert kinds == {"validate", "test", "sweep"}


def test_every_dynamic_row_has_its_tests(done):
    _, found = done
    claims = found["claims"]
    assert list(claims["chosen"]) == list(protocol.MODELS)
    assert len(claims["tests"]) == 6 + 2
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


def test_interrupted_run_resumes_with_identical_results(done, tmp_path, monkeypatch, capsys):
    place, _ = done
    files = sorted((place / "cache").iterdir())
    (tmp_path / "cache").mkdir()
    for path in files[::2]:
        shutil.copy(path, tmp_path / "cache")
    capsys.readouterr()
    reproduce(["sample"], tmp_path, TINY, n_jobs=1)
    assert (tmp_path / "results.json").read_bytes() == (place / "results.json").read_bytes()
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {path.name for path in files}
    assert len(capsys.readouterr().out.splitlines()) == len(files[1::2])
    monkeypatch.setattr(Runs, "outcomes", lambda *_: pytest.fail("ran again"))
    reproduce(["sample"], tmp_path, TINY, n_jobs=1)
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


def test_unknown_dataset_is_refused():
    words = [sys.executable, "-m", "reproduction", "--dataset", "netflix"]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "ml-100k" in done.stderr
