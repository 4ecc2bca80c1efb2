"""`shortlist demo`, shortened: its output, and the fallback without a network."""

import json
from pathlib import Path

import pytest

import shortlist as sl
import shortlist.cli.demo as demo
from shortlist.cli import main
from shortlist.errors import DataError


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Three epochs, no network, and a folder to write to."""
    monkeypatch.chdir(tmp_path)

    def load(name, **_):
        if name != "sample":
            raise DataError(f"{name} could not be fetched; connect to a network.")
        return known

    known = sl.load_dataset("sample")
    monkeypatch.setattr(sl, "load_dataset", load)
    monkeypatch.setattr(demo, "N_EPOCHS", 3)


def test_sample_is_used_without_a_network(offline, capsys):
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert (
        "ml-100k could not be fetched; connect to a network. The demo continues with the built-in sample."
        in err
    )
    assert "Test set: the last basket of 300 users" in out
    assert "Stopping rule: ExpectedF1" in out
    assert "the generated sample: 13,786 rows, 300 users, 140 items." in out
    assert "best fixed N = " in out
    assert "the list ends here" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "Report with ten more users: shortlist-report.html" in out
    assert Path("shortlist-report.html").read_text(encoding="utf-8").count("<h3>User ") == 10


def test_json_contains_the_comparison_and_the_lists(offline, capsys):
    assert main(["demo", "--json", "--report", "sub/mine.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, *others = [row["model"] for row in found["results"]]
    assert first.startswith(demo.FIXED)
    assert others == [demo.BOUNDARY, demo.EXPECTED]
    assert {one["reason"] for one in found["examples"]} <= {"utility", "max_items"}
    assert found["report"] == "sub/mine.html"
    assert [path.name for path in Path().iterdir()] == ["sub"]


def test_longest_median_and_shortest_lists_are_shown():
    import numpy as np

    from shortlist.data.id_map import IdMap
    from shortlist.data.ranked_lists import RankedLists

    indptr = np.array([0, 2, 2, 7, 8, 8])
    lists = RankedLists(
        IdMap.of(["two", "none", "five", "one", "none too"]),
        IdMap.of(range(8)),
        indptr,
        np.arange(8, dtype=np.int32),
        np.zeros(8, np.float32),
    )
    assert [one.user_id for one in demo.choose_examples(lists)] == ["five", "one", "none"]
    assert [one.user_id for one in demo.choose_examples(lists.take([0, 2, 3]))] == ["five", "two", "one"]
    assert [one.user_id for one in demo.choose_examples(lists.take([1, 4]))] == ["none"]
