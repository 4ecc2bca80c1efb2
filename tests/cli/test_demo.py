"""`shortlist demo`, shortened: its output, and the fallback without a network."""

import json
from pathlib import Path

import pytest

import shortlist as sl
import shortlist.cli.demo as demo
from shortlist.cli import main
from shortlist.errors import DataError
from shortlist.models.counting import MOST_OFTEN


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Few baskets to learn from, no network, and a folder to write to."""
    monkeypatch.chdir(tmp_path)

    def load(name, **_):
        if name != "sample":
            raise DataError(f"{name} could not be fetched; connect to a network.")
        return known

    known = sl.load_dataset("sample")
    monkeypatch.setattr(sl, "load_dataset", load)
    monkeypatch.setattr(demo, "N_SNAPSHOTS", 600)


def test_sample_is_used_without_a_network(offline, capsys):
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert (
        "online-retail could not be fetched; connect to a network. The demo continues with the built-in "
        "sample." in err
    )
    assert "Test set: the last basket of 300 users" in out
    assert "Cutoff: ExpectedF1" in out
    assert "the generated sample: 13,786 rows, 300 users, 140 items." in out
    assert "best fixed N = " in out
    assert "the list ends here" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "Report with all figures and more users: shortlist-report.html" in out
    assert Path("shortlist-report.html").read_text(encoding="utf-8").count("<h3>User ") == 9


def test_json_contains_the_comparison_and_the_lists(offline, capsys):
    assert main(["demo", "--json", "--report", "sub/mine.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, *others = [row["model"] for row in found["results"]]
    assert first.startswith(demo.FIXED)
    expected, most_often = others
    assert expected == demo.EXPECTED
    assert most_often.startswith(MOST_OFTEN)
    assert found["lift"] == pytest.approx(found["results"][1]["F1"] / found["results"][0]["F1"] - 1)
    long, short, empty = found["examples"]
    assert len(long["items"]) > len(short["items"]) > len(empty["items"]) == 0
    assert (long["reason"], empty["reason"]) == ("utility", "below_floor")
    assert found["report"] == "sub/mine.html"
    assert [path.name for path in Path().iterdir()] == ["sub"]


def test_a_simpler_model_is_used_without_lightgbm(offline, capsys, monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert main(["demo", "--dataset", "sample", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == "TIFUKNN"
    assert "LightGBM is not installed, so a simpler model is used; pip install lightgbm." in err


def test_a_model_is_trained_once_and_served(offline, capsys, monkeypatch):
    served = []
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr("shortlist.cli.serve.serve_command", served.append)
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert main(["demo", "--serve"]) == 0
    assert "a simpler model is used" in capsys.readouterr().err
    assert main(["demo", "--serve"]) == 0
    assert "a simpler model is used" not in capsys.readouterr().err
    assert served == [f"cache/shortlist/demo/sample-{sl.__version__}.shortlist"] * 2
    assert 0 < (sl.load_model(served[0]).recommend().lengths == 0).mean() < 0.3
    assert [path.name for path in Path().iterdir()] == ["cache"]
