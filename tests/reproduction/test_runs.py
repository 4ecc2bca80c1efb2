"""Runs under every reading of the protocol: outcomes, search, rows and sweeps."""

import numpy as np
import pytest

import shortlist as sl
from reproduction import protocol
from reproduction.protocol import MEASURES, Reading
from reproduction.runs import Outcomes, Runs, Workload, pack, unpack
from shortlist.evaluation import evaluate

TINY = Workload(
    n_trials=3, epochs=(1, 2), cover_steps=1, valid_users=80, users=120, n_factors=8, sweep_seeds=1, n_seeds=2
)


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
    outcomes = Outcomes(found, split.test, users)
    for N in (1, 7, 20):
        report = evaluate(found.head(N), split.test)
        np.testing.assert_allclose(outcomes.measure(N)["f1"], report.values("f1"))
        np.testing.assert_allclose(outcomes.measure(N)["ndcg"], report.values("ndcg_paper"))
        assert outcomes.curves["f1"][N - 1] == pytest.approx(report.f1)
    lengths = outcomes.above(cap=20)
    cut = sl.cutoff.Boundary().apply(found)
    assert lengths.tolist() == np.minimum(cut.lengths, 20).tolist()
    report = evaluate(cut.head(20), split.test)
    means = outcomes.means(lengths)
    assert means["f1"] == pytest.approx(report.mean("f1", "covered"))
    assert means["ndcg"] == pytest.approx(report.mean("ndcg_paper", "covered"))


def test_outcomes_of_some_users_are_their_rows(lists):
    split, found = lists
    users = split.test.active_users
    some = Outcomes(found, split.test, users[3::5])
    everyone = Outcomes(found, split.test, users)
    np.testing.assert_array_equal(some.measure(5)["f1"], everyone.measure(5)["f1"][3::5])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_shift_covers_the_wanted_share(lists, share):
    split, found = lists
    outcomes = Outcomes(found, split.test, split.test.active_users)
    covered = (outcomes.above(outcomes.shift_for(share)) > 0).mean()
    assert covered == pytest.approx(share, abs=1 / split.test.active_users.size)


def test_single_last_item_is_the_last_row_of_each_user(lists):
    truth = lists[0].test
    last = Reading("x", single=True).truth(truth)
    assert last.n_rows == truth.active_users.size
    expected = [truth.item[truth.indptr[user + 1] - 1] for user in truth.active_users]
    assert last.item.tolist() == expected
    assert Reading("x").truth(truth) is truth


def test_users_have_enough_baskets(lists):
    split = lists[0]
    users = Reading("x", min_baskets=6).users(split.train_valid, split.test)
    n_baskets = np.diff(split.data.user_baskets)
    assert users.tolist() == [u for u in split.test.active_users if n_baskets[u] >= 6]


def test_validation_users_have_histories_like_the_tested_ones():
    """Users with at least four baskets are tested: so are those of validation, one basket earlier."""
    runs = Runs("sample", TINY, None)
    runs.readings = (Reading("long", min_baskets=4),)
    split = runs.split
    tested = runs.readings[0].users(split.train_valid, split.test)
    _, truth, users = runs._like({"long": tested})
    assert 20 < users["long"].size <= TINY.valid_users
    assert np.unique(users["long"]).tolist() == users["long"].tolist() == truth.active_users.tolist()
    baskets = np.diff(split.train.user_baskets)[users["long"]]
    wanted = np.diff(split.train_valid.user_baskets)[tested]
    assert baskets.min() >= 3
    for low, high in ((3, 4), (5, 8)):
        share = ((wanted >= low) & (wanted <= high)).mean()
        assert ((baskets >= low) & (baskets <= high)).mean() == pytest.approx(share, abs=0.05)


# ------------------------------------------------------------------ search
def searching(figures):
    """Runs whose trials are looked up in a function of the parameters."""
    runs = object.__new__(Runs)
    runs.readings, runs.dataset, runs.n_jobs = (Reading("a"), Reading("b")), "ta-feng", 1
    runs.work = Workload(n_trials=9, epochs=(1, 3), cover_steps=4, n_factors=4)
    runs.validate = lambda model, params: figures(params)
    return runs


def top_n(score):
    """What validation finds of a top-N model under both readings."""
    return {reading: {"N": {}, "valid": dict.fromkeys(MEASURES, score)} for reading in "ab"}


def test_a_third_of_the_trials_trains_for_longer_and_the_best_is_selected():
    def figures(params):
        score = 1 - abs(np.log(params["lr"] / 0.1)) + params["n_epochs"] / 100
        return top_n(score)

    search = searching(figures)
    tried = search.halve("BPRMF", protocol.PAIRWISE, True)
    assert [one["params"]["n_epochs"] for one in tried] == [1] * 9 + [3] * 3
    kept = sorted(one["params"]["lr"] for one in tried[9:])
    nearest = sorted(tried[:9], key=lambda one: abs(np.log(one["params"]["lr"] / 0.1)))[:3]
    assert kept == sorted(one["params"]["lr"] for one in nearest)
    best = search.select(tried, Reading("a"), "f1")
    assert best["params"]["lr"] == nearest[0]["params"]["lr"]
    assert best["params"]["n_epochs"] == 3


def test_figure_1_starts_from_the_cover_ratio_of_the_paper():
    """The fewer negatives, the more users are covered: 1 / (1 + negatives / 20)."""

    def figures(params):
        cover = 1 / (1 + params["negatives"] / 20)
        shift = float(np.log(20 * (1 / 0.7 - 1) / params["negatives"])) / 2  # half way
        return {name: {"N": None, "valid": {"cover_ratio": cover}, "shift": shift} for name in "ab"}

    search = searching(figures)
    start = search.trial("DKHRM", {"negatives": 200.0, "lr": 0.1})
    found = search.reach_cover_ratio(start)
    assert found["lr"] == 0.1
    assert figures(found)["a"]["valid"]["cover_ratio"] == pytest.approx(0.7, abs=0.05)


def test_the_mean_over_seeds_decides_between_the_best_settings():
    """The largest step size is best with the seed of the search, and worst with the two others."""

    def figures(params):
        score = params["lr"] if params["seed"] == 0 else -params["lr"]
        return top_n(score)

    search = searching(figures)
    tried = search.halve("BPRMF", protocol.PAIRWISE, True)
    three_best = sorted({one["params"]["lr"] for one in tried})[-3:]
    longest = [one for one in tried if one["params"]["n_epochs"] == 3]
    assert search.select(longest, Reading("a"), "f1")["params"]["lr"] == three_best[0]


def test_dynamic_models_are_selected_at_the_cover_ratio_of_the_paper():
    def figures(params):
        measures = {f"{name}_at_target": params["lr"] for name in MEASURES}
        return {name: {"N": None, "valid": measures | {"f1": -params["lr"]}} for name in "ab"}

    search = searching(figures)
    tried = [search.trial("DKHRM", {"lr": lr, "seed": 0}) for lr in (0.5, 0.6, 0.05)]
    assert search.select(tried, Reading("a"), "harmonic")["params"]["lr"] == 0.6


# ------------------------------------------------------------------ rows
def test_negative_sampling_gets_more_epochs_and_no_pairs():
    def figures(params):
        return top_n(params["lr"])

    tried = searching(figures).halve("HRM", protocol.NEGATIVE_SAMPLING, True)
    assert {one["params"]["n_epochs"] for one in tried} == {8, 24}
    assert all(2 <= one["params"]["negatives"] <= 32 for one in tried)
    assert "negative_draws" not in tried[0]["params"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs("sample", TINY, tmp_path_factory.mktemp("cache"), n_jobs=2)


@pytest.fixture(scope="module")
def rows(runs):
    return runs.rows()


def test_every_model_has_its_rows_in_every_variant(rows):
    names = ("model", "loss", "selected_by", "bias", "reading")
    found = {tuple(row[name] for name in names) for row in rows}
    n_rows = 5 * 2 + 2 * 3  # HRM with two losses; dynamic models also by NDCG
    assert len(found) == len(rows) == 4 * n_rows
    for row in rows:
        assert row["params"]["bias"] == row["bias"]
        assert len(row["runs"]) == 2
        assert (row["params"].get("negatives") is None) == (
            row["model"] in ("BPRMF", "CRRMF") or (row["model"], row["loss"]) == ("HRM", "pairwise")
        )
        if row["model"] in protocol.ORIGINAL:
            assert row["params"]["boundary"] == "learned"
            assert row["N"] is None
        else:
            assert all(1 <= N <= 20 for N in row["N"].values())
            assert len(row["runs"][0]["curve"]) == 20


def test_shifted_boundaries_cover_as_many_test_users_as_asked(rows):
    for row in rows:
        if row["model"] in protocol.ORIGINAL:
            for run in row["runs"]:
                covered = run["covered"]
                assert covered.mean() == pytest.approx(0.7, abs=1 / covered.size)


def test_sweeps_vary_one_parameter_at_a_time(runs, rows):
    sweeps = runs.sweeps(rows)
    assert list(sweeps) == ["t", "lambda_t", "alpha", "t_biased"]
    for name, sweep in sweeps.items():
        assert sweep["values"] == list(protocol.SWEEPS[name.removesuffix("_biased")])
        assert {len(values) for values in sweep.values()} == {len(sweep["values"])}
    # λ_t = 1 is the setting of the other sweeps, t = 2 that of this one
    at = [sweeps[name]["values"].index(value) for name, value in (("t", 2.0), ("lambda_t", 1.0))]
    assert sweeps["t"]["f1"][at[0]] == sweeps["lambda_t"]["f1"][at[1]]


# ------------------------------------------------------------------ stored results
def test_a_result_is_computed_once(tmp_path, monkeypatch):
    runs, calls = Runs("sample", TINY, tmp_path), []
    monkeypatch.setattr(runs, "outcomes", lambda *settings: calls.append(settings) or {})
    assert runs.validate("BPRMF", {"lr": 1}) == runs.validate("BPRMF", {"lr": 1}) == {}
    assert runs.validate("BPRMF", {"lr": 2}) == {}
    assert calls == [("BPRMF", {"lr": 1}, "valid"), ("BPRMF", {"lr": 2}, "valid")]


def test_pack_and_unpack_are_inverse():
    values = np.linspace(0, 1, 11)
    assert unpack(pack(values)) == pytest.approx(values, abs=1e-7)
    assert unpack({"f1": 1}) == {"f1": 1}


def test_a_sample_of_users_keeps_all_their_rows():
    whole, part = Runs("sample", Workload(), None).split.data, Runs("sample", TINY, None).split.data
    assert part.active_users.size == 120
    for user in part.active_users[:5]:
        assert part.indptr[user + 1] - part.indptr[user] == whole.indptr[user + 1] - whole.indptr[user]
