"""`shortlist datasets`, on what needs no network."""

import json

import pytest

from shortlist.cli import main
from shortlist.cli.app import COMMANDS


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_list_names_every_dataset_and_what_is_here(capsys):
    assert main(["datasets", "list", "--json"]) == 0
    known = {one["name"]: one["cached"] for one in json.loads(capsys.readouterr().out)}
    assert known.pop("sample")
    assert known == dict.fromkeys(("ml-100k", "ta-feng", "complete-journey", "online-retail", "ml-1m"), False)


def test_list_as_a_table_fits_a_page(capsys):
    assert main(["datasets", "list"]) == 0
    out = capsys.readouterr().out
    assert "ta-feng" in out
    assert max(map(len, out.splitlines())) <= 120


def test_show_counts_what_was_loaded(capsys):
    assert main(["datasets", "show", "sample", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["users"], found["items"]) == ("sample", 300, 140)
    assert len(found["fingerprint"]) == 32


def test_fetching_the_sample_says_there_is_nothing_to_fetch(capsys):
    assert main(["datasets", "fetch", "sample", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"name": "sample", "folder": None}
    assert "nothing to fetch" in err


@pytest.mark.parametrize("command", ["fetch", "show"])
def test_unknown_name_suggests_the_nearest(capsys, command):
    assert main(["datasets", command, "ml100k"]) == 2
    assert "did you mean 'ml-100k'?" in capsys.readouterr().err


def test_help_has_the_summary_of_all_commands(capsys):
    assert main(["datasets", "--help"]) == 0
    out = capsys.readouterr().out
    assert COMMANDS["datasets"].splitlines()[0] in out
    assert "shortlist datasets show sample" in out
