"""Table 1 under every reading of the protocol: outcomes, search, tests and files."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import shortlist as sl
from shortlist.evaluation import evaluate
from shortlist.paper import protocol
from shortlist.paper import variants as module
from shortlist.paper.experiment import Runner, bootstrap
from shortlist.paper.protocol import EXTENSIONS, LEARNED, OPTIMAL, SPACES, ProtocolReading
from shortlist.paper.reproduce import reproduce
from shortlist.paper.variants import Outcomes, VariantBudget, VariantSearch, draw_like
from shortlist.paper.verdicts import cell, count_cells

TINY = VariantBudget(
    n_trials=3, epochs=(1, 2), cover_steps=1, valid_users=80, users=120, n_factors=8, n_extended=2
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = tmp_path_factory.mktemp("variants")
    results = reproduce("sample", out=place, n_seeds=2, n_jobs=2, budget=TINY)
    return place, results["datasets"]["sample"]


@pytest.fixture(scope="module")
def lists():
    """Candidates of a model with boundaries, cut nowhere, and the truth."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.DKBPRMF(n_factors=8, n_epochs=3, negatives=3.0, boundary="learned").fit(split.train_valid)
    users = split.test.users.to_ids(split.test.active_users)
    return split, model.recommend(users, N=100, at=split.test)


# ------------------------------------------------------------------ readings
def test_outcomes_agree_with_the_evaluator(lists):
    split, found = lists
    users = split.test.active_users
    outcomes = Outcomes.of(found, split.test, users)
    for N in (1, 7, 20):
        report = evaluate(found.head(N), split.test)
        np.testing.assert_allclose(outcomes.f1(N), report.values("f1"))
        np.testing.assert_allclose(outcomes.ndcg(N), report.values("ndcg_paper"))
        assert outcomes.curves["f1"][N - 1] == pytest.approx(report.f1)
    lengths = outcomes.above(cap=20)
    cut = sl.cutoff.Boundary().apply(found)
    assert lengths.tolist() == np.minimum(cut.lengths, 20).tolist()
    report = evaluate(cut.head(20), split.test)
    means = outcomes.covered(lengths)
    assert means["f1"] == pytest.approx(report.mean("f1", "covered"))
    assert means["ndcg"] == pytest.approx(report.mean("ndcg_paper", "covered"))


def test_outcomes_of_some_users_are_their_rows(lists):
    split, found = lists
    users = split.test.active_users
    some = Outcomes.of(found, split.test, users[3::5])
    np.testing.assert_array_equal(some.f1(5), Outcomes.of(found, split.test, users).f1(5)[3::5])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_shift_covers_the_wanted_share(lists, share):
    split, found = lists
    outcomes = Outcomes.of(found, split.test, split.test.active_users)
    covered = (outcomes.above(outcomes.shift_for(share)) > 0).mean()
    assert covered == pytest.approx(share, abs=1 / split.test.active_users.size)


def test_single_last_item_is_the_last_row_of_each_user(lists):
    truth = lists[0].test
    last = ProtocolReading("x", single=True).truth(truth)
    assert last.n_rows == truth.active_users.size
    expected = [truth.item[truth.indptr[user + 1] - 1] for user in truth.active_users]
    assert last.item.tolist() == expected
    assert ProtocolReading("x").truth(truth) is truth


def test_users_have_enough_baskets(lists):
    split = lists[0]
    users = ProtocolReading("x", min_baskets=6).users(split.train_valid, split.test)
    n_baskets = np.diff(split.data.user_baskets)
    assert users.tolist() == [u for u in split.test.active_users if n_baskets[u] >= 6]


def test_drawn_users_have_histories_like_the_tested_ones():
    rng = np.random.default_rng(0)
    wanted, available = rng.integers(1, 6, 4000), rng.integers(1, 20, 5000)
    found = draw_like(wanted, available, 3, 10_000)
    assert np.unique(found).size == found.size > 500
    for low, high in ((1, 1), (2, 2), (3, 4)):
        share = ((available[found] >= low) & (available[found] <= high)).mean()
        assert share == pytest.approx(((wanted >= low) & (wanted <= high)).mean(), abs=0.01)
    assert (available[found] < 9).all()  # no tested user has so long a history
    assert draw_like(wanted, available, 3, 100).size <= 100


# ------------------------------------------------------------------ search
def searching(figures):
    """A search whose trials are looked up in a function of the parameters."""
    users = SimpleNamespace(readings=(ProtocolReading("a"), ProtocolReading("b")))
    budget = VariantBudget(n_trials=9, epochs=(1, 3), cover_steps=4, n_factors=4)
    search = VariantSearch(Runner(SimpleNamespace(name="ta-feng"), None), users, budget, 0)
    object.__setattr__(
        search,
        "trial",
        lambda model, params: {"model": model, "params": params, "figures": figures(params)},
    )
    return search


def try_settings(search, model, bias):
    return search.halve(model, {"bias": bias}, SPACES[model], search.budget.n_trials)


def test_a_third_of_the_trials_trains_for_longer_and_the_best_is_selected():
    def figures(params):
        score = 1 - abs(np.log(params["lr"] / 0.1)) + params["n_epochs"] / 100
        return {name: {"f1": [score], "ndcg": [score]} for name in "ab"}

    search = searching(figures)
    tried = try_settings(search, "BPRMF", True)
    assert [one["params"]["n_epochs"] for one in tried] == [1] * 9 + [3] * 3
    kept = sorted(one["params"]["lr"] for one in tried[9:])
    nearest = sorted(tried[:9], key=lambda one: abs(np.log(one["params"]["lr"] / 0.1)))[:3]
    assert kept == sorted(one["params"]["lr"] for one in nearest)
    best = search.select(tried, ProtocolReading("a"))
    assert best["params"]["lr"] == nearest[0]["params"]["lr"]
    assert best["params"]["n_epochs"] == 3


def test_dynamic_models_are_selected_at_the_cover_ratio_of_the_paper():
    """The fewer negatives, the more users are covered: 1 / (1 + negatives / 20)."""

    def figures(params):
        cover = 1 / (1 + params["negatives"] / 20)
        shift = float(np.log(20 * (1 / 0.69 - 1) / params["negatives"]))
        one = {"cover_ratio": cover, "shift": shift, "f1_at_target": 0.1, "f1_20": 0.2 - cover / 10}
        return dict.fromkeys("ab", one)

    search = searching(figures)
    best = search.select(try_settings(search, "DKBPRMF", False), ProtocolReading("b"))
    assert best["figures"]["b"]["cover_ratio"] == pytest.approx(0.69, abs=0.02)


def test_the_mean_over_seeds_decides_between_the_best_settings():
    """The largest step size is best with the seed of the search, and worst with the two others."""

    def figures(params):
        score = params["lr"] if params["seed"] == 0 else -params["lr"]
        return {name: {"f1": [score], "ndcg": [score]} for name in "ab"}

    search = searching(figures)
    tried = try_settings(search, "BPRMF", True)
    three_best = sorted({one["params"]["lr"] for one in tried})[-3:]
    longest = [one for one in tried if one["params"]["n_epochs"] == 3]
    assert search.select(longest, ProtocolReading("a"))["params"]["lr"] == three_best[0]


def test_settings_whose_cover_ratio_depends_on_the_seed_are_not_selected():
    def figures(params):
        steady = params["lr"] < 0.1
        cover = 0.69 if steady or params["seed"] == 0 else 0.0
        one = {"cover_ratio": cover, "shift": 0.0, "f1_at_target": 0.1, "f1_20": 0.1 if steady else 0.2}
        return dict.fromkeys("ab", one)

    search = searching(figures)
    params = {"negatives": 4, "seed": 0}
    tried = [search.trial("DKHRM", params | {"lr": lr}) for lr in (0.5, 0.6, 0.05)]
    assert search.select(tried, ProtocolReading("a"))["params"]["lr"] == 0.05


# ------------------------------------------------------------------ tests
def test_bootstrap_includes_the_variance_between_seeds():
    """The same mean difference is clear if all seeds show it, and not if one seed makes it."""
    rng = np.random.default_rng(0)
    base = np.tile(rng.random(2000), (5, 1))
    steady = base + 0.02
    one_seed = base + np.array([[0.1], [0], [0], [0], [0]])
    found = bootstrap({"steady": (steady, None, base), "one": (one_seed, None, base)}, 500, 1)
    assert found["steady"]["difference"] == pytest.approx(found["one"]["difference"])
    assert found["steady"]["p"] < 0.01
    assert found["one"]["p"] > 0.2
    assert found["one"]["low"] <= 0.02 <= found["one"]["high"]


def test_bootstrap_of_covered_users_is_centered_on_the_difference_in_the_table():
    rng = np.random.default_rng(1)
    covered = (rng.random((3, 500)) < 0.6).astype(float)
    values, base = covered * rng.random((3, 500)), rng.random((3, 500))
    found = bootstrap({"x": (values, covered, base)}, 400, 2)["x"]
    means = [values[k][covered[k] > 0].mean() for k in range(3)]
    assert found["difference"] == pytest.approx(np.mean(means) - base.mean())
    assert found["low"] < found["difference"] < found["high"]


def test_cells_are_counted_per_named_variant():
    def row(model, kind="", **figures):
        return {
            "model": model, "bias": True, "reading": "r", "kind": kind,
            "figures": {name: {"mean": value} for name, value in figures.items()},
            "paper": {"f1": 0.05, "ndcg": 0.1},
        }  # fmt: skip

    table = [
        row("HRM", f1=0.0496, ndcg=0.09, ndcg_own=0.11),
        row("DKHRM", f1_20=0.06, f1_100=0.04, ndcg_20=0.05, ndcg_100=0.2),
        row("DKHRM", "selected by NDCG", f1_20=0.01, f1_100=0.01, ndcg_20=0.3, ndcg_100=0.3),
        row("DKHRM", "uniform sampling", f1_20=0.01, f1_100=0.01, ndcg_20=0.01, ndcg_100=0.01),
    ]
    found = {(one["own_N"], one["cap"]): one for one in count_cells(table, ["r"]) if one["bias"]}
    assert found[True, 20]["reached"] == 4  # .0496 is .050 with three digits
    assert found[False, 20]["below"] == ["HRM NDCG", "DK-HRM NDCG"]
    assert found[False, 100]["below"] == ["DK-HRM F1", "HRM NDCG"]
    assert {one["cells"] for one in found.values()} == {4}
    assert cell(table[0], "ndcg", True, 20) == 0.11


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

    own = np.mean([harmonic((precision[k], recall[k]), covered[k]) for k in range(2)])
    other = np.mean([harmonic((base[0][k], base[1][k]), np.ones(400)) for k in range(2)])
    assert found["difference"] == pytest.approx(own - other)
    assert found["low"] < found["difference"] < found["high"]
    assert found["p"] < 0.05


def test_cells_of_the_harmonic_reading_are_those_of_models_selected_by_it():
    def row(kind, **figures):
        return {
            "model": "HRM", "bias": True, "reading": "r", "kind": kind,
            "figures": {name: {"mean": value} for name, value in figures.items()},
            "paper": {"f1": 0.05, "ndcg": 0.1},
        }  # fmt: skip

    table = [
        row("", f1=0.04, ndcg=0.1, ndcg_own=0.1, harmonic=0.9),
        row("selected by harmonic F1", f1=0.9, ndcg=0.2, ndcg_own=0.2, harmonic=0.0525),
    ]
    cells = [
        one for one in count_cells(table, ["r"]) if one["bias"] and one["cap"] == 20 and not one["own_N"]
    ]
    assert [one["f1"] for one in cells] == ["f1", "harmonic"]
    assert [one["reached"] for one in cells] == [1, 2]
    assert cells[0]["distance"] == pytest.approx(np.sqrt(0.05 / 0.04) - 1)
    assert cells[1]["distance"] == pytest.approx(np.sqrt(1.05 * 2) - 1)


# ------------------------------------------------------------------ files
def test_every_model_has_a_row_in_every_variant(done):
    _, found = done
    names = {(row["model"], row["kind"], row["bias"], row["reading"]) for row in found["rows"]}
    n_variants = 2 * len(found["readings"])
    n_rows = sum(len(protocol.kinds_of(model)) for model in protocol.MODELS)
    assert n_rows == 4 * 2 + 2 * 4  # dynamic models: also selected by NDCG, and uniform sampling
    assert len(names) == len(found["rows"]) == n_variants * n_rows
    for row in found["rows"]:
        assert row["params"]["bias"] == row["bias"]
        assert (row["params"].get("negatives") == "uniform") == (row["kind"] == "uniform sampling")
        if row["model"] in protocol.ORIGINAL:
            assert row["params"]["boundary"] == "learned"
            assert all(0 < test["p"] <= test["p_holm"] <= 1 for test in row["tests"].values())


def test_every_extension_has_a_row_in_every_reading(done):
    found = done[1]["extended"]
    names = [(row["model"], row["extension"], row["lists"], row["reading"]) for row in found["rows"]]
    assert len(set(names)) == len(names) == 2 * sum(len(one.lists) for one in EXTENSIONS)
    for row in found["rows"]:
        own = row["lists"] in OPTIMAL
        assert (row["params"].get("boundary") == "learned") == (row["lists"] == LEARNED)
        assert ("trend_half_life" in row["params"]) == ("trend" in row["extension"])
        if own:  # users are ranked, so the wanted share is covered exactly
            assert row["figures"]["cover_ratio"]["mean"] == pytest.approx(0.7, abs=0.01)
        if row["model"] in protocol.ORIGINAL:
            assert all(0 < test["p"] <= test["p_holm"] <= 1 for test in row["tests"].values())


def test_files_are_written_and_the_table_has_the_variants_side_by_side(done):
    place, found = done
    assert {path.name for path in place.iterdir()} == {"variants.json", "variants.md", "cache"}
    lines = (place / "variants.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    second = next(n for n, line in enumerate(rows) if n and line.startswith("| model"))
    for table in (rows[:second], rows[second:]):
        assert len({line.count("|") for line in table}) == 1
    assert rows[0].count("item biases") == 2 * len(found["readings"])
    assert len(rows[second:]) - 2 == 4 * 1 + 8 * (sum(len(one.lists) for one in EXTENSIONS) - 1)
    assert any(line.startswith("3 trials per model") for line in lines)


def test_interrupted_run_resumes_with_identical_results(done, tmp_path, monkeypatch):
    place, _ = done
    (tmp_path / "cache").mkdir()
    files = sorted((place / "cache").iterdir())
    for path in files[::2]:
        shutil.copy(path, tmp_path / "cache")
    lines = []
    reproduce("sample", out=tmp_path, n_seeds=2, n_jobs=1, budget=TINY, progress=lines.append)
    assert len(lines) == len(files) - len(files[::2])
    same = [
        {**one, "datasets": {"sample": {**one["datasets"]["sample"], "seconds_of_runs": 0}}}
        for one in (json.loads((folder / "variants.json").read_text()) for folder in (place, tmp_path))
    ]
    assert same[0] == same[1]
    monkeypatch.setattr(module, "evaluate_rows", lambda *_: pytest.fail("ran again"))
    monkeypatch.setattr(module, "evaluate_trial", lambda *_: pytest.fail("ran again"))
    reproduce("sample", out=tmp_path, n_seeds=2, n_jobs=1, budget=TINY)
