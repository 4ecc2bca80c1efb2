"""fit, recommend, evaluate and inspect, as typed on a command line."""

import json
import re
import shlex

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.app import build
from shortlist.serve.config import load_config
from shortlist.serve.store import EventStore
from tests import exports

QUICK = ["--set", "n_epochs=3", "n_factors=8"]


def run(capsys, *words) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def run_json(capsys, *words):
    return json.loads(run(capsys, *words, "--json"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a model, the held-out last baskets, and the events as CSV."""
    folder = tmp_path_factory.mktemp("trained")
    events = folder / "events.csv"
    sl.load_dataset("sample").to_frame().write_csv(events)
    words = [
        "fit",
        str(events),
        "--out",
        str(folder / "model"),
        "--test",
        str(folder / "held.parquet"),
        "--cutoff",
        "ExpectedF1",
        *QUICK,
    ]
    assert main(words) == 0
    return folder


def write_items(folder):
    """Articles of the sample, and two new ones, whose topics do not repeat."""
    data = sl.load_dataset("sample")
    topics = [["tea", "soap", "rope"][at % 3] for at in range(data.n_items)]
    pl.DataFrame({"item_id": data.items.values, "topic": topics}).write_csv(folder / "items.csv")
    pl.DataFrame({"item_id": ["n1", "n2"], "topic": ["tea", "rope"]}).write_csv(folder / "new.csv")
    (folder / "new.txt").write_text("n1\nn2\n")


def test_items_of_a_file(capsys, tmp_path):
    write_items(tmp_path)
    sl.load_dataset("sample").to_frame().write_csv(tmp_path / "reads.csv")
    words = ["fit", tmp_path / "reads.csv", "--items", tmp_path / "items.csv", "--quick"]
    run(capsys, *words, "--model", "ContentProfile", "--out", tmp_path / "m")
    today = ["--items", tmp_path / "new.csv"]
    only = ["--candidates", tmp_path / "new.txt", "--N", "2"]
    lists = run_json(capsys, "recommend", tmp_path / "m", "--user", "u1", *today, *only)
    model = sl.load_model(tmp_path / "m")
    assert "n1" not in model.items_, "recommend does not change the file"
    same = model.add_items(pl.read_csv(tmp_path / "new.csv"))
    expected = same.recommend(["u1"], candidates=["n1", "n2"], N=2)["u1"]
    assert lists[0]["items"] == expected.items


def test_items_need_a_model_that_uses_them(capsys, tmp_path, trained):
    write_items(tmp_path)
    words = ["recommend", trained / "model", "--items", tmp_path / "new.csv"]
    assert main([str(word) for word in words]) == 2
    assert "--items needs a model fitted with --items" in capsys.readouterr().err
    words = ["fit", "sample", "--items", tmp_path / "items.csv", "--model", "Popularity"]
    assert main([str(word) for word in words]) == 2
    assert "uses the content of items" in capsys.readouterr().err


def test_examples_in_every_help_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rated = sl.load_dataset("sample").to_frame().with_row_index("n").with_columns(weight=pl.col("n") % 5 + 1)
    for name in ("orders.csv", "ratings.csv", "reads.csv"):
        rated.drop("n").write_csv(tmp_path / name)
    write_items(tmp_path)
    exports.clickstream(tmp_path / "events.ndjson")
    rated.drop("n", "weight").write_parquet(tmp_path / "events.parquet")
    split = sl.split.last_basket(sl.load_dataset("sample"))
    for name in ("scores", "tomorrow"):
        sl.PersonalFrequency().fit(split.train).recommend(N=30).write(tmp_path / f"{name}.parquet")
    split.valid.to_frame().write_parquet(tmp_path / "next.parquet")
    later = split.test.to_frame().with_columns(pl.col("timestamp").dt.offset_by("1y"))
    later.write_parquet(tmp_path / "next_week.parquet")
    (tmp_path / "optout.csv").write_text("user_id\nu1\n")
    (tmp_path / "sent.csv").write_text("user_id,timestamp\nu2,2024-06-28\n")
    (tmp_path / "lists").mkdir()
    sl.PersonalFrequency().fit(split.train).recommend(N=3).write(tmp_path / "lists" / "1.parquet")
    store = EventStore(load_config({"model": "shop.shortlist"}).database)
    store.create()
    store.close()
    app = build()
    commands = [[name] for name in app if not name.startswith("-")]
    commands += [["service", name] for name in build("service")["service"] if not name.startswith("-")]
    for command in commands:
        shown = re.sub(r"\\\n +", "", run(capsys, *command, "--help"))  # a backslash continues a line
        examples = re.findall(r"^  (shortlist .*)$", shown, re.MULTILINE)
        assert examples, f"shortlist {' '.join(command)} --help has no example"
        for example in examples:
            words = shlex.split(example)[1:]
            # a guarantee needs a good model, so its example is run as it is
            shorter = QUICK if words[0] == "fit" and "--min_precision" not in words else []
            shorter = ["--quick"] if "--set" in words else shorter
            shorter = [] if {"--items", "--trials"} & set(words) else shorter  # without epochs and factors
            if words[0] == "demo":
                continue  # these take minutes or need a network
            if words[0] == "serve" or "postgresql:" in example or words[:2] == ["service", "refit"]:
                continue  # runs until it is stopped, or needs a server or new events
            if "--spark" in words:
                continue  # needs Java
            assert main([*words, *shorter]) == 0, example


def test_fit_writes_the_held_out_rows(trained):
    held, model = pl.read_parquet(trained / "held.parquet"), sl.load_model(trained / "model")
    assert held.height + model.history_.n_rows == sl.load_dataset("sample").n_rows
    assert held["user_id"].n_unique() == 300


def test_saved_cutoff_applies_unless_a_flag_sets_another(trained, capsys):
    reasons = [
        {one["reason"] for one in run_json(capsys, "recommend", trained / "model", *flags)}
        for flags in ([], ["--cutoff", "boundary"], ["--N", "3"])
    ]
    assert reasons[0] <= {"utility", "below_floor", "all_candidates"}
    assert reasons[1] <= {"utility", "all_candidates"}
    assert reasons[2] == {"top_n"}


def test_lists_are_written_to_one_file(trained, capsys):
    assert main(["recommend", str(trained / "model"), "--out", str(trained / "lists")]) == 2
    assert "--out must end in .parquet, .csv, .jsonl unless --spark" in capsys.readouterr().err
    assert not (trained / "lists").exists()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_all_list_formats_evaluate_to_the_same_scores(trained, capsys, ending):
    for out in (trained / f"same.{ending}", trained / "same.parquet"):
        run(capsys, "recommend", trained / "model", "--out", out)
    one, other = (
        run_json(capsys, "evaluate", trained / name, "--truth", trained / "held.parquet")["all"]["f1"]
        for name in (f"same.{ending}", "same.parquet")
    )
    assert one == pytest.approx(other)


def test_candidates_limit_the_lists(trained, capsys):
    (trained / "new.txt").write_text("i3\n\ni5\n")
    lists = run_json(
        capsys,
        "recommend",
        trained / "model",
        "--N",
        "5",
        "--candidates",
        trained / "new.txt",
        "--no_filter_seen",
    )
    assert {item for one in lists for item in one["items"]} == {"i3", "i5"}


def test_displayed_probabilities_are_those_of_the_cutoff(trained, capsys):
    model = sl.load_model(trained / "model")
    out = run(capsys, "recommend", trained / "model", "--user", "u1", "--user", "u2")
    for user in ("u1", "u2"):
        rows = out.split(f"user {user}:")[1].split("user u")[0].splitlines()
        end = next(at for at, row in enumerate(rows) if "the list ends here" in row)
        table = model.explain(user)
        below = table.filter(~table["shown"])
        shown = [row for row in rows[:end] if "%" in row]
        assert len(shown) == table["shown"].sum() == len(model.recommend([user])[user])
        assert f"{table['probability'][0]:.1%}" in shown[0]
        assert f"{below['probability'][0]:.1%}" in rows[end + 1]
        assert len([row for row in rows[end + 1 :] if "%" in row]) == 5


def test_boundary_and_another_cutoff_exclude_each_other(trained, capsys):
    cutoff = sl.load_model(trained / "model").cutoff_.save(trained / "cutoff")
    ours = run_json(capsys, "recommend", trained / "model")
    assert run_json(capsys, "recommend", trained / "model", "--cutoff", cutoff) == ours
    assert main(["recommend", str(trained / "model"), "--N", "3", "--cutoff", str(cutoff)]) == 2
    assert "--N and --cutoff both set the length of lists; drop one" in capsys.readouterr().err


def test_unknown_user_gets_an_empty_list_and_a_reason(trained, capsys):
    both = run_json(capsys, "recommend", trained / "model", "--user", "u1", "u999")
    assert (both[1]["length"], both[1]["reason"]) == (0, "unknown_user")
    assert main(["recommend", str(trained / "model"), "--user", "u999", "--json"]) == 2  # no known user


def test_inspect_shows_what_was_trained(trained, capsys):
    about = run_json(capsys, "inspect", trained / "model")
    assert (about["class"], about["cutoff"], about["params"]["n_factors"]) == ("DKHRM", "ExpectedF1", 8)
    assert about["boundary"]["lowest"] <= about["boundary"]["median"] <= about["boundary"]["highest"]
    assert sum(about["lengths"].values()) == 300
    out = run(capsys, "inspect", trained / "model")
    assert "DKHRM" in out
    assert "300 lists" in out


@pytest.mark.parametrize("test", [[], ["--test", "held.csv"]])
def test_fit_writes_a_report_on_unseen_baskets(capsys, tmp_path, monkeypatch, test):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "sample", "--model", "PersonalFrequency", "--report", "report.html", *test]
    about = run_json(capsys, *words)
    assert about["report"] == "report.html"
    assert "The last basket of 300 users" in (tmp_path / "report.html").read_text(encoding="utf-8")
    rows = sl.load_dataset("sample").n_rows
    assert about["rows"] == (rows if not test else rows - pl.read_csv("held.csv").height)


def test_time_of_the_lists_is_said(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "sample", "--model", "PersonalFrequency", "--out", "m.shortlist", "--report", "r.html"]
    assert main(words) == 0
    sentence = "test basket; shortlist recommend makes lists as of the last event"
    assert f"made at the time of the user's {sentence}" in capsys.readouterr().err
    assert "made at the time of the user" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert main(["recommend", "m.shortlist", "--out", "lists.parquet"]) == 0
    assert "lists as of 2024-06-28" in capsys.readouterr().err
    assert main(["recommend", "m.shortlist", "--out", "lists.parquet", "--at", "2024-07-03"]) == 0
    assert "lists as of" not in capsys.readouterr().err


def test_no_report_without_validation(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "sample", "--quick", "--report", "report.html"]) == 2
    assert "drop one of them" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [[], ["--model", "Popularity"]])
def test_no_report_without_a_stopping_rule(capsys, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "sample", *flags, "--cutoff", "none", "--report", "r.html"]) == 2
    assert "--report needs a cutoff" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_report_without_a_cutoff_is_about_the_boundary(tmp_path, capsys):
    words = ["fit", "sample", "--model", "DKBPRMF", *QUICK, "--cutoff", "none", "--out", tmp_path / "model"]
    assert "Cutoff: expected-F1 boundary" in run(capsys, *words, "--report", tmp_path / "r.html")
    assert sl.load_model(tmp_path / "model").cutoff_ is None
    assert "with the model, on what its training held out" in (tmp_path / "r.html").read_text(
        encoding="utf-8"
    )


def test_unordered_data_is_validated_on_random_items(tmp_path, capsys):
    sl.load_dataset("sample").to_frame().select("user_id", "item_id").unique().write_csv(
        tmp_path / "pairs.csv"
    )
    words = ["fit", tmp_path / "pairs.csv", "--cutoff", "ExpectedF1", "--out", tmp_path / "model"]
    about = run_json(capsys, *words, *QUICK)
    assert (about["class"], about["cutoff"]) == ("DKBPRMF", "ExpectedF1")


def test_unordered_data_is_tested_on_random_items(tmp_path, capsys):
    pairs = sl.load_dataset("sample").to_frame().select("user_id", "item_id").unique(maintain_order=True)
    pairs.write_csv(tmp_path / "pairs.csv")
    words = ["fit", tmp_path / "pairs.csv", "--model", "Popularity", "--out", tmp_path / "model"]
    run(capsys, *words, "--test", tmp_path / "held.parquet", "--report", tmp_path / "r.html")
    held = pl.read_parquet(tmp_path / "held.parquet")
    assert 0.1 * pairs.height < held.height < 0.25 * pairs.height
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "drawn at random" in text
    assert "last basket" not in text
    assert "next basket" not in text


def test_unused_weights_are_reported(tmp_path, capsys):
    rated = sl.load_dataset("sample").to_frame().with_columns(rating=pl.lit(5))
    rated.write_csv(tmp_path / "rated.csv")
    words = ["fit", tmp_path / "rated.csv", "--quick", "--model", "Popularity", "--out", tmp_path / "m"]
    for flags, reported in ([], True), (["--weight", ""], False):
        assert main([str(word) for word in (*words, *flags)]) == 0
        assert ("--set weighting=linear, log or cap" in capsys.readouterr().err) is reported


@pytest.mark.parametrize(("columns", "reported"), [(["user_id", "item_id"], True), (pl.all(), False)])
def test_possible_repeats_without_times_are_reported(tmp_path, capsys, columns, reported):
    rows = sl.load_dataset("sample").to_frame().select(columns)
    pl.concat([rows, rows.head(3)]).write_csv(tmp_path / "rows.csv")
    words = ["fit", tmp_path / "rows.csv", "--quick", "--model", "Popularity", "--out", tmp_path / "m"]
    assert main([str(word) for word in words]) == 0
    assert ("rows repeat a user and an item and were merged" in capsys.readouterr().err) is reported


def test_counting_model_gets_a_cutoff_too(tmp_path, capsys):
    about = run_json(
        capsys, "fit", "sample", "--model", "PersonalFrequency", "--set", "decay=0.8", "--out", tmp_path / "m"
    )
    assert (about["params"]["decay"], about["cutoff"]) == (0.8, "ExpectedF1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "nowhere.csv"], "no such file"),
        (["fit", "sampel"], "did you mean 'sample'?"),
        (["fit", "sample", "--model", "HRM", "--set", "t=2"], "HRM has no parameter 't'"),
        (["fit", "sample", "--model", "DKHMR"], "did you mean 'DKHRM'?"),
        (["fit", "sample", "--trils", "3"], "Did you mean --trials?"),
        (["fit", "sample", "--model", "HRM", "--set", "windw=3"], "did you mean 'window'?"),
        (["fit", "sample", "--set", "n_factors"], "--set must be NAME=VALUE, got 'n_factors'"),
        (["fit", "sample", "--config", "/dev/null"], 'must contain model = "…"'),
        (["fit", "sample", "--cutoff", "ExpectdF1"], "did you mean 'ExpectedF1'?"),
        (["evaluate", "a", "--truth", "b", "--max_itms", "3"], "Did you mean --max_items?"),
        (["fit", "sample", "--set", "alpha=3", "--quick"], "alpha must be a number between"),
        (["fit", "sample", "--trials", "2", "--quick"], "--trials tries several settings"),
        (["fit", "sample", "--trials", "2", "--set", "lr=0.1"], "--trials tries several settings"),
        (["fit", "sample", "--trials", "0"], "budget must be quick, default or a positive number"),
        (["fit", "sample", "--test", "held.txt"], "change the file name"),
        (["recommend", "nowhere"], "no saved model at nowhere"),
        (["inspect", "nowhere"], "no saved model at nowhere"),
        (["evaluate", "nowhere.parquet", "--truth", "sample"], "nowhere.parquet"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(capsys, tmp_path, monkeypatch, words, sentence):
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
        'model = "HRM"\n[params]\nn_factr = 1': "HRM has no parameter 'n_factr'; did you mean 'n_factors'?",
    }.items():
        tuned.write_text(text)
        assert main(["fit", "sample", "--config", str(tuned)]) == 2
        assert words in capsys.readouterr().err


def test_best_model_is_selected_and_reported(capsys, tmp_path, monkeypatch):
    import shortlist.auto.fit as auto

    monkeypatch.setattr(auto, "MODELS", ("Popularity", "PersonalFrequency"))
    words = ["fit", "sample", "--out", tmp_path / "m", "--report", tmp_path / "r.html"]
    out = run(capsys, *words)
    assert "PersonalFrequency(), cutoff: " in out
    assert "over the best fixed N" in out
    assert "The last basket of 300 users" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "PersonalFrequency(), cutoff: " in run(capsys, "inspect", tmp_path / "m")
    reasons = {one["reason"] for one in run_json(capsys, "recommend", tmp_path / "m")}
    assert reasons <= {"utility", "below_floor", "top_n", "all_candidates"}


@pytest.mark.parametrize(("flags", "budget"), [([], 1), (["3"], 3)])
def test_trials_are_passed_to_sl_fit(capsys, tmp_path, monkeypatch, flags, budget):
    import shortlist.auto.fit as auto

    received = []
    monkeypatch.setattr(auto, "MODELS", ("Popularity", "PersonalFrequency"))
    monkeypatch.setattr(auto, "_n_trials", lambda budget: received.append(budget) or 1)
    words = ["--trials", *flags] if flags else []
    run(capsys, "fit", "sample", "--out", tmp_path / "m", "--seed", "1", *words)
    assert received == [budget]


def test_command_line_and_library_fit_the_same_model(capsys, tmp_path):
    run(capsys, "fit", "sample", "--model", "BPRMF", *QUICK, "--cutoff", "Threshold", "--out", tmp_path / "m")
    ours = sl.load_model(tmp_path / "m")
    model = sl.BPRMF(n_epochs=3, n_factors=8)
    expected = sl.fit(sl.load_dataset("sample"), models=model, cutoff=sl.cutoff.Threshold())
    assert ours.recommend().items.tolist() == expected.recommend().items.tolist()
    assert ours.selection_ == expected.selection_


def test_named_model_is_tried_with_a_budget(capsys, tmp_path):
    words = ["--model", "Popularity", "--trials", "3", "--metric", "ndcg"]
    run(capsys, "fit", "sample", "--out", tmp_path / "m", *words)
    expected = sl.fit(sl.load_dataset("sample"), models="Popularity", budget=3, metric="ndcg").selection_
    assert sl.load_model(tmp_path / "m").selection_ == expected


def test_validation_by_time_is_passed_to_sl_fit(capsys, tmp_path):
    words = ["--model", "PersonalFrequency", "--trials", "1", "--validation", "by-time"]
    run(capsys, "fit", "sample", "--out", tmp_path / "m", *words)
    report = sl.load_model(tmp_path / "m").selection_
    expected = sl.fit(
        sl.load_dataset("sample"), models="PersonalFrequency", budget="quick", validation="by_time"
    )
    assert report == expected.selection_
    assert main(["fit", "sample", "--quick", "--validation", "by-time", "--out", str(tmp_path / "q")]) == 2
    assert "--validation needs validation" in capsys.readouterr().err


def test_model_without_cutoff_and_boundary_asks_for_n(capsys, tmp_path):
    out = run(capsys, "fit", "sample", "--quick", "--model", "Popularity", "--out", tmp_path / "m")
    assert "Cutoff: none; shortlist recommend needs --N" in out


def test_unwritable_path_is_refused_before_training(trained, capsys):
    assert main(["fit", "sample", "--out", str(trained / "events.csv" / "model")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1  # the data was not read


def test_file_that_is_not_a_model_is_not_overwritten(trained, capsys):
    assert main(["fit", "sample", "--quick", *QUICK, "--out", str(trained / "events.csv")]) == 2
    assert "not a saved model" in capsys.readouterr().err
    assert (trained / "events.csv").is_file()


def test_several_files_of_lists_are_compared(tmp_path, capsys):
    lists, truth = tmp_path / "a.csv", tmp_path / "truth.csv"
    lists.write_text("user_id,item_id,rank\nu,x,1\nv,y,1\n")
    other = tmp_path / "b.csv"
    other.write_text("user_id,item_id,rank\nu,y,1\nv,y,1\n")
    truth.write_text("user_id,item_id\nu,x\nv,y\n")
    command = ["evaluate", f"good={lists}", str(other), "--truth", str(truth)]
    assert main([*command, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["table"]
    assert [(row["model"], row["F1"]) for row in table] == [("good", 1.0), ("b", 0.5)]
    assert main([*command, "--out", str(tmp_path / "table.md")]) == 0
    assert "| good" in (tmp_path / "table.md").read_text()
    assert main([*command, "--out", str(tmp_path / "table.tex"), "--baseline", "b"]) == 0
    assert "tabular" in (tmp_path / "table.tex").read_text()
    assert main(["evaluate", str(lists), "--truth", str(truth), "--out", str(tmp_path / "table.csv")]) == 0
    assert (tmp_path / "table.csv").read_text().splitlines()[1].startswith("a,")
    capsys.readouterr()
    assert main(["evaluate", str(lists), str(lists), "--truth", str(truth)]) == 2
    assert "different names" in capsys.readouterr().err
    assert main([*command, "--history", str(truth)]) == 2
    assert "--history belongs to one file of lists" in capsys.readouterr().err


def test_a_file_may_have_an_equals_sign_in_its_name(tmp_path, capsys):
    folder = tmp_path / "day=2024-05-01"
    folder.mkdir()
    (folder / "lists.csv").write_text("user_id,item_id,rank\nu,x,1\nv,y,1\n")
    (tmp_path / "truth.csv").write_text("user_id,item_id\nu,x\nv,y\n")
    report = run_json(capsys, "evaluate", folder / "lists.csv", "--truth", tmp_path / "truth.csv")
    assert report["all"]["f1"] == 1.0
