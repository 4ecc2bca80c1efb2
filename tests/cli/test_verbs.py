"""fit → recommend → evaluate → inspect, as a person would type them."""

import json
import re
import shlex

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.app import build

QUICK = ["--n_epochs", "3", "--n_factors", "8"]


def run(capsys, *words) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def told(capsys, *words):
    return json.loads(run(capsys, *words, "--json"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a model, the held-out last baskets, and the events as CSV."""
    folder = tmp_path_factory.mktemp("shop")
    events = folder / "events.csv"
    sl.load_dataset("sample").to_frame().write_csv(events)
    words = [
        "fit",
        str(events),
        "--out",
        str(folder / "model"),
        "--test",
        str(folder / "held.parquet"),
        *QUICK,
    ]
    assert main(words) == 0
    return folder


def test_examples_of_every_help_work_when_pasted(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = build()
    verbs = [[name] for name in app if not name.startswith("-")]
    verbs += [["datasets", name] for name in app["datasets"] if not name.startswith("-")]
    for verb in verbs:
        examples = re.findall(r"^  (shortlist .*)$", run(capsys, *verb, "--help"), re.MULTILINE)
        assert examples, f"shortlist {' '.join(verb)} --help has no example"
        for example in examples:
            words = shlex.split(example)[1:]
            shorter = QUICK if words[0] in ("fit", "tune") else []
            if words[0] not in ("demo", "reproduce") and words[:2] != [
                "datasets",
                "fetch",
            ]:  # minutes, or a network
                assert main([*words, *shorter]) == 0, example


def test_fit_holds_out_what_it_says(shop):
    held, model = pl.read_parquet(shop / "held.parquet"), sl.load_model(shop / "model")
    assert held.height + model.history.n_rows == sl.load_dataset("sample").n_rows
    assert held["user_id"].n_unique() == 300


def test_fit_recommend_evaluate(shop, capsys):
    run(capsys, "recommend", shop / "model", "--out", shop / "lists.parquet")
    found = told(capsys, "evaluate", shop / "lists.parquet", shop / "held.parquet")
    assert found["users"] == 300
    assert found["all"]["f1"] > 0.05  # three epochs; shown at random it would be .03


def test_the_saved_cutoff_decides_unless_told_otherwise(shop, capsys):
    reasons = [
        {one["reason"] for one in told(capsys, "recommend", shop / "model", *flags)}
        for flags in ([], ["--boundary"], ["--N", "3"])
    ]
    assert reasons[0] <= {"utility", "below_floor"}
    assert reasons[1] <= {"boundary", "no_candidate_above_boundary"}
    assert reasons[2] == {"top_n"}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_lists_in_any_format_are_judged_alike(shop, capsys, ending):
    for out in (shop / f"same.{ending}", shop / "same.parquet"):
        run(capsys, "recommend", shop / "model", "--out", out)
    one, other = (
        told(capsys, "evaluate", shop / name, shop / "held.parquet")["all"]["f1"]
        for name in (f"same.{ending}", "same.parquet")
    )
    assert one == pytest.approx(other)


def test_candidates_limit_the_lists(shop, capsys):
    (shop / "new.txt").write_text("i3\n\ni5\n")
    lists = told(
        capsys, "recommend", shop / "model", "--N", "5", "--candidates", shop / "new.txt", "--seen", "keep"
    )
    assert {item for one in lists for item in one["items"]} == {"i3", "i5"}


def test_one_user_on_the_screen(shop, capsys):
    out = run(capsys, "recommend", shop / "model", "--user", "u1", "--N", "2")
    assert "user u1: 2 items" in out
    assert "the list ends here" in out


def test_probabilities_above_and_below_the_line_are_of_one_kind(shop, capsys):
    model = sl.load_model(shop / "model")
    out = run(capsys, "recommend", shop / "model", "--user", "u1", "--user", "u2")
    heads = model.recommend(["u1", "u2"], N=100)
    chances = model.cutoff_.calibration_.probabilities(heads, history=model.history)
    for number in range(2):
        rows = out.split("user u")[number + 1].splitlines()
        end = next(at for at, row in enumerate(rows) if "the list ends here" in row)
        first = heads.indptr[number] + len([row for row in rows[:end] if row.endswith("%  ") or "%" in row])
        assert f"{chances[first]:.1%}" in rows[end + 1]
        assert len([row for row in rows[end + 1 :] if "%" in row]) == 5


def test_stranger_gets_an_empty_list_and_a_reason(shop, capsys):
    (one,) = told(capsys, "recommend", shop / "model", "--user", "nobody")
    assert (one["length"], one["reason"]) == (0, "unknown_user")


def test_inspect_tells_what_was_trained(shop, capsys):
    about = told(capsys, "inspect", shop / "model")
    assert (about["class"], about["cutoff"], about["params"]["n_factors"]) == ("DKHRM", "ExpectedF1", 8)
    assert about["boundary"]["lowest"] <= about["boundary"]["median"] <= about["boundary"]["highest"]
    assert sum(about["lengths"].values()) == 300
    out = run(capsys, "inspect", shop / "model")
    assert "DKHRM" in out
    assert "300 lists" in out


@pytest.mark.parametrize("test", [[], ["--test", "held.csv"]])
def test_fit_writes_a_report_on_baskets_nobody_learned_from(capsys, tmp_path, monkeypatch, test):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "sample", "--model", "PersonalFrequency", "--report", "report.html", *test]
    about = told(capsys, *words)
    assert about["report"] == "report.html"
    assert "The last basket of 300 users" in (tmp_path / "report.html").read_text(encoding="utf-8")
    rows = sl.load_dataset("sample").n_rows
    assert about["rows"] == (rows if not test else rows - pl.read_csv("held.csv").height)


def test_no_report_without_validation(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "sample", "--quick", "--report", "report.html"]) == 2
    assert "drop one" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_data_without_order_is_trained_without_validation(tmp_path, capsys):
    sl.load_dataset("sample").to_frame().select("user_id", "item_id").unique().write_csv(
        tmp_path / "pairs.csv"
    )
    about = told(capsys, "fit", tmp_path / "pairs.csv", "--out", tmp_path / "model", *QUICK)
    assert (about["class"], about["cutoff"]) == ("DKBPRMF", None)


def test_weights_are_said_to_be_kept_and_not_used(tmp_path, capsys):
    rated = sl.load_dataset("sample").to_frame().with_columns(rating=pl.lit(5))
    rated.write_csv(tmp_path / "rated.csv")
    words = ["fit", tmp_path / "rated.csv", "--quick", "--model", "Popularity", "--out", tmp_path / "m"]
    for flags, said in ([], True), (["--weight", ""], False):
        assert main([str(word) for word in (*words, *flags)]) == 0
        assert ("no model uses them" in capsys.readouterr().err) is said


@pytest.mark.parametrize(("columns", "said"), [(["user_id", "item_id"], True), (pl.all(), False)])
def test_repeats_that_cannot_be_told_from_duplicates_are_spoken_of(tmp_path, capsys, columns, said):
    rows = sl.load_dataset("sample").to_frame().select(columns)
    pl.concat([rows, rows.head(3)]).write_csv(tmp_path / "rows.csv")
    words = ["fit", tmp_path / "rows.csv", "--quick", "--model", "Popularity", "--out", tmp_path / "m"]
    assert main([str(word) for word in words]) == 0
    assert ("a second purchase looks like a duplicate" in capsys.readouterr().err) is said


def test_a_model_that_counts_is_cut_too(tmp_path, capsys):
    about = told(
        capsys, "fit", "sample", "--model", "PersonalFrequency", "--set", "decay=0.8", "--out", tmp_path / "m"
    )
    assert (about["params"]["decay"], about["cutoff"]) == (0.8, "ExpectedF1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "nowhere.csv"], "no such file"),
        (["fit", "sampel"], "did you mean 'sample'?"),
        (["fit", "sample", "--model", "HRM", "--t", "2"], "HRM has no parameter 't'"),
        (["fit", "sample", "--model", "DKHMR"], 'Did you mean "DKHRM"?'),
        (["fit", "sample", "--set", "window"], "--set takes NAME=VALUE"),
        (["fit", "sample", "--config", "/dev/null"], 'must hold model = "…"'),
        (["fit", "sample", "--cutoff", "ExpectdF1"], 'Did you mean "ExpectedF1"?'),
        (["evaluate", "a", "b", "--max_itms", "3"], "Did you mean --max_items?"),
        (["fit", "sample", "--alpha", "3", "--quick"], "alpha must lie between"),
        (["fit", "sample", "--budget", "2", "--model", "HRM"], "--budget is for choosing among all rankers"),
        (["fit", "sample", "--budget", "2", "--lr", "0.1"], "--budget is for choosing among all rankers"),
        (["fit", "sample", "--budget", "0"], "budget must be quick, default or a number"),
        (["fit", "sample", "--test", "held.txt"], "change the ending"),
        (["recommend", "nowhere"], "no saved model at nowhere"),
        (["inspect", "nowhere"], "no saved model at nowhere"),
        (["evaluate", "nowhere.parquet", "held.parquet"], "nowhere.parquet"),
    ],
)
def test_what_can_be_mended_is_said_in_a_sentence(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    err = capsys.readouterr().err.splitlines()
    assert sentence in err[-1]
    assert list(tmp_path.iterdir()) == []


def test_names_in_files_are_checked_like_flags(capsys, tmp_path):
    (tmp_path / "events.csv").write_text("customer,article\na,x\nb,y\n")
    columns = ["--user_id", "custmer", "--item_id", "article"]
    assert main(["fit", str(tmp_path / "events.csv"), *columns]) == 2
    assert "did you mean 'customer'?" in capsys.readouterr().err
    tuned = tmp_path / "tuned.toml"
    for text, words in {
        'model = "HMR"': "did you mean 'HRM'?",
        'model = "HRM"\n[param]\nlr = 1': "got 'param' too",
        'model = "HRM"\n[params]\nn_factr = 1': "HRM has no parameter 'n_factr'; did you mean 'n_factors'?",
    }.items():
        tuned.write_text(text)
        assert main(["fit", "sample", "--config", str(tuned)]) == 2
        assert words in capsys.readouterr().err


def test_without_a_model_the_best_one_is_chosen_and_said(capsys, tmp_path, monkeypatch):
    from shortlist.auto import fit as default

    monkeypatch.setattr(default, "RANKERS", ("Popularity", "PersonalFrequency"))
    words = ["fit", "sample", "--out", tmp_path / "m", "--report", tmp_path / "r.html"]
    out = run(capsys, *words)
    assert "PersonalFrequency(), cut by" in out
    assert "on the best fixed N" in out
    assert "The last basket of 300 users" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "PersonalFrequency(), cut by" in run(capsys, "inspect", tmp_path / "m")
    reasons = {one["reason"] for one in told(capsys, "recommend", tmp_path / "m")}
    assert reasons <= {"utility", "below_floor", "top_n"}


@pytest.mark.parametrize(("flags", "budget"), [([], "quick"), (["default"], "default"), (["3"], 3)])
def test_the_budget_of_the_choice_is_that_of_sl_fit(capsys, tmp_path, monkeypatch, flags, budget):
    from shortlist.auto import fit as default

    heard = []
    monkeypatch.setattr(default, "RANKERS", ("Popularity", "PersonalFrequency"))
    monkeypatch.setattr(default, "_n_trials", lambda said: heard.append(said) or 1)
    words = ["--budget", *flags] if flags else []
    run(capsys, "fit", "sample", "--out", tmp_path / "m", "--seed", "1", *words)
    assert heard == [budget]


def test_a_model_that_only_ranks_says_so(capsys, tmp_path):
    out = run(capsys, "fit", "sample", "--quick", "--model", "Popularity", "--out", tmp_path / "m")
    assert "which only ranks, so recommend needs --N" in out


def test_a_place_that_cannot_be_written_is_refused_before_training(shop, capsys):
    assert main(["fit", "sample", "--out", str(shop / "events.csv" / "model")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1  # not even the data was read


def test_a_file_in_the_way_is_not_overwritten(shop, capsys):
    assert main(["fit", "sample", "--quick", *QUICK, "--out", str(shop / "events.csv")]) == 2
    assert "not a saved model" in capsys.readouterr().err
    assert (shop / "events.csv").is_file()
