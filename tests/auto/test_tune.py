"""tune: the result does not depend on the workers, a killed search continues, bad trials stop early."""

import json

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.auto.space import SPACES, Range, default_space, draw
from shortlist.auto.tune import N_REFERENCES, Study, Trial, read_tuned, tune
from shortlist.errors import ConfigError, DataError, TrainingError

FAST = {"n_factors": 8, "n_epochs": 8, "patience": 8}


@pytest.fixture(scope="module")
def data():
    return sl.load_dataset("sample")


def search(data, **given):
    settings = {"n_trials": 6, "seed": 3, "n_jobs": 1, "fixed": FAST} | given
    return tune("BPRMF", data, **settings)


@pytest.fixture(scope="module")
def found(data):
    return search(data)


def test_number_of_workers_does_not_change_the_result(data, found):
    assert search(data, n_jobs=3) == found


def test_longer_search_starts_with_the_trials_of_the_shorter_one(data, found):
    assert search(data, n_trials=5).trials == found.trials[:5]


def test_best_finished_trial_is_selected(data, found):
    finished = [trial for trial in found.trials if trial.stopped == "done"]
    best = max(finished, key=lambda trial: trial.score)
    assert found.score == best.score == max(best.curves[0])
    assert found.params == {**FAST, **best.params, "n_epochs": 1 + int(np.argmax(best.curves[0]))}


def test_score_is_that_of_a_model_built_from_the_result(data, found):
    split = sl.split.last_basket(data)
    again = found.build().fit(split.train_valid, valid=split.test)
    assert max(again.valid_scores_) == found.score


def test_unordered_data_is_validated_on_random_items(data):
    found = tune("Popularity", sl.Interactions.from_csr(data.to_csr()), n_trials=1, n_jobs=1)
    assert 0 < found.score < 1
    with pytest.raises(DataError, match="basket"):
        tune("Popularity", sl.Interactions.from_csr(data.to_csr()), n_trials=1, n_jobs=1, n_folds=2)


def test_killed_search_continues(data, found, tmp_path):
    path = tmp_path / "study.jsonl"
    assert search(data, study=path) == found
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 7
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])  # killed while writing a line
    ran = []
    assert search(data, study=path, progress=lambda trial: ran.append(trial.number)) == found
    stored = {json.loads(line)["number"] for line in lines[1:3]}
    assert set(ran) == set(range(6)) - stored


def test_finished_search_runs_nothing(data, tmp_path):
    path = tmp_path / "study.jsonl"
    search(data, study=path)
    search(data, study=path, progress=lambda trial: pytest.fail("ran again"))


def test_study_of_another_search_is_refused(data, tmp_path):
    path = tmp_path / "study.jsonl"
    search(data, n_trials=1, study=path)
    with pytest.raises(ConfigError, match="different seed"):
        search(data, n_trials=1, study=path, seed=4)
    path.write_text("no study\n")
    with pytest.raises(DataError, match="is not a study"):
        search(data, n_trials=1, study=path)


def test_bad_trials_are_stopped_early(data):
    """With a step size of 1e-6 a model learns nothing, so such a trial falls below the median."""
    lr = (0.1, 0.1, 0.1, 1e-6)
    space = {"lr": lr}
    seed = next(
        s for s in range(200)
        if [draw(space, s, k)["lr"] for k in range(N_REFERENCES + 1)] == [0.1] * N_REFERENCES + [1e-6]
    )  # fmt: skip
    done = tune("BPRMF", data, n_trials=N_REFERENCES + 1, space=space, fixed=FAST, seed=seed, n_jobs=2)
    *references, last = done.trials
    assert [trial.stopped for trial in references] == ["done"] * N_REFERENCES
    assert last.stopped == "median"
    assert len(last.curves[0]) < FAST["n_epochs"]
    assert done.params["lr"] == 0.1


def test_divergence_is_a_bad_trial_not_an_error(data):
    space = {"lr": (10.0,), "init": (1e5,)}
    with pytest.raises(TrainingError, match="every trial"):
        tune("CRRMF", data, n_trials=2, space=space, fixed=FAST, n_jobs=1)


def test_tpe_is_repeatable_and_continues(data, tmp_path):
    path = tmp_path / "study.jsonl"
    settings = {"n_trials": 10, "sampler": "tpe", "fixed": FAST | {"n_epochs": 2}}
    whole = search(data, **settings, n_jobs=2)
    search(data, **(settings | {"n_trials": 7}), study=path)
    assert search(data, **settings, study=path) == whole


def test_counting_models_are_tuned_too(data, tmp_path):
    found = tune("PersonalFrequency", data, n_trials=3, n_jobs=1)
    assert set(found.params) == set(SPACES["PersonalFrequency"])
    assert found.params.items() <= found.build().fit(data).get_params().items()
    name, params = read_tuned(found.write(tmp_path / "tuned.toml"))
    assert (name, params) == (found.model, {k: v for k, v in found.params.items() if v is not None})


def test_time_parameters_are_searched_only_with_timestamps(data):
    assert default_space("HRM", timed=False) == SPACES["HRM"]
    assert default_space("DKHRM", timed=True).keys() - SPACES["DKHRM"].keys() == {"trend_half_life"}
    frame = data.to_frame()
    timeless = sl.Interactions.from_frame(
        frame.select("user_id", "item_id", basket_id=pl.col("timestamp").to_physical())
    )
    for name, fixed in (("HRM", FAST | {"n_epochs": 1}), ("PersonalFrequency", {})):
        found = tune(name, data, n_trials=2, fixed=fixed, n_jobs=1)
        assert set(found.params) & {"half_life", "trend_half_life"}
        found = tune(name, timeless, n_trials=2, fixed=fixed, n_jobs=1)
        assert not set(found.params) & {"half_life", "trend_half_life"}


def test_file_builds_the_same_model(data, found, tmp_path):
    name, params = read_tuned(found.write(tmp_path / "tuned.toml"))
    assert (name, params) == ("BPRMF", found.params)
    assert getattr(sl, name)(**params).get_params() == found.build().get_params()


@pytest.mark.parametrize(
    ("text", "words"),
    [("model = ", "not TOML"), ("[params]\nlr = 1", 'model = "…"'), (None, "no parameter file")],
)
def test_unreadable_files_are_refused(tmp_path, text, words):
    path = tmp_path / "tuned.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_tuned(path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sampler": "grid"}, "random, tpe"),
        ({"n_trials": 0}, "n_trials"),
        ({"n_folds": 0}, "n_folds"),
        ({"fixed": {"learning": 1}}, "no parameter 'learning'"),
    ],
)
def test_wrong_use_is_refused(data, given, words):
    with pytest.raises(ConfigError, match=words):
        search(data, **given)


def test_unknown_model_is_refused(data):
    with pytest.raises(ConfigError, match="SVD"):
        tune("SVD", data)


@pytest.mark.parametrize("model", SPACES)
def test_every_space_draws_valid_parameters(model):
    for number in range(20):
        params = draw(SPACES[model], 0, number)
        getattr(sl, model)().set_params(**params)
        for name, values in SPACES[model].items():
            if isinstance(values, Range):
                assert values.low <= params[name] <= values.high
            else:
                assert params[name] in values


def test_logarithmic_ranges_are_even_in_orders_of_magnitude():
    assert Range(0.01, 1).at(0.5) == pytest.approx(0.1)
    assert Range(0, 1, log=False).at(0.25) == 0.25


def test_best_prefers_finished_trials():
    study = Study({})
    for number, (score, stopped) in enumerate([(0.9, "median"), (0.2, "done"), (0.2, "done")]):
        study.add(Trial(number, {}, score, 1, stopped, [[score]]))
    assert study.best(3).number == 1
    assert study.best(1).number == 0


def test_shorter_search_ignores_the_later_trials_of_a_study(data, tmp_path):
    path, short = tmp_path / "study.jsonl", {"n_trials": 2, "n_jobs": 1, "seed": 1}
    long = tune("PersonalFrequency", data, **(short | {"n_trials": 6}), study=path)
    assert long.score > max(trial.score for trial in long.trials[:2])  # otherwise the test shows nothing
    again = tune("PersonalFrequency", data, **short, study=path)
    assert again == tune("PersonalFrequency", data, **short)


def test_trials_are_scored_under_strict_time_on_request(tmp_path):
    data, study = sl.load_dataset("sample"), tmp_path / "study.jsonl"
    tuned = sl.tune("PersonalFrequency", data, n_trials=2, validation="by_time", n_folds=2, study=study)
    assert [len(trial.curves) for trial in tuned.trials] == [2, 2]
    assert tuned.score != sl.tune("PersonalFrequency", data, n_trials=2, n_folds=2).score
    with pytest.raises(ConfigError, match="different validation"):
        sl.tune("PersonalFrequency", data, n_trials=2, n_folds=2, study=study)
    split = sl.split.last_basket(data)
    with pytest.raises(ConfigError, match="n_folds must be 1"):
        sl.tune("PersonalFrequency", split.train_valid, n_folds=2, validation=split)
