"""Tests, counts of cells and verdicts on small numbers that can be checked by hand."""

import numpy as np
import pytest

from shortlist.paper.protocol import COVERED, FAILS, HOLDS, MODELS, ORIGINAL
from shortlist.paper.verdicts import (
    above,
    below,
    best_variants,
    bootstrap,
    cell,
    count_cells,
    peaks_inside,
    rises,
    select_row,
    steady,
    verdict,
    verdicts,
)


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
    plain = select_row(rows, names, False)
    plain["valid"]["f1"] = 0.2
    assert select_row(rows, names, None) is plain
    names |= {"model": "DKHRM"}
    biased = select_row(rows, names, True)
    biased["valid"]["f1_at_target"] = 0.9
    assert select_row(rows, names, None) is biased


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


# ------------------------------------------------------------------ verdicts
def difference(f1, ndcg, p=0.001):
    return {
        metric: {"difference": value, "low": value - 0.01, "high": value + 0.01, "p": p, "p_holm": p}
        for metric, value in (("f1", f1), ("ndcg", ndcg))
    }


def dynamic_tests(covered=0.02, everyone=0.02):
    tests = difference(everyone, everyone)
    for metric in ("f1", "ndcg", "harmonic"):
        tests[f"{metric}_covered"] = difference(covered, covered)["f1"]
    return tests


def chosen_row(model, f1, ndcg, f1_all=None):
    figures = {"f1": f1, "ndcg": ndcg, "ndcg_own": ndcg, "ndcg_fair": ndcg}
    if model in ORIGINAL:
        figures = {"f1_20": f1, "ndcg_20": ndcg, "f1_all_20": f1_all, "ndcg_fair": ndcg, "cover_ratio": 0.7}
    return {"model": model, "figures": {name: {"mean": value} for name, value in figures.items()}}


@pytest.fixture
def results():
    """Chosen rows and results for which every claim holds."""
    sweep = {"values": [1, 2, 3], "ndcg_covered": [0.1, 0.3, 0.2], "cover_ratio": [0.9, 0.8, 0.7]}
    peak = sweep | {"f1_covered": [0.1, 0.3, 0.2], "f1": [0.1, 0.3, 0.2]}
    rise = sweep | {"f1_covered": [0.1, 0.2, 0.3], "f1": [0.1, 0.2, 0.3]}
    tests = {
        "LogMF – BPRMF": difference(0.02, -0.02),
        "CRRMF – BPRMF": difference(0.01, 0.01),
        "CRRMF – LogMF": difference(0.01, 0.01),
        **{f"HRM – {other}": difference(0.02, 0.02) for other in ("BPRMF", "LogMF", "CRRMF")},
        **{f"{model} – {other}": dynamic_tests() for model, other in ORIGINAL.items()},
    }
    chosen = {"BPRMF": chosen_row("BPRMF", 0.03, 0.1), "HRM": chosen_row("HRM", 0.04, 0.1)}
    chosen["DKBPRMF"] = chosen_row("DKBPRMF", 0.05, 0.2, 0.05)
    chosen["DKHRM"] = chosen_row("DKHRM", 0.06, 0.2, 0.06)
    found = {
        "figure1": {"t": rise, "lambda_t": peak, "alpha": peak, "t_biased": rise},
        "figure2": {m: {"f1": [0.01, 0.05, 0.05]} for m in ("BPRMF", "LogMF", "CRRMF", "HRM")},
        "tests": tests,
        "same_users": {key: {"f1": 0.04, "ndcg": 0.1} for key in ORIGINAL},
    }
    return chosen, found


def verdict_of(results, start, dataset="ml-100k"):
    rows = verdicts(dataset, *results)
    return next(row["verdict"] for row in rows if row["claim"].startswith(start))


def test_verdict_for_all_and_for_covered_users():
    assert verdict(True, False) == HOLDS
    assert verdict(False, True) == COVERED
    assert verdict(False, False) == FAILS


def test_all_claims_hold(results):
    assert {row["verdict"] for row in verdicts("ml-100k", *results)} == {HOLDS}
    assert len(verdicts("ml-100k", *results)) == 11
    assert len(verdicts("ta-feng", *results)) == 13


def test_better_for_covered_users_only(results):
    results[1]["tests"]["DKHRM – HRM"] = dynamic_tests(0.02, -0.01)
    assert verdict_of(results, "DK-HRM beats HRM in F1") == COVERED
    assert verdict_of(results, "DK-BPRMF beats BPRMF in F1") == HOLDS


def test_better_in_harmonic_f1_only(results):
    tests = results[1]["tests"]["DKHRM – HRM"] = dynamic_tests(-0.01, -0.01)
    assert verdict_of(results, "DK-HRM beats HRM in F1") == FAILS
    tests["harmonic_covered"] = difference(0.02, 0.02)["f1"]
    assert verdict_of(results, "DK-HRM beats HRM in F1") == COVERED
    assert verdict_of(results, "DK-HRM beats HRM in NDCG") == FAILS


def test_insignificant_difference_does_not_hold(results):
    for test in results[1]["tests"]["DKHRM – HRM"].values():
        test["p_holm"] = 0.06
    assert verdict_of(results, "DK-HRM beats HRM in F1") == FAILS


def test_improvement_must_reach_its_size(results):
    """Covered users: .06 over .04 is 50%; all users: .05 over .04 is 25%, less than 33.1%."""
    results[0]["DKHRM"]["figures"]["f1_all_20"]["mean"] = 0.05
    assert verdict_of(results, "DK-HRM improves on HRM by 33.1% in F1", "ta-feng") == COVERED


@pytest.mark.parametrize(
    ("pair", "metric", "claim"),
    [
        ("LogMF – BPRMF", "f1", "LogMF is better"),
        ("LogMF – BPRMF", "ndcg", "LogMF is better"),
        ("CRRMF – BPRMF", "f1", "CRRMF is good"),
        ("CRRMF – LogMF", "ndcg", "CRRMF is good"),
        ("HRM – LogMF", "ndcg", "HRM beats BPRMF"),
    ],
)
def test_one_wrong_sign_breaks_a_claim(results, pair, metric, claim):
    results[1]["tests"][pair][metric]["difference"] *= -1
    assert verdict_of(results, claim) == FAILS


def test_sweep_of_t(results):
    results[1]["figure1"]["t"]["f1"] = [0.3, 0.2, 0.1]
    assert verdict_of(results, "As t rises") == COVERED
    results[1]["figure1"]["t"]["cover_ratio"] = [0.9, 0.9, 0.9]
    assert verdict_of(results, "As t rises") == FAILS


def test_falling_curve_is_not_steady(results):
    results[1]["figure2"]["HRM"]["f1"] = [0.01, 0.05, 0.02]
    assert verdict_of(results, "F1 rises with N") == FAILS


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], True),
        ([1, 3, 2], True),
        ([3, 2, 1], False),
        ([1, 2, 1, 2, 1.5, 3], False),
        ([1, 1.01], False),
    ],
)
def test_rises(values, expected):
    assert rises(values) is expected


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 3, 2], True), ([1, 2, 3], False), ([3, 2, 1], False), ([1, 1.01, 1], False)]
)
def test_peaks_inside(values, expected):
    assert peaks_inside(values) is expected


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 2], True), ([1, 2, 1.7], False), ([2, 1.95, 1.9], False)]
)
def test_steady(values, expected):
    assert steady(values) is expected


def test_above_and_below_need_significance():
    significant, insignificant = difference(0.1, -0.1), difference(0.1, -0.1, p=0.2)
    assert above(significant["f1"])
    assert below(significant["ndcg"])
    assert not above(insignificant["f1"])
    assert not below(insignificant["ndcg"])
