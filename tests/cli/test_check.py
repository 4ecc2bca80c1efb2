"""`shortlist check` and the first lines of `fit`: from an export to the right lists, with one correction."""

import json

import pytest

import shortlist as sl
from shortlist.cli import main
from tests import exports


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, " ".join((out + " " + err).split())


@pytest.mark.parametrize(
    ("write", "name", "correction"),
    [
        (exports.german_excel, "export.csv", ()),
        (exports.clickstream, "events.ndjson", ("--where", "event = 'purchase'", "--basket_id", "session")),
    ],
)
def test_from_an_export_to_lists(here, capsys, write, name, correction):
    bought = write(here / name).drop_duplicates(["user", "item", "order"])
    if correction:
        _, printed = run(capsys, "check", name)
        assert printed.count("warning:") == 2
        assert all(word in printed for word in ("event = 'purchase'", "--basket_id", "session"))
    code, printed = run(capsys, "fit", name, "--model", "PersonalFrequency", "--quick", *correction)
    assert code == 0
    assert "warning" not in printed
    assert f"{bought['order'].nunique()} baskets of" in printed
    model = sl.load_model("model.shortlist")
    counts = bought.groupby(["user", "item"]).size()
    lists = model.recommend(N=3, filter_seen=False)
    user = lists.at(0).user_id
    number = int("".join(filter(str.isdigit, str(user).split(".")[0]))) - (100 if name == "export.csv" else 0)
    best = counts[number].max()
    top = str(lists[user].items[0])
    digits = int("".join(filter(str.isdigit, top)))
    assert counts[number][digits] == best


def test_json_and_report(here, capsys):
    exports.german_excel(here / "orders.csv")
    code = main(["check", "orders.csv", "--json", "--report", "check.html"])
    about = json.loads(capsys.readouterr().out)
    assert (code, about["doubts"]) == (0, [])
    assert about["baskets"] > 100
    assert "Items per basket" in (here / "check.html").read_text()


def test_a_model_that_predicts_nothing_is_in_doubt(here, capsys):
    rows = [f"u{k % 40},{k},2024-01-{1 + k // 40:02d}" for k in range(800)]
    (here / "lines.csv").write_text("customer,line_no,date\n" + "\n".join(rows))
    code, printed = run(capsys, "fit", "lines.csv", "--item_id", "line_no", "--model", "Popularity")
    assert code == 0
    assert "the best model predicts almost nothing" in printed
