"""`shortlist recommend` gives exactly the lists of the library, for every model."""

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cutoff import FixedN
from shortlist.data.lists import RankedLists
from tests.models.cases import ALL_MODELS, fitted

PAST, LATER = "1970-01-01T00:03:20", "1970-01-01T00:05:00"  # the last event is at 00:04:54


@pytest.mark.parametrize("name", ALL_MODELS)
def test_files_screen_and_library_agree(name, tmp_path, capsys):
    model = fitted(name)
    saved, cutoff, candidates = tmp_path / "m.shortlist", tmp_path / "cut", tmp_path / "items.txt"
    model.save(saved)
    FixedN(N=3).save(cutoff)
    items = [f"i{i:02}" for i in range(0, 20, 3)]
    candidates.write_text("\n".join(items))
    if not model.answers_past:
        words = ("recommend", saved, "--user", "u03", "--N", "3", "--at", PAST)
        assert main([str(word) for word in words]) == 2
        assert f"at must be after the last event that {name} knows" in capsys.readouterr().err
    at = PAST if model.answers_past else LATER
    options = ["--cutoff", cutoff, "--candidates", candidates, "--at", at]
    lists = model.recommend(cutoff=FixedN(N=3), candidates=items, at=at)
    for suffix in ("parquet", "csv", "jsonl"):
        out = tmp_path / f"lists.{suffix}"
        assert main([str(word) for word in ("recommend", saved, "--out", out, *options)]) == 0
        written = RankedLists.read(out, model.items_)
        assert written.users.values.to_list() == lists.users.values.to_list()
        assert written.items.tolist() == lists.items.tolist()
        assert written.scores.tolist() == pytest.approx(lists.scores.tolist(), rel=1e-6)
        assert written.reason.tolist() == lists.reason.tolist()
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(lists.to_frame())
    capsys.readouterr()
    words = ("recommend", saved, "--user", "u03", "--json", *options)
    assert main([str(word) for word in words]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["items"] == list(lists["u03"].items)


def test_probabilities_are_shown_only_if_they_were_calibrated(tmp_path, capsys):
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.DKBPRMF(n_epochs=5, n_factors=8, seed=1).fit(split.train)
    lists = model.recommend(N=20, at=split.valid, filter_seen=False)
    for calibration, is_shown in (("none", False), ("platt", True)):
        cutoff = sl.cutoff.ExpectedF1(calibration=calibration, n_candidates=20)
        model.set_cutoff(cutoff.fit(lists, split.valid, history=split.train))
        path = model.save(tmp_path / f"{calibration}.shortlist")
        assert main(["recommend", str(path), "--user", "u1"]) == 0
        out = capsys.readouterr().out
        assert ("probability" in out) == is_shown
        assert ("score" in out) != is_shown
