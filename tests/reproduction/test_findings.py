"""Tests and counts of cells on small numbers that can be checked by hand."""

import numpy as np
import pytest

from reproduction.findings import best_variants, bootstrap, cell, count_cells, find_row
from reproduction.protocol import MODELS, ORIGINAL


# ------------------------------------------------------------------ tests
def test_bootstrap_includes_the_variance_between_seeds():
    """The same mean difference is clear if all seeds show it, and not if one seed makes it."""
    rng = np.random.default_rng(0)
    base = np.tile(rng.random(2000), (5, 1))
    steadily = base + 0.02
    in_one_seed = base + np.array([[0.1], [0], [0], [0], [0]])
    found = bootstrap({"steady": (steadily, None, base), "single": (in_one_seed, None, base)}, 500, 1)
    assert found["steady"]["difference"] == pytest.approx(found["single"]["difference"])
    assert found["steady"]["p"] < 0.01
    assert found["single"]["p"] > 0.2
    assert found["single"]["low"] <= 0.02 <= found["single"]["high"]


def test_bootstrap_of_covered_users_is_centered_on_the_difference_in_the_table():
    rng = np.random.default_rng(1)
    covered = (rng.random((3, 500)) < 0.6).astype(float)
    values, base = covered * rng.random((3, 500)), rng.random((3, 500))
    found = bootstrap({"x": (values, covered, base)}, 400, 2)["x"]
    means = [values[k][covered[k] > 0].mean() for k in range(3)]
    assert found["difference"] == pytest.approx(np.mean(means) - base.mean())
    assert found["low"] < found["difference"] < found["high"]


def test_covered_users_are_tested_with_the_means_of_the_table():
    """Half of the users are covered with F1 0.5; the original gives all users 0.5, or all users 0."""
    covered = np.tile([1.0, 0.0], (2, 50))
    level = np.full((1, 100), 0.5)
    pairs = {
        "equal": (0.5 * covered, covered, level),
        "better": (0.5 * covered, covered, 0 * level),
        "nobody": (0 * covered, 0 * covered, 0 * level),
    }
    found = bootstrap(pairs, 2000, 1)
    assert found["equal"]["p"] == 1.0
    assert found["better"]["p"] < 0.001
    assert found["nobody"]["p"] == 1.0


def test_bootstrap_of_a_harmonic_mean():
    """The statistic is recomputed in every resample; the plain mean of the users' F1 is another number."""
    rng = np.random.default_rng(3)
    covered = (rng.random((2, 400)) < 0.7).astype(float)
    precision, recall = (covered * rng.random((2, 400)) for _ in range(2))
    base = rng.random((2, 400)) / 2, rng.random((2, 400)) / 2
    found = bootstrap({"x": ((precision, recall), covered, base)}, 300, 4)["x"]

    def harmonic(values, weights):
        means = [(each * weights).sum() / weights.sum() for each in values]
        return 2 * means[0] * means[1] / sum(means)

    expected = np.mean([harmonic((precision[k], recall[k]), covered[k]) for k in range(2)])
    other = np.mean([harmonic((base[0][k], base[1][k]), np.ones(400)) for k in range(2)])
    assert found["difference"] == pytest.approx(expected - other)
    assert found["low"] < found["difference"] < found["high"]
    assert found["p"] < 0.05


# ------------------------------------------------------------------ cells
def cell_rows(reading="r"):
    """One row for each model and kind; every cell is at the paper's figure, F1 .05 and NDCG .1."""
    rows = []
    for model in MODELS:
        for loss in ("pairwise", "negative sampling") if model == "HRM" else ("pairwise",):
            for selected_by in ("f1", "harmonic", "ndcg"):
                for bias in (True, False):
                    caps = ("_20", "_100") if model in ORIGINAL else ("",)
                    figures = {f"{name}{cap}": 0.05 for name in ("f1", "harmonic") for cap in caps}
                    figures |= {f"ndcg{cap}": 0.1 for cap in (*caps, "_own")}
                    rows.append(
                            {
                                "model": model, "loss": loss, "selected_by": selected_by, "reading": reading,
                                "bias": bias,
                                "N": None if model in ORIGINAL else {},
                                "figures": {name: {"mean": value} for name, value in figures.items()},
                                "valid": {"f1": 0.1, "harmonic": 0.1, "cover_ratio": 0.7, "f1_at_target": 0.1,
                                          "harmonic_at_target": 0.1, "ndcg_at_target": 0.1},
                                "paper": {"f1": 0.05, "ndcg": 0.1},
                            }
                        )  # fmt: skip
    return rows


def change(rows, names, name, value):
    for row in rows:
        if all(row[key] == each for key, each in names.items()):
            row["figures"][name]["mean"] = value


def count(rows, **names):
    cells = [
        row for row in count_cells(rows, ["r"]) if all(row[key] == value for key, value in names.items())
    ]
    assert len(cells) == 1
    assert cells[0]["cells"] == 12
    return cells[0]


VARIANT = {"f1": "f1", "loss": "pairwise", "bias": True, "own_N": False, "cap": 20}


def test_cells_are_counted_per_named_variant():
    rows = cell_rows()
    assert count(rows, **VARIANT)["reached"] == 12
    assert count(rows, **VARIANT)["distance"] == pytest.approx(0)
    change(rows, {"model": "HRM", "loss": "pairwise", "selected_by": "f1", "bias": True}, "f1", 0.0496)
    assert count(rows, **VARIANT)["reached"] == 12  # .050 with three digits
    change(rows, {"model": "HRM", "loss": "pairwise", "selected_by": "f1", "bias": True}, "f1", 0.025)
    change(rows, {"model": "BPRMF", "selected_by": "f1", "bias": True}, "f1", 0.1)
    lower = count(rows, **VARIANT)
    assert lower["below"] == ["HRM F1"]
    assert lower["distance"] == pytest.approx(2 ** (2 / 12) - 1)  # one half and one twice the paper's
    assert count(rows, **VARIANT | {"loss": "negative sampling"})["below"] == []
    assert count(rows, **VARIANT | {"bias": False})["below"] == []
    assert count(rows, **VARIANT | {"f1": "harmonic"})["below"] == []


def test_ndcg_has_an_n_or_a_setting_of_its_own():
    rows = cell_rows()
    change(rows, {"model": "LogMF"}, "ndcg", 0.01)
    change(rows, {"model": "DKHRM", "selected_by": "f1"}, "ndcg_20", 0.01)
    assert count(rows, **VARIANT)["below"] == ["LogMF NDCG", "DK-HRM NDCG"]
    assert count(rows, **VARIANT | {"own_N": True})["below"] == []
    assert count(rows, **VARIANT | {"cap": 100})["below"] == ["LogMF NDCG"]
    assert cell(rows[0], "ndcg", True, 20) == 0.1


def test_harmonic_cells_are_those_of_models_selected_by_it():
    rows = cell_rows()
    change(rows, {"model": "HRM", "selected_by": "f1"}, "harmonic", 0.0)
    assert count(rows, **VARIANT | {"f1": "harmonic"})["reached"] == 12
    change(rows, {"model": "HRM", "selected_by": "harmonic"}, "harmonic", 0.04)
    assert count(rows, **VARIANT | {"f1": "harmonic"})["below"] == ["HRM F1"]
    assert count(rows, **VARIANT)["reached"] == 12


def test_biases_are_chosen_on_validation():
    rows = cell_rows()
    names = {"model": "BPRMF", "loss": "pairwise", "selected_by": "f1", "reading": "r"}
    plain = find_row(rows, names | {"bias": False})
    plain["valid"]["f1"] = 0.2
    assert find_row(rows, names | {"bias": None}) is plain
    names |= {"model": "DKHRM"}
    biased = find_row(rows, names | {"bias": True})
    biased["valid"]["f1_at_target"] = 0.9
    assert find_row(rows, names | {"bias": None}) is biased


def test_one_reading_serves_all_datasets():
    """Without biases both datasets reach 11; with them one 12, the other 6. Who is tested may differ."""

    def cells(reading, bias, reached, distance):
        return {
            "f1": "f1", "loss": "pairwise", "reading": reading, "bias": bias,
            "own_N": True, "cap": 20, "cells": 12, "reached": reached, "distance": distance, "below": [],
        }  # fmt: skip

    first = [cells("a", True, 12, 0.1), cells("a", False, 11, 0.5), cells("b", False, 10, 0.2)]
    second = [cells("c", True, 6, 0.2), cells("d", True, 5, 0.1), cells("c", False, 11, 0.5)]
    both = [row | {"f1": "harmonic"} for row in first], [row | {"f1": "harmonic"} for row in second]
    best = best_variants({"x": first + both[0], "y": second + both[1]})
    most = best["f1, most cells"]
    assert (most["bias"], most["reached"], most["cells"]) == (False, 22, 24)
    assert {name: row["reading"] for name, row in most["datasets"].items()} == {"x": "a", "y": "c"}
    closest = best["harmonic, smallest distance"]
    assert (closest["bias"], closest["reached"]) == (True, 18)
    assert closest["distance"] == pytest.approx(np.sqrt(1.1 * 1.2) - 1)
