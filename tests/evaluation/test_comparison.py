"""compare: the table, the tests and every format they are exported in."""

import io
import json
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from shortlist.core.tables import cell_text
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import compare, evaluate, holm, paired_test
from tests.evaluation import cases
from tests.evaluation.cases import LISTS, TRUTH, interactions

SHOWN, RELEVANT = cases.random_case(1)
SHOWN_TRUTH = interactions(RELEVANT)
BETTER = {
    user: RELEVANT[user][:2] + [i for i in items if i not in RELEVANT[user][:2]]
    for user, items in SHOWN.items()
}
EMPTY = {user: [] for user in SHOWN}


@pytest.fixture(scope="module")
def comparison():
    return compare({"plain": SHOWN, "better_2": BETTER, "empty": EMPTY}, SHOWN_TRUTH, resamples=500)


def test_means_equal_those_of_the_reports(comparison):
    report = evaluate(BETTER, SHOWN_TRUTH)
    row = comparison.table.row(1, named=True)
    assert row["model"] == "better_2"
    assert row["F1"] == report.f1
    assert row["NDCG"] == report.ndcg
    assert row["F1 covered"] == report.mean("f1", "covered")
    assert row["NDCG covered (paper)"] == report.mean("ndcg_paper", "covered")
    assert row["Cover-Ratio"] == report.cover_ratio
    assert row["length"] == report.mean("length")


def test_every_other_model_is_tested_against_the_baseline(comparison):
    assert comparison.baseline == "plain"
    table = comparison.tests
    assert table.select("model", "metric").rows() == [
        ("better_2", "f1"),
        ("better_2", "ndcg"),
        ("empty", "f1"),
        ("empty", "ndcg"),
    ]
    alone = paired_test(
        evaluate(BETTER, SHOWN_TRUTH).values("f1"), evaluate(SHOWN, SHOWN_TRUTH).values("f1"), resamples=500
    )
    assert table["difference"][0] == alone.difference
    assert table["p_t"][0] == alone.p_t
    for p in ("p_bootstrap", "p_t", "p_wilcoxon"):
        assert table[f"{p}_holm"].to_list() == holm(table[p].to_list())


def test_signs_show_better_and_worse(comparison):
    formatted = comparison.formatted
    assert [cell[-1] for cell in formatted["F1"]][1:] == ["+", "-"]
    assert formatted["F1"][0] == f"{evaluate(SHOWN, SHOWN_TRUTH).f1:.4f}"
    assert formatted["p (Holm)"][0] == ""
    assert formatted["difference in F1"][1].startswith("+0.")


def test_no_sign_without_significance():
    other = dict(zip(SHOWN, list(SHOWN.values())[::-1], strict=True))
    formatted = compare({"one": SHOWN, "other": other}, SHOWN_TRUTH, resamples=200).formatted
    assert formatted["F1"][1][-1].isdigit()


def test_runs_are_averaged_per_user():
    found = compare({"base": SHOWN, "seeds": [SHOWN, BETTER]}, SHOWN_TRUTH, resamples=200)
    one, two = evaluate(SHOWN, SHOWN_TRUTH), evaluate(BETTER, SHOWN_TRUTH)
    row = found.table.row(1, named=True)
    assert row["runs"] == 2
    assert row["F1"] == pytest.approx((one.f1 + two.f1) / 2)
    assert row["F1 sd"] == pytest.approx(abs(one.f1 - two.f1) / np.sqrt(2))
    assert found.tests["difference"][0] == pytest.approx((two.f1 - one.f1) / 2)
    assert "F1 sd" in found.formatted.columns


def test_reports_need_no_truth():
    reports = {"a": evaluate(LISTS, interactions(TRUTH)), "b": evaluate({"bob": ["a"]}, interactions(TRUTH))}
    found = compare(reports, baseline="b", resamples=100, metrics=["recall"])
    assert found.tests.select("model", "metric").rows() == [("a", "recall")]
    assert "difference in recall" in found.formatted.columns
    assert "runs" not in found.formatted.columns


def test_single_model_has_no_tests():
    found = compare({"only": LISTS}, interactions(TRUTH).to_frame())
    assert len(found.tests) == 0
    assert str(found).count("only") == 2
    assert "against" not in str(found)


class TestFormats:
    def test_plain(self, comparison):
        everyone, covered, tests, note = [part.splitlines() for part in str(comparison).split("\n\n")]
        for lines in (everyone, covered, tests):
            assert lines[1].startswith("model")
            assert set(lines[2]) == {"-"}
            names = ["plain", "better_2", "empty"]
            assert [line.split()[0] for line in lines[3:]] == names[lines is tests :]
        assert tests[0] == "against plain, with a 95% interval"
        assert "p <= 0.05" in note[-1]
        cells = zip(everyone[3:], comparison.formatted["NDCG"], strict=True)
        ends = {line.rindex(f" {cell} ") + len(cell) for line, cell in cells}
        assert len(ends) == 1  # aligned to the right

    def test_every_cell_fits_on_a_narrow_terminal(self):
        runs = {"not a short name": [SHOWN, BETTER], "other [red]": BETTER}
        comparison = compare(runs, SHOWN_TRUTH, resamples=100)
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(comparison)
        for text in (console.export_text(), str(comparison)):
            assert max(map(len, text.splitlines())) <= 80
            assert "…" not in text
            for name in comparison.formatted.columns[1:]:
                assert name in text
                assert all(value in text for value in map(cell_text, comparison.formatted[name]))

    def test_markdown(self, comparison):
        lines = comparison.to_markdown().splitlines()
        assert len({line.count("|") for line in lines[:5]}) == 1
        assert lines[3].startswith("| better_2 |")
        assert lines[1].startswith("| --- | ---: |")

    def test_latex(self, comparison):
        text = comparison.to_latex()
        assert r"better\_2 &" in text
        assert text.count(r"\\") == 4
        assert text.startswith("% ")
        assert text.rstrip().endswith(r"\end{tabular}")

    def test_csv(self, comparison):
        table = pl.read_csv(comparison.to_csv().encode())
        assert table["F1"].to_list() == comparison.table["F1"].to_list()
        assert table["f1 difference"].to_list()[1:] == comparison.tests["difference"].to_list()[::2]
        assert table["f1 difference"][0] is None

    def test_json(self, comparison):
        found = json.loads(comparison.to_json())
        assert [row["model"] for row in found["table"]] == ["plain", "better_2", "empty"]
        assert found["table"][2]["F1 covered"] is None  # no user is covered: unknown, not 0
        assert found["reports"]["better_2"][0]["all"]["f1"] == evaluate(BETTER, SHOWN_TRUTH).f1
        assert found["tests"][0]["p_t"] == comparison.tests["p_t"][0]

    @pytest.mark.parametrize("extension", ["md", "tex", "csv", "json", "txt"])
    def test_files(self, comparison, extension, tmp_path):
        forms = {"md": comparison.to_markdown, "tex": comparison.to_latex, "csv": comparison.to_csv}
        expected = {**forms, "json": comparison.to_json, "txt": lambda: f"{comparison}\n"}[extension]()
        path = comparison.write(tmp_path / f"table.{extension}")
        assert path.read_text(encoding="utf-8") == expected

    def test_other_extensions_are_refused(self, comparison, tmp_path):
        with pytest.raises(DataError, match=r"\.docx"):
            comparison.write(tmp_path / "table.docx")


def test_models_may_come_as_tables_and_paths(tmp_path):
    lists = RankedLists.from_frame(pl.DataFrame({"user_id": ["ann", "bob"], "item_id": ["a", "a"]}))
    path = lists.write(tmp_path / "lists.parquet")
    kinds = {"table": lists.to_frame().to_pandas(), "path": str(path), "runs": [lists, lists.to_frame()]}
    table = compare(kinds, interactions(TRUTH), resamples=10).table
    assert table["F1"].to_list() == [evaluate(lists, interactions(TRUTH)).f1] * 3
    assert table["runs"].to_list() == [1, 1, 2]


def test_html_has_the_cells_of_the_text(comparison):
    page = ET.fromstring(f"<div>{comparison._repr_html_()}</div>")
    tables = [[[cell.text or "" for cell in row] for row in table.iter("tr")] for table in page.iter("table")]
    assert [len(table) for table in tables] == [4, 4, 3]
    for table in tables:
        for row in table:
            assert all(cell in str(comparison) for cell in row)
    assert page.find("p").text.startswith("+ better, - worse than plain")


def test_html_escapes_model_names():
    text = compare({"<script>": SHOWN}, SHOWN_TRUTH)._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_figure_draws_intervals_around_the_baseline(comparison):
    root = ET.fromstring(comparison.plot()._repr_svg_())
    tag = "{http://www.w3.org/2000/svg}"
    words = [text.text for text in root.iter(f"{tag}text")]
    assert f"better_2 {evaluate(BETTER, SHOWN_TRUTH).f1:.4f}" in words
    assert [word for word in words if word in ("F1", "NDCG")] == ["F1", "NDCG"]
    styles = [line.get("class") for line in root.iter(f"{tag}line") if "range" in line.get("class")]
    assert styles == ["s7 range", "s2 range", "s1 range"] * 2  # baseline, better, worse


def test_repr_is_bounded():
    many = compare({f"model {k}": LISTS for k in range(20)}, interactions(TRUTH), resamples=1)
    assert repr(many).endswith("model 7 and 12 more; baseline model 0)")


def test_errors():
    truth = interactions(TRUTH)
    with pytest.raises(ConfigError, match="at least one model"):
        compare({}, truth)
    with pytest.raises(ConfigError, match="got 'c'"):
        compare({"a": LISTS}, truth, baseline="c")
    with pytest.raises(ConfigError, match="auc"):
        compare({"a": LISTS}, truth, metrics=["auc"])
    with pytest.raises(ConfigError, match="metrics must"):
        compare({"a": LISTS}, truth, metrics=[])
    with pytest.raises(ConfigError, match="truth is needed"):
        compare({"a": LISTS})
    with pytest.raises(DataError, match="at least one run"):
        compare({"a": []}, truth)
    with pytest.raises(DataError, match="same users"):
        compare({"a": evaluate(LISTS, truth), "b": evaluate(SHOWN, SHOWN_TRUTH)})
    with pytest.raises(DataError, match="same max_items"):
        compare({"a": evaluate(LISTS, truth), "b": evaluate(LISTS, truth, max_items=5)})


def test_same_seed_gives_the_same_table(comparison):
    again = compare({"plain": SHOWN, "better_2": BETTER, "empty": EMPTY}, SHOWN_TRUTH, resamples=500)
    assert again.to_json() == comparison.to_json()
