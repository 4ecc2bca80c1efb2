"""Every rule that a model file must keep, broken one at a time with valid checksums."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array
from shortlist_extras import FrozenBoundary

from shortlist.cutoff import Cutoff, ExpectedF1, Threshold
from shortlist.errors import ModelFileError
from shortlist.models.base import load_model
from shortlist.models.selection import SelectionReport
from tests.models.cases import ALL_MODELS, checkerboard, fit, fitted, other_scores
from tests.models.crafted import read_parts, write_parts

HIGH = 2**31 - 1


def element(name, at, value):
    """A change of one element."""

    def change(parts):
        parts.arrays[name].reshape(-1)[at] = value

    return change


def rows(name, n):
    """A change of the number of rows."""

    def change(parts):
        parts.arrays[name] = np.resize(parts.arrays[name], (n, *parts.arrays[name].shape[1:]))

    return change


def cast(name, dtype):
    def change(parts):
        parts.arrays[name] = parts.arrays[name].astype(dtype)

    return change


def drop(name):
    return lambda parts: parts.arrays.pop(name)


def param(name, value):
    return lambda parts: parts.description["params"].update({name: value})


def note(name, value):
    return lambda parts: parts.description["notes"].update({name: value})


def both(*changes):
    def change(parts):
        for one in changes:
            one(parts)

    return change


def no_times(parts):
    parts.description["notes"]["history"]["time"] = None


def same_ids(parts):
    parts.arrays["series.history.users.bytes"][:] = ord("u")


def refuse(path, parts, change, load=load_model):
    change(parts)
    write_parts(path, parts)
    with pytest.raises(ModelFileError, match="cannot load") as caught:
        load(path)
    assert len(str(caught.value)) < 400 + len(str(path))
    return str(caught.value)


HISTORY = {
    "item too high": (element("history.item", 3, HIGH), "'history.item' must hold indices of items"),
    "item negative": (element("history.item", 3, -1), "'history.item' must hold indices of items"),
    "items not sorted": (
        lambda parts: parts.arrays["history.item"].sort(),
        "'history.item' must hold indices of items",
    ),
    "times go back": (element("history.time", 0, 10**12), "sorted by user, time and item, got .* in row 1"),
    "time out of range": (element("history.time", -1, 2**62), "'history.item' must hold"),
    "basket starts high": (element("history.baskets", 1, 2**40), "'history.baskets' must ascend"),
    "basket starts negative": (element("history.baskets", 0, -5), "must lead from 0 to 300, got -5"),
    "empty basket": (
        lambda parts: parts.arrays["history.baskets"].put(1, parts.arrays["history.baskets"][2]),
        "must divide|in row",
    ),
    "baskets of users": (element("history.user_baskets", 1, 0), "must divide the rows like indptr"),
    "indptr ends late": (element("history.indptr", -1, 2**40), "'history.indptr' must lead from 0 to 300"),
    "indptr shorter": (rows("history.indptr", 5), "'history.indptr' must have shape 31, got 5"),
    "no baskets": (rows("history.baskets", 0), "'history.baskets' must have shape 1, got 0"),
    "item as long": (cast("history.item", np.int64), "'history.item' must have type int32, got int64"),
    "times shorter": (rows("history.time", 5), "'history.time' must have shape 300, got 5"),
    "no items": (drop("history.item"), "'history.item' is missing"),
    "repeated ids": (same_ids, "'history.users' must hold distinct ids, none missing"),
    "missing id": (
        lambda parts: parts.arrays.update({"series.history.users.valid": np.arange(30) > 0}),
        "'history.users' must hold distinct ids, none missing",
    ),
    "no users": (
        lambda parts: parts.description["series"].pop("history.users"),
        "'history.users' is missing",
    ),
    "unknown class": (
        lambda parts: parts.description.update({"class": "Missing"}),
        "holds a Missing, unknown to this version",
    ),
    "abstract class": (
        lambda parts: parts.description.update({"class": "FactorModel"}),
        "holds a FactorModel, unknown to this version",
    ),
    "unknown parameter": (param("extra", 1), "'extra' is unknown"),
    "cutoff not one": (
        note("cutoff", {"class": "Calibration", "params": {}, "fitted": {}}),
        "must be a Cutoff, got 'Calibration'",
    ),
    "cutoff of a class": (
        note("cutoff", {"class": "os.system", "params": {}, "fitted": {}}),
        "must be a Cutoff, got 'os.system'",
    ),
    "attribute of a class": (
        note("cutoff", {"class": "FixedN", "params": {}, "fitted": {"fit": 3}}),
        "'cutoff.fit' is unknown",
    ),
    "report not one": (note("selection", {"models": 3}), "'selection.validation' is missing"),
}


@pytest.mark.parametrize("case", HISTORY)
def test_history_is_checked(case, tmp_path):
    change, sentence = HISTORY[case]
    parts = read_parts(fitted("Popularity").save(tmp_path / "m"))
    if "unknown to this version" in sentence:
        change(parts)
        write_parts(tmp_path / "m", parts)
        with pytest.raises(ModelFileError, match=sentence):
            load_model(tmp_path / "m")
        return
    message = refuse(tmp_path / "m", parts, change)
    assert pl.Series([message]).str.contains(sentence).all(), message


MODELS = {
    ("Popularity", "NaN"): (element("counts.counts", 0, np.nan), "must be finite"),
    ("Popularity", "rows"): (rows("counts.counts", 3), "must have shape 20, got 3"),
    ("PersonalFrequency", "rows"): (rows("counts.counts", 3), "'counts.counts' must have shape 20, got 3"),
    ("PersonalFrequency", "decay"): (param("decay", 0), "decay must be a number above 0 and at most 1"),
    ("EASE", "columns"): (lambda p: p.arrays.update({"weights": np.ones((20, 3), "f4")}), "20 × 20"),
    ("ALS", "rows"): (rows("vectors.items", 3), "'vectors.items' must have shape 20 × 256, got 3 × 256"),
    ("ALS", "users"): (rows("vectors.users", 3), "'vectors.prints' must have shape 3, got 30"),
    ("ALS", "prints"): (element("vectors.prints", 0, np.nan), "'vectors.prints' must be finite"),
    ("GFCF", "rows"): (rows("filter.basis", 3), "'filter.basis' must have shape 256 × 20, got 3 × 20"),
    ("GFCF", "columns"): (
        element("filter.matrix.columns", 0, 20),
        "'filter.matrix.columns' must be from 0 to 19",
    ),
    ("GFCF", "starts"): (element("filter.matrix.indptr", 1, 10**6), "'filter.matrix.indptr' must ascend"),
    ("MatrixBlend", "rows"): (rows("graph.basis", 3), "'graph.basis' must have shape 256 × 20, got 3 × 20"),
    ("MatrixBlend", "scales"): (element("scales", 0, np.nan), "'scales' must be finite"),
    ("TIFUKNN", "rows"): (rows("earlier.values", 3), "'earlier.indptr' must lead from 0 to 3"),
    ("UPCF", "window"): (note("window", 0), "'window' must be a whole number of at least 1"),
    ("UPCF", "alpha"): (param("alpha", 2), "alpha must be a number between"),
    ("TIFUKNN", "n_neighbors"): (param("n_neighbors", 0), "n_neighbors must be a whole number"),
    ("PrecomputedScores", "rows"): (rows("scores", 3), "'scores' must have shape 30 × 20, got 3 × 20"),
    ("PrecomputedScores", "form"): (note("scores", "pickle"), "'scores' is missing"),
    ("BPRMF", "fewer items"): (
        rows("parameters.item", 3),
        "'parameters.item' must have shape 20 × 8, got 3 × 8",
    ),
    ("BPRMF", "n_factors"): (param("n_factors", 9), "'mean_user' must have shape 9, got 8"),
    ("BPRMF", "infinite"): (element("parameters.user", 0, np.inf), "'parameters.user' must be finite"),
    ("BPRMF", "large"): (
        element("parameters.user", 0, 1e30),
        "'parameters.user' must be at most 1e\\+12 in size",
    ),
    ("BPRMF", "bias"): (param("bias", False), "'parameters.bias' must have shape 0, got 20"),
    ("BPRMF", "bias type"): (param("bias", "yes"), "bias must be True or False"),
    ("BPRMF", "doubles"): (cast("parameters.item", np.float64), "'parameters.item' must have type float32"),
    ("BPRMF", "extra"): (lambda p: p.arrays.update({"extra": np.ones(3)}), "'extra' is unknown"),
    ("LogMF", "losses"): (note("losses", [1, "x"]), "'losses' must be a list"),
    ("CRRMF", "alpha"): (param("alpha", "half"), "alpha must be a number between 0"),
    ("DKBPRMF", "boundary"): (
        rows("parameters.boundary", 3),
        "'parameters.boundary' must have shape 30, got 3",
    ),
    ("DKBPRMF", "loss"): (param("loss", ["hinge"]), "loss must be one of"),
    ("HRM", "repeat term"): (param("repeat_decay", 0.5), "'start_weights' must have a weight for each term"),
    ("DKHRM", "trend term"): (
        both(drop("history.time"), no_times, param("trend_half_life", 2.0)),
        "'history.time' is missing, but the model has a trend term",
    ),
    ("DKHRM", "stopped"): (note("stopped", "never"), "'stopped' must be one of"),
    ("DKHRM", "window"): (param("window", 0), "window must be a whole number"),
    ("ContentProfile", "fields"): (rows("weights.fields", 1), "'weights.fields' must have shape"),
    ("ContentProfile", "intercept"): (
        lambda p: p.description["notes"]["weights"].update(intercept="x"),
        "'weights.intercept' must",
    ),
    ("TwoStage", "quota"): (
        param("candidates_per_source", 0),
        "candidates_per_source must be",
    ),
    ("TwoStage", "bags"): (param("n_bags", 2), "'ranker_texts' must hold 2 ensembles, got 1"),
    ("TwoStage", "features"): (note("features", ["age"]), "trained on other features"),
    ("TwoStage", "swapped"): (
        lambda p: p.arrays.update({"ranker_texts.0": p.arrays["size_text"]}),
        "the trees must be binary with at most 48 columns",
    ),
    ("TwoStage", "names"): (param("exclude_features", 3), "exclude_features must be a list"),
}


@pytest.mark.parametrize(("name", "case"), MODELS)
def test_model_is_checked(name, case, tmp_path):
    change, sentence = MODELS[name, case]
    message = refuse(tmp_path / "m", read_parts(fitted(name).save(tmp_path / "m")), change)
    assert pl.Series([message]).str.contains(sentence).all(), message


def test_every_model_is_covered():
    assert {name for name, _ in MODELS} == set(ALL_MODELS)


def edit_trees(old, new):
    def change(parts):
        text = parts.arrays["ranker_texts.0"].tobytes().decode()
        assert old(text) in text
        text = text.replace(old(text), new(old(text)), 1)
        parts.arrays["ranker_texts.0"] = np.frombuffer(text.encode(), np.uint8)

    return change


def line(name):
    return lambda text: f"{name}={text.partition(f'{name}=')[2].partition(chr(10))[0]}\n"


TREES = {
    "cycle": (line("left_child"), lambda old: "left_child=0" + old[old.index(" ") :]),
    "child out of range": (line("right_child"), lambda old: "right_child=99" + old[old.index(" ") :]),
    "feature out of range": (line("split_feature"), lambda old: "split_feature=99" + old[old.index(" ") :]),
    "huge number": (line("split_feature"), lambda old: f"split_feature={2**70}" + old[old.index(" ") :]),
    "leaf not a number": (line("leaf_value"), lambda old: "leaf_value=nan" + old[old.index(" ") :]),
    "leaf infinite": (line("leaf_value"), lambda old: "leaf_value=inf" + old[old.index(" ") :]),
    "fewer thresholds": (line("threshold"), lambda old: "threshold=0.5\n"),
}


@pytest.mark.parametrize("case", TREES)
def test_trees_are_checked(case, tmp_path):
    one = fit("TwoStage", checkerboard(), n_rounds=3)
    parts = read_parts(one.save(tmp_path / "m"))
    assert "the trees cannot be read" in refuse(tmp_path / "m", parts, edit_trees(*TREES[case]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (element("scores.indptr", 1, 2**31 - 1), "'scores.indptr' must ascend"),
        (element("scores.indptr", 0, -5), "'scores.indptr' must lead from 0"),
        (element("scores.columns", 0, 20), "'scores.columns' must be from 0 to 19"),
        (element("scores.columns", 0, -1), "'scores.columns' must be from 0 to 19"),
        (rows("scores.values", 3), "'scores.indptr' must lead from 0 to 3"),
        (cast("scores.columns", np.float32), "'scores.columns' must have type int32"),
        (note("scores", {"matrix": [10**9, 10**9]}), "must have shape 1000000001, got 31"),
    ],
)
def test_sparse_scores_are_checked(change, sentence, tmp_path):
    one = fit("PrecomputedScores", checkerboard(), scores=csr_array(other_scores(checkerboard())))
    assert sentence in refuse(tmp_path / "m", read_parts(one.save(tmp_path / "m")), change)


FEATURES, ISOTONIC = ExpectedF1(calibration="features"), ExpectedF1(calibration="isotonic")


def fitted_value(name, value):
    return lambda parts: parts.description["notes"].update({name: value})


CUTOFFS = {
    "threshold": (Threshold(), fitted_value("threshold_", "high"), "'threshold_' must be a number"),
    "unknown": (Threshold(), fitted_value("other_", 3), "'other_' is unknown"),
    "parameter": (Threshold(), param("n_candidates", 0), "n_candidates must be a whole number"),
    "nested class": (
        ExpectedF1(),
        fitted_value("calibration_", None),
        "'calibration_' must be a Calibration",
    ),
    "size": (ExpectedF1(), fitted_value("size_", "huge"), "'size_' must be one of"),
    "knots": (
        ExpectedF1(calibration="features"),
        element("calibration_.logistic_.starts_", 1, 2**40),
        "starts_",
    ),
    "slopes": (
        ExpectedF1(calibration="features"),
        rows("calibration_.logistic_.slopes_", 2),
        "slopes_' must have shape",
    ),
    "steps": (
        ExpectedF1(calibration="isotonic"),
        rows("calibration_.heights_", 1),
        "heights_' must have shape",
    ),
    "size model": (ExpectedF1(), rows("n_missed_.beta_", 1), "beta_' must have shape"),
    "boundaries": (FrozenBoundary(), rows("boundaries_", 2), "'boundaries_' must have shape 30, got 2"),
}


@pytest.mark.filterwarnings("ignore:.* of the rows of truth")
@pytest.mark.parametrize("case", CUTOFFS)
def test_cutoff_is_checked(case, tmp_path):
    cut, change, sentence = CUTOFFS[case]
    data = checkerboard()
    lists = fitted("PersonalFrequency").recommend(N=20, filter_seen=False)
    cut = cut.clone().fit(lists, data, history=data)
    parts = read_parts(cut.save(tmp_path / "c"))
    assert sentence in refuse(tmp_path / "c", parts, change, Cutoff.load)


def test_untouched_files_load(tmp_path):
    for name in ALL_MODELS:
        path = fitted(name).save(tmp_path / name)
        write_parts(path, read_parts(path))
        loaded, known = load_model(path).recommend(N=3), fitted(name).recommend(N=3)
        np.testing.assert_array_equal(loaded.items, known.items)
        np.testing.assert_array_equal(loaded.scores, known.scores)


def test_selection_report_survives(tmp_path):
    report = SelectionReport("held out", [{"model": "m", "params": {"a": 1}, "N": 3, "score": 0.5}], [])
    one = fit("Popularity", checkerboard()).set_cutoff(None, report)
    assert load_model(one.save(tmp_path / "m")).selection_ == report
