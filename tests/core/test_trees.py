"""Trees: read back without LightGBM, they say what LightGBM says, to the bit."""

import sys

import numpy as np
import pytest

from shortlist.core.trees import Growth, Trees, trees_grow
from shortlist.errors import ModelFileError

lightgbm = pytest.importorskip("lightgbm")


def table(n=3000, seed=0):
    """Columns with gaps in some, ties in others, and labels that hang on them."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(n, 6)).astype(np.float32)
    columns[:, 1] = rng.integers(0, 5, n)
    columns[rng.random(n) < 0.3, 2] = np.nan
    columns[:, 3] = 7
    columns[rng.random(n) < 0.5, 4] = 0
    odds = columns[:, 0] + np.nan_to_num(columns[:, 2], nan=1.5) * columns[:, 1] / 3 - columns[:, 4]
    return columns, rng.random(n) < 1 / (1 + np.exp(-odds))


def theirs(text, columns, **how):
    return lightgbm.Booster(model_str=text.tobytes().decode()).predict(columns, num_threads=1, **how)


@pytest.mark.parametrize("objective", ["binary", "poisson"])
def test_sums_are_lightgbms_to_the_bit(objective):
    columns, y = table()
    growth = Growth(objective=objective, n_rounds=30, min_leaf=5, columns=0.5, rows=0.7, seed=3)
    text = trees_grow(columns, y.astype(float), None, growth)
    other = table(2111, seed=1)[0]  # no multiple of the rows that walk together
    other[::5, 0] = np.nan  # missing where nothing was in training
    other[1::5, 4] = [np.inf, -np.inf, 0, -0.0, 1e-40] * 84 + [1, 2]
    assert (Trees(text).odds(other) == theirs(text, other, raw_score=True)).all()
    np.testing.assert_allclose(Trees(text).predict(other), theirs(text, other), rtol=1e-14)


def test_several_ensembles_are_averaged_by_any_number_of_threads():
    columns, y = table(20_000)
    texts = [trees_grow(columns, y, None, Growth(n_rounds=5, rows=0.5, seed=seed)) for seed in (1, 2)]
    mean = (theirs(texts[0], columns, raw_score=True) + theirs(texts[1], columns, raw_score=True)) / 2
    np.testing.assert_allclose(Trees(*texts).odds(columns), mean, rtol=1e-12)
    assert (Trees(*texts).odds(columns, 3) == Trees(*texts).odds(columns, 1)).all()


def test_values_on_a_border_go_left():
    columns = np.repeat(np.array([0.1, 0.2, 0.3], np.float32), 50)[:, None]
    text = trees_grow(columns, columns[:, 0] > 0.15, None, Growth(n_rounds=1, min_leaf=1))
    line = next(line for line in text.tobytes().decode().splitlines() if line.startswith("threshold="))
    border = float(line.split("=")[1].split()[0])
    near = np.float32(border)
    around = np.array([near, np.nextafter(near, np.float32(1)), np.nextafter(near, np.float32(0))])[:, None]
    assert (Trees(text).odds(around) == theirs(text, around, raw_score=True)).all()


def test_nothing_to_split_is_one_leaf():
    text = trees_grow(np.ones((50, 2), np.float32), np.arange(50) % 2 > 0, None, Growth(n_rounds=3))
    assert (
        Trees(text).odds(np.zeros((4, 2), np.float32)) == theirs(text, np.zeros((4, 2)), raw_score=True)
    ).all()
    assert Trees(text).odds(np.zeros((0, 2), np.float32)).shape == (0,)


def test_reading_needs_no_lightgbm(monkeypatch):
    columns, y = table(500)
    text = trees_grow(columns, y, None, Growth(n_rounds=3))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert np.isfinite(Trees(text).odds(columns)).all()


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
    ],
)
def test_broken_texts_are_refused(old, new):
    columns, y = table()
    whole = trees_grow(columns, y, None, Growth(n_rounds=2)).tobytes().decode()
    assert old in whole
    with pytest.raises(ModelFileError, match=r"the trees cannot be read \(.*\); fit the model again"):
        Trees(np.frombuffer(whole.replace(old, new).encode(), np.uint8))


@pytest.mark.parametrize("cut", [0, 10, 300, 1500])
def test_cut_or_foreign_texts_are_refused(cut):
    text = trees_grow(*table(), None, Growth(n_rounds=2))
    for broken in (text[:cut], np.full(40, 255, np.uint8)):
        with pytest.raises(ModelFileError, match="cannot be read"):
            Trees(broken)


def test_too_few_columns_are_refused():
    text = trees_grow(*table(), None, Growth(n_rounds=2))
    with pytest.raises(ModelFileError, match="ask for 6 columns, got 2"):
        Trees(text).odds(np.zeros((3, 2), np.float32))
