"""`cut`: any table in, the cutoff that is best on other users out; the gain is measured on users left out."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.auto import cut as module
from shortlist.auto import cutoff_choice
from shortlist.cutoff import Cutoff, ExpectedF1, FixedN, UtilityRegression, top_candidates
from shortlist.errors import ConfigError, DataError, UnknownIdError
from shortlist.reports.model_report import build_cut_report, render_model_report

from ..cutoff.test_regression import world

FEW = {
    "fixed N": FixedN(n_candidates=30),
    "shape": UtilityRegression(n_candidates=30),
}  # faster than the default


def tables(**options):
    """(candidates, truth) with text ids, as they come from a search engine."""
    scores, truth = world(**options)
    users, items = np.indices(scores.shape)
    frame = pl.DataFrame({"q": users.ravel(), "d": items.ravel(), "score": scores.ravel()})
    pairs = pl.DataFrame({"q": truth.user, "d": truth.item})
    names = pl.format("q{}", "q").alias("query_id"), pl.format("d{}", "d").alias("doc_id")
    return frame.select(*names, "score"), pairs.select(*names)


def test_one_call_from_tables_to_lists():
    candidates, truth = tables()
    later, outcome = tables(seed=1)
    result = sl.cut(candidates.to_pandas(), truth.to_arrow(), new=later.lazy())
    assert isinstance(result.cutoff, UtilityRegression)
    assert result.gain > 0.1
    low, high = result.gain_interval
    assert 0 < low < result.gain < high
    fixed = FixedN(n_candidates=30).fit(sl.RankedLists.from_frame(candidates), truth_of(truth))
    lists = sl.RankedLists.from_frame(later)
    ours, theirs = (sl.evaluate(one, truth_of(outcome)).f1 for one in (result.lists, fixed.apply(lists)))
    assert ours / theirs - 1 == pytest.approx(result.gain, abs=0.1)
    assert "over the best fixed N" in str(result)
    assert repr(result).startswith("CutResult(utility regression")
    assert result.curve["N"].to_list() == list(range(1, 31))
    assert result.calibration is None


def test_only_the_gain_on_users_left_out_is_shown_and_every_n_of_the_folds():
    candidates, truth = tables(n_lists=60)
    result = sl.cut(candidates, truth, cutoffs=FEW)
    assert str(result).count("over the best fixed N") == 1
    assert not any("%" in note for note in result.notes)
    shown = set(result.fixed.lengths.tolist())
    assert len(shown) > 1
    assert set(result.fixed_lengths) == shown
    assert f"N = {' or '.join(map(str, sorted(shown)))})" in str(result)
    page = render_model_report(build_cut_report("search", result))
    assert f"best fixed N = {' or '.join(map(str, sorted(shown)))}" in page
    assert not re.search(r"fixed N = \d+[<.)]", page)


def truth_of(table):
    return sl.Interactions.from_frame(table, user_id="query_id", item_id="doc_id")


def test_users_are_tested_by_cutoffs_that_did_not_see_them(monkeypatch):
    candidates, truth = tables(n_lists=60)
    seen = []
    compare = cutoff_choice.compare_cutoffs

    def spy(data, *given):
        seen.append(set(data.lists.users.values))
        return compare(data, *given)

    for place in (module, cutoff_choice):
        monkeypatch.setattr(place, "compare_cutoffs", spy)
    sl.cut(candidates, truth, cutoffs=FEW)
    everyone, *folds = seen
    assert len(everyone) == 60
    held = [everyone - fold for fold in folds]
    assert sorted(map(len, held)) == [12] * 5
    assert set.union(*held) == everyone


def weak(seed):
    """60 queries whose scores say little about relevance."""
    rng = np.random.default_rng(seed)
    scores = -np.sort(-rng.normal(size=(60, 20)), axis=1)
    drawn, of_query = rng.random(scores.shape), rng.normal(size=(60, 1))
    relevant = drawn < 1 / (1 + np.exp(1.5 - 0.7 * scores + 0.7 * of_query))
    relevant[:, 0] = True
    return scores, sl.Interactions.from_csr(relevant)


def expected(calibration):
    return ExpectedF1(n_candidates=20, calibration=calibration, size="probabilities")


EXPECTED = {"fixed N": FixedN(n_candidates=20), "platt": expected("platt"), "features": expected("features")}


def test_a_cutoff_that_loses_on_users_who_did_not_choose_it_is_not_saved(tmp_path):
    """Plain cross-validation prefers it by chance, .456 against .450; chosen without each fold it loses."""
    scores, truth = weak(seed=18)
    assert choose_by_scores(scores, truth) == "features"
    result = sl.cut(scores, truth, new=scores, cutoffs=EXPECTED)
    assert result.name == "fixed N"
    assert (
        Cutoff.load(result.save(tmp_path / "cut.shortlist")).lengths(scores).tolist()
        == [result.cutoff.N_] * 60
    )
    assert (result.gain, result.gain_interval) == (0, (0, 0))  # what is saved is what was measured
    assert result.tested.lengths.tolist() == result.fixed.lengths.tolist()
    lost = "'features' has -3.4% over the best fixed N (95% interval -1"
    assert any(lost in note for note in result.notes)
    n_folds = {"n_folds": 5, "default": "fixed N"}
    assert sl.choose_cutoff(result.candidates, truth, cutoffs=EXPECTED, **n_folds).name == "fixed N"


def choose_by_scores(scores, truth):
    """The name of the cutoff with the best scores in plain cross-validation."""
    data = cutoff_choice.SelectionData(top_candidates(scores, ids=truth), truth, None)
    return cutoff_choice.compare_cutoffs(data, EXPECTED, 5, "fixed N").name


def test_a_cutoff_that_wins_on_users_who_did_not_choose_it_is_saved():
    scores, truth = weak(seed=41)
    result = sl.cut(scores, truth, cutoffs=EXPECTED)
    assert result.name == choose_by_scores(scores, truth) == "features"
    assert result.gain > 0.1
    choice = sl.choose_cutoff(result.candidates, truth, cutoffs=EXPECTED, n_folds=5)
    assert choice.name == "features"
    assert "over the best fixed N (95% interval +" in choice.reason
    assert "on users who took no part in choosing it" in choice.reason


def test_noise_keeps_the_fixed_n_or_loses_little():
    candidates, truth = tables(informative=False)
    result = sl.cut(candidates, truth)
    assert result.gain > -0.05
    low, high = result.gain_interval
    assert low < 0.02
    assert high > -0.02


def test_order_of_rows_changes_nothing():
    candidates, truth = tables(n_lists=60)
    shuffled = candidates.sample(fraction=1.0, shuffle=True, seed=3)
    one, other = (sl.cut(table, truth, cutoffs=FEW) for table in (candidates, shuffled))
    assert one.name == other.name
    assert one.gain == other.gain
    assert (one.cutoff.weights_ == other.cutoff.weights_).all()


def test_probabilities_are_checked_by_a_table():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    kinds = {"fixed N": FixedN(n_candidates=20), "expected": sl.cutoff.ExpectedF1(n_candidates=20)}
    history = split.train.to_frame().to_pandas()
    result = sl.cut(candidates, split.valid, history=history, cutoffs=kinds, new=candidates)
    assert result.name == "expected"
    assert result.calibration["shown"].sum() == result.tested.items.size
    assert result.lists.probabilities is not None


def test_saved_cutoff_gives_the_same_lists(tmp_path):
    candidates, truth = tables(n_lists=60)
    result = sl.cut(candidates, truth, new=candidates, cutoffs=FEW)
    loaded = Cutoff.load(result.save(tmp_path / "cut.shortlist"))
    again = loaded.apply(candidates)
    assert again.to_frame().equals(result.lists.to_frame())


def test_arrays_and_functions_take_the_ids_of_the_truth():
    scores, truth = world(n_lists=60)
    from_array = sl.cut(scores, truth, new=scores, cutoffs=FEW)
    from_function = sl.cut(lambda users: scores[users], truth, new=lambda users: scores[users], cutoffs=FEW)
    assert from_array.lists.to_frame().equals(from_function.lists.to_frame())


def test_many_users_are_sampled(monkeypatch):
    monkeypatch.setattr(module, "MAX_USERS", 40)
    candidates, truth = tables(n_lists=60)
    result = sl.cut(candidates, truth, cutoffs=FEW)
    assert any("40 of 60 users" in note for note in result.notes)
    assert result.report.n_users == 40


def test_long_lists_are_shortened_with_a_note(monkeypatch):
    monkeypatch.setattr(module, "MAX_CANDIDATES", 10)
    candidates, truth = tables(n_lists=60)
    result = sl.cut(candidates, truth)
    assert any("the first 10 of up to 30 candidates" in note for note in result.notes)
    assert result.cutoff.n_candidates == 10
    assert sl.cut(candidates, truth, n_candidates=25).cutoff.n_candidates == 25


def test_wrong_input_is_refused():
    candidates, truth = tables(n_lists=19)
    with pytest.raises(DataError, match="at least 20 users, got 19 of 19"):
        sl.cut(candidates, truth)
    with pytest.raises(UnknownIdError, match="truth: user ids are integers, got the string 'q0'"):
        sl.cut(candidates, truth.with_columns(query_id=pl.int_range(len(truth))))
    with pytest.raises(ConfigError, match="metric must be one of"):
        sl.cut(candidates, truth, metric="map")
    with pytest.raises(ConfigError, match="n_candidates"):
        sl.cut(candidates, truth, n_candidates=0)


def money_world(seed=0, n_users=400, n_items=12):
    """Users of whom half take nothing; scores are the log-odds of the others."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-0.5, 1.5, (n_users, n_items)) - 0.3 * np.arange(n_items)
    takes = (rng.random((n_users, 1)) < 0.5) & (rng.random(odds.shape) < 1 / (1 + np.exp(-odds)))
    users, items = np.indices(odds.shape)
    table = pl.DataFrame({"user": users.ravel(), "item": items.ravel(), "score": odds.ravel()})
    return table, table.filter(pl.Series(takes.ravel())).select("user", "item")


def test_money_is_maximized_and_measured_over_everyone():
    candidates, truth = money_world()
    result = sl.cut(candidates, truth, gain=3.0, cost=1.0, users="everyone")
    assert result.metric == "value"
    assert result.report.n_users == 400
    pairs = set(truth.iter_rows())
    earned = sum(3.0 if (row[0], row[1]) in pairs else -1.0 for row in rows_of(result.tested))
    assert result.report.mean("value") == pytest.approx(earned / 400)
    assert f"Earned per 1,000 users {1000 * earned / 400:,.1f}" in str(result)
    p = result.tested.probabilities
    hits = sum((row[0], row[1]) in pairs for row in rows_of(result.tested))
    assert p.sum() == pytest.approx(hits, rel=0.2)  # of everyone, not of those who take anything
    buyers = sl.cut(candidates, truth, gain=3.0, cost=1.0)
    assert buyers.report.n_users == truth["user"].n_unique()
    assert any(f"{400 - buyers.report.n_users} of 400 lists were left out" in note for note in buyers.notes)


def rows_of(lists):
    return [(one.user_id, item) for one in lists for item in one.items]


def test_cutoffs_for_money_are_judged_by_money():
    candidates, truth = money_world()
    cutoffs = {
        "fixed N": FixedN(n_candidates=12),
        "value": sl.cutoff.ExpectedValue(n_candidates=12, gain=3.0, cost=1.0),
    }
    result = sl.cut(candidates, truth, cutoffs=cutoffs, users="everyone")
    assert (result.metric, result.money.gain, result.money.cost) == ("value", 3.0, 1.0)


def test_the_order_is_left_and_what_it_changes_is_measured():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    candidates = sl.Popularity().fit(split.train).recommend(N=20, filter_seen=False)
    table = candidates.to_frame().select("user_id", "item_id", "score")
    ordered = sl.cut(table, split.valid, history=split.train, keep_order=True)
    assert (ordered.tested.items == ordered.candidates.head(ordered.tested.lengths).items).all()
    assert not any("order" in note for note in ordered.notes)
    free = sl.cut(table, split.valid, history=split.train)
    by_score = free.candidates.head(free.tested.lengths)
    effect = sl.evaluate(free.tested, split.valid).f1 - sl.evaluate(by_score, split.valid).f1
    assert free.order_effect.difference == pytest.approx(effect)
    assert sum("this alone changes F1 by" in note for note in free.notes) == 1
    with pytest.raises(ConfigError, match="got 'features'"):
        sl.cut(table, split.valid, keep_order=True, cutoffs={"features": ExpectedF1(calibration="features")})


def test_missing_judgments_are_said():
    candidates, truth = tables(n_lists=60)
    table = candidates.join(truth.with_columns(relevance=pl.lit(1)), on=["query_id", "doc_id"], how="left")
    first = table.filter(pl.int_range(pl.len()).over("query_id") < 10)
    judged = first.with_columns(pl.col("relevance").fill_null(0)).select("query_id", "doc_id", "relevance")
    judged = judged.filter(pl.col("query_id") != "q7")
    result = sl.cut(candidates, judged, cutoffs=FEW)
    assert "1 of 60 lists were left out: nothing is relevant for them in the truth" in result.notes
    assert "of 30.0 candidates per list, 10.0 are assessed; all others count as not relevant" in result.notes


def questions(seed=0, n=300, n_passages=20):
    """Queries of which a third have no answer: their scores are lower."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 1, (n, n_passages))
    relevant = np.zeros(scores.shape, bool)
    relevant[: 2 * n // 3, :3] = True
    scores[relevant] += 2.5
    return scores, relevant, sl.Interactions.from_tuples(list(zip(*np.nonzero(relevant), strict=True)))


def test_lists_without_an_answer_stay_empty_and_errors_are_counted():
    scores, relevant, truth = questions()
    lists = top_candidates(scores)
    result = sl.cut(lists, truth, new=lists, users="everyone", min_relevant=0.4, cutoffs=SMALL)
    has_answer = relevant.any(axis=1)
    is_empty = result.tested.lengths == 0
    found = result.abstention
    assert (found.n_lists, found.n_without) == (300, 100)
    assert (found.n_empty, found.n_right) == (is_empty.sum(), (is_empty & ~has_answer).sum())
    assert found.precision == found.n_right / found.n_empty > 0.7
    assert found.recall == found.n_right / 100 > 0.5
    assert f"Left empty: {found.n_right} of 100 lists without a relevant candidate" in str(result)
    assert str(replace(found, n_empty=0, n_right=0)).endswith("and 0 of 200 others (0.0%)")
    assert result.lists.reason_of(int(np.flatnonzero(result.lists.lengths == 0)[0])) == "none_relevant"
    with pytest.raises(ConfigError, match='needs users="everyone"'):
        sl.cut(lists, truth, min_relevant=0.4)
    with pytest.raises(DataError, match="at least 5 lists without a relevant candidate"):
        sl.cut(lists.take(range(200)), truth, users="everyone", min_relevant=0.4, cutoffs=SMALL)


SMALL = {"fixed N": FixedN(n_candidates=20), "shape": UtilityRegression(n_candidates=20)}


def test_lists_fit_into_a_size(tmp_path):
    candidates, truth = tables(n_lists=60)
    tokens = pl.Series(np.random.default_rng(0).integers(50, 400, 30))
    candidates = candidates.with_columns(
        tokens=tokens.gather(candidates["doc_id"].str.slice(1).cast(pl.Int64))
    )
    result = sl.cut(candidates, truth, new=candidates, sizes="tokens", max_size=900, cutoffs=FEW)
    shown = result.lists.to_frame().filter(pl.col("rank") > 0)
    shown = shown.join(candidates, left_on=["user_id", "item_id"], right_on=["query_id", "doc_id"])
    assert shown.group_by("user_id").agg(pl.col("tokens").sum())["tokens"].max() <= 900
    assert "Mean size of a list" in str(result)
    assert "size_limit" in set(result.lists.summary()["reason"])
    loaded = Cutoff.load(result.save(tmp_path / "cut.shortlist"))
    show, one = loaded.prepare(), candidates.filter(pl.col("query_id") == "q3")
    positions = show(one["score"], one["tokens"])
    assert sorted(one["doc_id"].gather(positions)) == sorted(result.lists["q3"].items)
    for words, options in (
        ("got no max_size", {"sizes": "tokens"}),
        ("must name a column of numbers", {"sizes": "words", "max_size": 9}),
    ):
        with pytest.raises(ConfigError, match=words):
            sl.cut(candidates, truth, **options)
    with pytest.raises(DataError, match="needs the size of each item"):
        loaded.apply(candidates)
