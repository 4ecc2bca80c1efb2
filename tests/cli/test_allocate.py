"""`shortlist allocate`: the same lists as sl.allocate, and sentences for limits that make no sense."""

import json
import zipfile
from xml.etree import ElementTree

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.allocate import read_excluded


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
    expected = sl.allocate(sl.load_model(model), budget=200)
    assert about["items"] == expected.n_items == 200
    assert about["expected_value"] == pytest.approx(expected.expected_value)
    assert about["headline"].startswith("Expected: the same 200 items reach ")
    assert about["expected"]["allocation"]["hits"] == pytest.approx(expected.expected_hits)
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
        (["--budget", "9", "--not_contacted_since", "7d"], "--contacts_log and --not_contacted_since belong"),
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


def read_sheet(path):
    """The cells of the first sheet of an .xlsx file, as texts or numbers."""
    with zipfile.ZipFile(path) as file:
        texts = [
            "".join(node.itertext()) for node in ElementTree.fromstring(file.read("xl/sharedStrings.xml"))
        ]
        sheet = ElementTree.fromstring(file.read("xl/worksheets/sheet1.xml"))
    name = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    return [
        [
            texts[int(cell[0].text)] if cell.get("t") == "s" else float(cell[0].text)
            for cell in row.iter(f"{name}c")
        ]
        for row in sheet.iter(f"{name}row")
    ]


def test_people_who_must_not_get_a_mail_get_none(folder, tmp_path, capsys):
    """Friday's mailing, with every figure checked by plain tables."""
    pytest.importorskip("xlsxwriter")
    model = sl.load_model(folder / "shop.shortlist")
    users = model.users_.values
    pl.DataFrame({"customer": users[:40]}).write_csv(tmp_path / "optout.csv")
    day = 86_400_000_000
    sent = pl.DataFrame(
        {"user_id": users[40:100], "sent_at": [model.history_.end_time - day * 3] * 30 + [0] * 30}
    )
    sent = sent.with_columns(timestamp=pl.col("sent_at").cast(pl.Datetime("us"))).drop("sent_at")
    sent.write_csv(tmp_path / "sent.csv")
    out = tmp_path / "friday.xlsx"
    words = ["--contacts", "50", "--max_items", "3", "--out", out]
    words += ["--exclude_users", tmp_path / "optout.csv", "--contacts_log", tmp_path / "sent.csv"]
    shop = str(folder / "shop.shortlist")
    assert main(["allocate", shop, *map(str, words), "--not_contacted_since", "7d"]) == 0
    text = capsys.readouterr()
    assert "40 users are left out" in text.err
    assert "30 users were contacted within 7d before the last event" in text.err
    assert text.out.count("was not given") == 2
    german = pl.DataFrame(
        {"Kundennummer": sent["user_id"], "Datum": sent["timestamp"].dt.strftime("%d.%m.%Y")}
    )
    german.write_csv(tmp_path / "versendet.csv", separator=";")
    log = read_excluded(None, tmp_path / "versendet.csv", "7d", model.history_.end_time)
    assert log.to_list() == users[40:70].cast(pl.String).to_list()
    header, *rows = read_sheet(out)
    assert header == ["user_id", "rank", "item_id", "item_name", "probability"]
    written = pl.DataFrame(rows, header, orient="row")
    assert written["user_id"].n_unique() == 50
    assert written.group_by("user_id").len()["len"].max() <= 3
    assert not set(written["user_id"]) & set(users[:70].cast(pl.String))
    lists = model.recommend(N=1)
    names = dict(zip(lists.item_ids.values, lists.item_names, strict=True))
    assert written["item_name"].to_list() == [names[item] for item in written["item_id"]]
    assert f"{len(rows):,} items for 50 of {len(users) - 70:,} users" in text.out

    sheet = tmp_path / "friday.csv"
    words[5] = sheet
    assert main(["allocate", shop, *map(str, words), "--not_contacted_since", "7d"]) == 0
    lines = sheet.read_text().splitlines()
    assert len(lines) == len(rows) + 1  # no rows of users who get nothing
    assert all(line.startswith('"') for line in lines)


def test_contacts_alone_are_a_list_of_ten(folder, tmp_path, capsys):
    out = tmp_path / "lists.parquet"
    assert main(["allocate", str(folder / "shop.shortlist"), "--contacts", "20", "--out", str(out)]) == 0
    capsys.readouterr()
    lengths = sl.RankedLists.read(out).lengths
    assert (lengths > 0).sum() == 20
    assert lengths.max() == 10


def test_every_measured_figure_is_that_of_plain_tables(folder, tmp_path, capsys):
    """Orders of one week against the mailing, the same number for everyone, and the most frequent orders."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    split.valid.to_frame().write_csv(tmp_path / "next.csv")
    model = sl.load_model(folder / "shop.shortlist")
    words = [
        "--contacts",
        "60",
        "--max_items",
        "3",
        "--test",
        tmp_path / "next.csv",
        "--gain",
        "2",
        "--cost",
        "0.1",
    ]
    out = tmp_path / "lists.parquet"
    assert (
        main(["allocate", str(folder / "shop.shortlist"), *map(str, words), "--out", str(out), "--json"]) == 0
    )
    about = json.loads(capsys.readouterr().out)
    bought = split.valid.to_frame().select("user_id", "item_id").unique().to_pandas()

    def earned(rows):
        return len(rows.merge(bought))

    shown = pl.read_parquet(out).filter(pl.col("rank") > 0).select("user_id", "item_id").to_pandas()
    measured = about["measured"]
    assert measured["allocation"]["hits"] == earned(shown)
    assert measured["allocation"]["value"] == pytest.approx(2 * earned(shown) - 0.1 * len(shown))

    orders = model.history_.to_frame().to_pandas()
    pairs = orders.groupby(["user_id", "item_id"]).timestamp.agg(["size", "max"]).reset_index()
    pairs = pairs.sort_values(["size", "max", "user_id", "item_id"], ascending=[False, False, True, True])
    pairs = pairs[pairs.groupby("user_id").cumcount() < 3]
    pairs = pairs[pairs.user_id.isin(pairs.user_id.drop_duplicates().head(60))].head(len(shown))
    often = measured["what was bought most often, latest first"]
    assert often["hits"] == earned(pairs[["user_id", "item_id"]])

    name = next(name for name in measured if name.endswith("for everyone"))
    ranked = model.recommend(N=3, filter_seen=False).to_frame()
    N = about["same_for_all"]
    whole, rest = int(N), N - int(N)
    hits = [
        earned(ranked.filter(pl.col("rank") == k).select("user_id", "item_id").to_pandas()) for k in (1, 2, 3)
    ]
    assert measured[name]["hits"] == pytest.approx(sum(hits[:whole]) + rest * hits[whole])
