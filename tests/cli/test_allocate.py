"""`shortlist allocate`: the same lists as sl.allocate, and sentences for limits that make no sense."""

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allocate")
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=50, filter_seen=False)
    cutoff = sl.cutoff.ExpectedValue(gain=1.0, cost=0.1).fit(lists, split.valid, history=split.train)
    model.set_cutoff(cutoff).save(folder / "shop.shortlist")
    ids = model.items_.values
    table = pl.DataFrame({"item_id": ids, "margin": [1.0 + k % 3 for k in range(len(ids))]})
    table.with_columns(aisle=pl.Series([f"a{k % 4}" for k in range(len(ids))])).write_csv(
        folder / "items.csv"
    )
    return folder


def test_the_command_writes_the_lists_of_the_library(folder, capsys):
    model, out = folder / "shop.shortlist", folder / "lists.parquet"
    assert main(["allocate", str(model), "--budget", "200", "--out", str(out), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    expected = sl.load_model(model).allocate(budget=200)
    assert about["items"] == expected.n_items == 200
    assert about["expected_value"] == pytest.approx(expected.expected_value)
    written = sl.RankedLists.from_frame(pl.read_parquet(out))
    assert written.items.size == 200


def test_gains_and_groups_come_from_columns(folder, capsys):
    words = ["--items", folder / "items.csv", "--gain", "margin", "--max_per_group", "aisle=1"]
    words += ["--budget", "300", "--out", folder / "grouped.csv"]
    assert main(["allocate", str(folder / "shop.shortlist"), *map(str, words)]) == 0
    assert "One more item would be expected to earn" in capsys.readouterr().out
    aisle = dict(pl.read_csv(folder / "items.csv").select("item_id", "aisle").iter_rows())
    shown = pl.read_csv(folder / "grouped.csv").filter(pl.col("rank") > 0)
    groups = shown.with_columns(aisle=pl.col("item_id").replace_strict(aisle)).select("user_id", "aisle")
    assert shown.height == 300
    assert groups.is_unique().all()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "allocate needs something that limits the lists"),
        (["--budget", "-1"], "budget must be"),
        (["--budget", "9", "--gain", "margin"], "items"),
        (["--budget", "9", "--max_per_group", "aisle"], "must be FIELD=NUMBER"),
    ],
)
def test_limits_that_make_no_sense_are_one_sentence(folder, capsys, words, sentence):
    out = folder / "never.parquet"
    assert main(["allocate", str(folder / "shop.shortlist"), *words, "--out", str(out)]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()
