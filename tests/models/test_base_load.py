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


def same_ids(parts):
    parts.arrays["series.users.bytes"][:] = ord("u")


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
    "no baskets": (rows("history.baskets", 0), "must have at least one row"),
    "item as long": (cast("history.item", np.int64), "'history.item' must have type int32, got int64"),
    "times shorter": (rows("history.time", 5), "'history.time' must have shape 300, got 5"),
    "no items": (drop("history.item"), "'history.item' is missing"),
    "repeated ids": (same_ids, "'users' must hold distinct ids, none missing"),
    "missing id": (
        lambda parts: parts.arrays.update({"series.users.valid": np.arange(30) > 0}),
        "'users' must hold distinct ids, none missing",
    ),
    "no users": (lambda parts: parts.description["series"].pop("users"), "'users' is missing"),
    "unknown class": (
        lambda parts: parts.description.update({"class": "Missing"}),
        "holds a Missing, unknown to this version",
    ),
    "abstract class": (
        lambda parts: parts.description.update({"class": "FactorModel"}),
        "holds a FactorModel, unknown to this version",
    ),
    "unknown parameter": (param("extra", 1), "unexpected keyword argument 'extra'"),
    "cutoff not one": (note("cutoff", {"class": "Calibration", "params": {}, "fitted": {}}), "be a cutoff"),
    "cutoff of a class": (
        note("cutoff", {"class": "os.system", "params": {}, "fitted": {}}),
        "'class' must be",
    ),
    "attribute of a class": (
        note("cutoff", {"class": "FixedN", "params": {}, "fitted": {"fit": 3}}),
        "'fit' cannot be a fitted attribute",
    ),
    "report not one": (note("selection", {"models": 3}), "'validation' is missing"),
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
    ("Popularity", "NaN"): (element("model.popularity", 0, np.nan), "must be finite"),
    ("Popularity", "rows"): (rows("model.popularity", 3), "must have shape 20, got 3"),
    ("PersonalFrequency", "rows"): (rows("model.popularity", 3), "'popularity' must have shape 20, got 3"),
    ("PersonalFrequency", "decay"): (param("decay", 0), "decay must be a number above 0 and at most 1"),
    ("EASE", "columns"): (lambda p: p.arrays.update({"model.weights": np.ones((20, 3), "f4")}), "20 × 20"),
    ("ALS", "rows"): (rows("model.items", 3), "'items' must have shape 20 × 256, got 3 × 256"),
    ("ALS", "users"): (rows("model.users", 3), "'users' must have shape 30 × 256, got 3 × 256"),
    ("ALS", "prints"): (element("model.prints", 0, np.nan), "'prints' must be finite"),
    ("GFCF", "rows"): (rows("model.basis", 3), "'basis' must have shape 256 × 20, got 3 × 20"),
    ("GFCF", "columns"): (element("model.matrix.columns", 0, 20), "'matrix.columns' must be at most 19"),
    ("GFCF", "starts"): (element("model.matrix.indptr", 1, 10**6), "'matrix.indptr' must ascend"),
    ("MatrixBlend", "rows"): (rows("model.graph.basis", 3), "'basis' must have shape 256 × 20, got 3 × 20"),
    ("MatrixBlend", "scales"): (element("model.scales", 0, np.nan), "'scales' must be finite"),
    ("TIFUKNN", "rows"): (rows("model.weights", 3), "'weights' must have shape"),
    ("UPCF", "rows"): (rows("model.frequencies", 3), "'frequencies' must have shape"),
    ("UPCF", "alpha"): (param("alpha", 2), "alpha must be a number between"),
    ("TIFUKNN", "n_neighbors"): (param("n_neighbors", 0), "n_neighbors must be a whole number"),
    ("PrecomputedScores", "rows"): (rows("model.dense", 3), "'dense' must have shape 30 × 20, got 3 × 20"),
    ("PrecomputedScores", "form"): (note("form", "pickle"), "'form' must be one of"),
    ("BPRMF", "fewer items"): (rows("model.item", 3), "'item' must have shape 20 × 8, got 3 × 8"),
    ("BPRMF", "n_factors"): (param("n_factors", 9), "'user' must have shape 30 × 9, got 30 × 8"),
    ("BPRMF", "infinite"): (element("model.user", 0, np.inf), "'user' must be finite"),
    ("BPRMF", "large"): (element("model.user", 0, 1e30), "'user' must be at most 1e\\+12 in size"),
    ("BPRMF", "bias"): (param("bias", False), "'bias' must have shape 0, got 20"),
    ("BPRMF", "bias type"): (param("bias", "yes"), "bias must be True or False"),
    ("BPRMF", "doubles"): (cast("model.item", np.float64), "'item' must have type float32"),
    ("BPRMF", "extra"): (lambda p: p.arrays.update({"model.extra": np.ones(3)}), "'extra' is unknown"),
    ("LogMF", "losses"): (note("losses", [1, "x"]), "'losses' must be a number"),
    ("CRRMF", "alpha"): (param("alpha", "half"), "alpha must be a number between 0"),
    ("DKBPRMF", "boundary"): (rows("model.boundary", 3), "'boundary' must have shape 30, got 3"),
    ("DKBPRMF", "loss"): (param("loss", ["hinge"]), "loss must be one of"),
    ("HRM", "repeat term"): (param("repeat_decay", 0.5), "'start_weights' must have a weight for each term"),
    ("DKHRM", "trend term"): (
        both(drop("history.time"), param("trend_half_life", 2.0)),
        "'history.time' is missing, but the model has a trend term",
    ),
    ("DKHRM", "stopped"): (note("stopped", "never"), "'stopped' must be one of"),
    ("DKHRM", "window"): (param("window", 0), "window must be a whole number"),
    ("ContentProfile", "fields"): (rows("model.fields", 1), "'fields' must have shape"),
    ("ContentProfile", "intercept"): (note("intercept", "x"), "intercept"),
    ("TwoStage", "quota"): (
        param("candidates_per_source", 0),
        "candidates_per_source must be",
    ),
    ("TwoStage", "bags"): (param("n_bags", 2), "'trees.1' is missing"),
    ("TwoStage", "features"): (note("features", ["age"]), "trained on other features"),
    ("TwoStage", "swapped"): (
        lambda p: p.arrays.update({"model.trees.0": p.arrays["model.sizes"]}),
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
        text = parts.arrays["model.trees.0"].tobytes().decode()
        assert old(text) in text
        text = text.replace(old(text), new(old(text)), 1)
        parts.arrays["model.trees.0"] = np.frombuffer(text.encode(), np.uint8)

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
        (element("model.indptr", 1, 2**31 - 1), "'indptr' must ascend"),
        (element("model.indptr", 0, -5), "'indptr' must lead from 0"),
        (element("model.indices", 0, 20), "'indices' must be at most 19, got 20"),
        (element("model.indices", 0, -1), "'indices' must be at least 0, got -1"),
        (rows("model.data", 3), "'data' must have shape"),
        (cast("model.indices", np.float32), "'indices' must have type int32 or int64"),
        (note("shape", [10**9, 10**9]), "'shape' must be 30 × 20"),
    ],
)
def test_sparse_scores_are_checked(change, sentence, tmp_path):
    one = fit("PrecomputedScores", checkerboard(), scores=csr_array(other_scores(checkerboard())))
    assert sentence in refuse(tmp_path / "m", read_parts(one.save(tmp_path / "m")), change)


FEATURES, ISOTONIC = ExpectedF1(calibration="features"), ExpectedF1(calibration="isotonic")


def fitted_value(name, value):
    return lambda parts: parts.description["notes"]["fitted"].update({name: value})


CUTOFFS = {
    "threshold": (Threshold(), fitted_value("threshold_", "high"), "'threshold_' must be a number"),
    "unknown": (Threshold(), fitted_value("other_", 3), "'other_' is unknown"),
    "parameter": (Threshold(), param("n_candidates", 0), "n_candidates must be a whole number"),
    "nested class": (ExpectedF1(), fitted_value("calibration_", None), "'calibration_' must be a fitted"),
    "size": (ExpectedF1(), fitted_value("size_", "huge"), "'size_' must be one of"),
    "knots": (
        ExpectedF1(calibration="features"),
        element("calibration_.logistic_.starts_", 1, 2**40),
        "starts_",
    ),
    "slopes": (
        ExpectedF1(calibration="features"),
        rows("calibration_.logistic_.slopes_", 2),
        "'slopes_' must",
    ),
    "steps": (
        ExpectedF1(calibration="isotonic"),
        rows("calibration_.heights_", 1),
        "'heights_' must have shape",
    ),
    "size model": (ExpectedF1(), rows("n_missed_.beta_", 1), "'beta_' must have shape"),
    "boundaries": (FrozenBoundary(), rows("boundaries_", 2), "'boundaries_' must have shape 30, got 2"),
    "trees": (ExpectedF1(calibration="trees"), rows("calibration_.text_", 9), "the trees cannot be read"),
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
