"""Tree ensembles: evaluated without LightGBM, to the same bits as LightGBM."""

import sys

import numpy as np
import pytest

from shortlist.errors import ModelFileError
from shortlist.models.two_stage.trees import TreeEnsemble, TreeParams, fit_trees
from tests.threads import on_threads

lightgbm = pytest.importorskip("lightgbm")


def table(n=3000, seed=0):
    """Columns with missing values and ties, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(n, 6)).astype(np.float32)
    columns[:, 1] = rng.integers(0, 5, n)
    columns[rng.random(n) < 0.3, 2] = np.nan
    columns[:, 3] = 7
    columns[rng.random(n) < 0.5, 4] = 0
    odds = columns[:, 0] + np.nan_to_num(columns[:, 2], nan=1.5) * columns[:, 1] / 3 - columns[:, 4]
    return columns, rng.random(n) < 1 / (1 + np.exp(-odds))


def lightgbm_predict(text, columns, **options):
    return lightgbm.Booster(model_str=text.tobytes().decode()).predict(columns, num_threads=1, **options)


@pytest.mark.parametrize(("objective", "n_leaves"), [("binary", 31), ("poisson", 32), ("binary", 33)])
def test_raw_scores_equal_lightgbm(objective, n_leaves):
    """Up to 32 leaves are the bits of a word; trees with more are descended."""
    columns, y = table()
    params = TreeParams(
        objective=objective, n_rounds=30, n_leaves=n_leaves, min_leaf=5, columns=0.5, rows=0.7, seed=3
    )
    text = fit_trees(columns, y.astype(float), None, params)
    other = table(2111, seed=1)[0]  # not a multiple of the batch size
    other[::5, 0] = np.nan  # missing values that did not occur in training
    other[1::5, 4] = [np.inf, -np.inf, 0, -0.0, 1e-40] * 84 + [1, 2]
    assert (TreeEnsemble(text).raw_scores(other) == lightgbm_predict(text, other, raw_score=True)).all()
    np.testing.assert_allclose(TreeEnsemble(text).predict(other), lightgbm_predict(text, other), rtol=1e-14)


def test_splits_of_missing_against_other_values_equal_lightgbm():
    """LightGBM writes the threshold of such a split as inf."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(3000, 3)).astype(np.float32)
    columns[rng.random(columns.shape) < 0.3] = np.nan
    y = np.isnan(columns[:, 0]) ^ (rng.random(3000) < 0.1)
    text = fit_trees(columns, y, None, TreeParams(n_rounds=5, min_leaf=5))
    assert "inf" in text.tobytes().decode()
    assert (TreeEnsemble(text).raw_scores(columns) == lightgbm_predict(text, columns, raw_score=True)).all()


def test_ensembles_are_averaged_on_any_number_of_threads():
    columns, y = table(20_000)
    texts = [fit_trees(columns, y, None, TreeParams(n_rounds=5, rows=0.5, seed=seed)) for seed in (1, 2)]
    mean = np.mean([lightgbm_predict(text, columns, raw_score=True) for text in texts], axis=0)
    np.testing.assert_allclose(TreeEnsemble(*texts).raw_scores(columns), mean, rtol=1e-12)
    one, three = on_threads(1, 3, run=lambda: TreeEnsemble(*texts).raw_scores(columns))
    assert (one == three).all()


def walk(node, row, amounts):
    """The leaf that a row reaches in LightGBM's own tree; what each column changed goes to `amounts`."""
    if "leaf_value" in node:
        return node["leaf_value"]
    value, column = row[node["split_feature"]], node["split_feature"]
    if np.isnan(value) and node["missing_type"] != "NaN":
        value = 0.0
    left = node["default_left"] if np.isnan(value) else value <= node["threshold"]
    child = node["left_child" if left else "right_child"]
    amounts[column] += child.get("internal_value", child.get("leaf_value")) - node["internal_value"]
    return walk(child, row, amounts)


def test_contributions_follow_the_paths_and_sum_to_the_raw_score():
    columns, y = table()
    texts = [fit_trees(columns, y, None, TreeParams(n_rounds=4, rows=0.5, seed=seed)) for seed in (1, 2)]
    ensemble, rows = TreeEnsemble(*texts), table(60, seed=1)[0]
    rows[::7, 0] = np.nan
    amounts = ensemble.contributions(rows)
    np.testing.assert_allclose(amounts.sum(axis=1) + ensemble.base, ensemble.raw_scores(rows), rtol=1e-12)
    trees = [
        tree["tree_structure"]
        for text in texts
        for tree in lightgbm.Booster(model_str=text.tobytes().decode()).dump_model()["tree_info"]
    ]
    for row, got in zip(rows, amounts, strict=True):
        expected = np.zeros(6)
        for tree in trees:
            walk(tree, row.astype(float), expected)
        np.testing.assert_allclose(got, expected / 2, rtol=1e-5, atol=1e-9)
    assert (amounts[:, 3] == 0).all()  # the constant column
    assert np.abs(amounts).max() > 0.05


def test_values_equal_to_threshold_go_left():
    columns = np.repeat(np.array([0.1, 0.2, 0.3], np.float32), 50)[:, None]
    text = fit_trees(columns, columns[:, 0] > 0.15, None, TreeParams(n_rounds=1, min_leaf=1))
    line = next(line for line in text.tobytes().decode().splitlines() if line.startswith("threshold="))
    bound = float(line.split("=")[1].split()[0])
    near = np.float32(bound)
    around = np.array([near, np.nextafter(near, np.float32(1)), np.nextafter(near, np.float32(0))])[:, None]
    assert (TreeEnsemble(text).raw_scores(around) == lightgbm_predict(text, around, raw_score=True)).all()


def test_constant_columns_give_one_leaf():
    text = fit_trees(np.ones((50, 2), np.float32), np.arange(50) % 2 > 0, None, TreeParams(n_rounds=3))
    zeros = np.zeros((4, 2), np.float32)
    assert (TreeEnsemble(text).raw_scores(zeros) == lightgbm_predict(text, zeros, raw_score=True)).all()
    assert TreeEnsemble(text).raw_scores(np.zeros((0, 2), np.float32)).shape == (0,)


def test_evaluation_does_not_need_lightgbm(monkeypatch):
    columns, y = table(500)
    text = fit_trees(columns, y, None, TreeParams(n_rounds=3))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert np.isfinite(TreeEnsemble(text).raw_scores(columns)).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nobjective=binary", "\nobjective=guess"),
        ("\nmax_feature_idx=5", "\nmax_feature_idx=0"),
        ("\nleft_child=", "\nleft_child=0 "),
        ("\nleft_child=2 ", "\nleft_child=0 "),
        ("\nleft_child=2 ", "\nleft_child=90 "),
        ("\nsplit_feature=", "\nsplit_feature=-1 "),
        ("\nthreshold=", "\nthreshold=x "),
        ("\nleaf_value=", "\nleaf_value=1 "),
        ("\nnum_cat=0", "\nnum_cat=1"),
        ("\nright_child=", "\n"),
        ("\ninternal_value=", "\ninternal_value=1 "),
    ],
)
def test_invalid_text_is_rejected(old, new):
    columns, y = table()
    whole = fit_trees(columns, y, None, TreeParams(n_rounds=2)).tobytes().decode()
    assert old in whole
    with pytest.raises(ModelFileError, match=r"the trees cannot be read \(.*\); fit the model again"):
        TreeEnsemble(np.frombuffer(whole.replace(old, new).encode(), np.uint8))


@pytest.mark.parametrize("cut", [0, 10, 300, 1500])
def test_truncated_or_foreign_text_is_rejected(cut):
    text = fit_trees(*table(), None, TreeParams(n_rounds=2))
    for broken in (text[:cut], np.full(40, 255, np.uint8)):
        with pytest.raises(ModelFileError, match="cannot be read"):
            TreeEnsemble(broken)


def test_too_few_columns_are_rejected():
    text = fit_trees(*table(), None, TreeParams(n_rounds=2))
    with pytest.raises(ModelFileError, match="need 6 columns, got 2"):
        TreeEnsemble(text).raw_scores(np.zeros((3, 2), np.float32))


HAND = """tree
objective=binary sigmoid:1
max_feature_idx=1

Tree=0
num_leaves=3
num_cat=0
split_feature=0 1
threshold=0.5 2
decision_type=2 2
left_child=-1 -2
right_child=1 -3
leaf_value=1 2 3
internal_value=0.5 2.5

end of trees
"""


def read_by_hand(old="", new=""):
    assert old in HAND
    return TreeEnsemble(np.frombuffer(HAND.replace(old, new, 1).encode(), np.uint8))


def test_tree_worked_out_by_hand():
    columns = np.array([[0.5, 9], [0.6, 2], [0.6, 2.1]], np.float32)
    assert read_by_hand().raw_scores(columns).tolist() == [1, 2, 3]
    assert read_by_hand().base == 0.5
    assert read_by_hand().contributions(columns).tolist() == [[0.5, 0], [2, -0.5], [2, 0.5]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("split_feature=0 1", "split_feature=0 2"),  # one column too far
        ("split_feature=0 1", "split_feature=0 -1"),
        ("left_child=-1 -2\nright_child=1 -3", "left_child=-1 1\nright_child=-2 -3"),  # its own child
        ("leaf_value=1 2 3", "leaf_value=1 2"),
        ("threshold=0.5 2", "threshold=0.5"),
        ("decision_type=2 2", "decision_type=2"),
    ],
)
def test_tree_that_would_read_outside_its_arrays_is_rejected(old, new):
    with pytest.raises(ModelFileError, match="an invalid tree"):
        read_by_hand(old, new)


def test_each_tree_uses_its_share_of_the_rows():
    columns, y = table()
    texts = {fit_trees(columns, y, None, TreeParams(n_rounds=2, rows=rows)).tobytes() for rows in (1.0, 0.5)}
    trees = {text.partition(b"\nend of trees")[0] for text in texts}
    assert len(trees) == 2
