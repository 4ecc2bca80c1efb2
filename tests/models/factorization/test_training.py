"""The training loop: early stopping, Ctrl-C, divergence and checkpoints."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from shortlist.data.ranges import MemoryRows
from shortlist.errors import ConfigError, DataError, ModelFileError, TrainingError
from shortlist.models.factorization import training
from shortlist.models.factorization.model import collect_statistics
from shortlist.models.factorization.representation import HybridFactors
from shortlist.models.factorization.training import ThreadTrainer, TrainingTask, has_moderate_norms
from tests.models.cases import JOINT, bits, checkerboard, crowd, fit, fitted, model

joint_model = pytest.mark.parametrize("name", JOINT)


def split():
    """The checkerboard without its last basket, and that basket, over the same ids."""
    data = checkerboard()
    last = np.repeat(data.user_baskets[1:] - 1, np.diff(data.indptr))
    basket = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    return data.where(basket < last), data.where(basket == last)


class Recorder:
    """Record progress calls, and raise an error after some epoch."""

    def __init__(self, after=None, error=None):
        self.calls, self.after, self.error = [], after, error

    def __call__(self, progress):
        self.calls.append(progress)
        if progress.epoch == self.after:
            raise self.error


class StopError(Exception):
    """Raised by a test to stop training."""


# ------------------------------------------------------------------ stopping
def test_progress_reports_every_epoch():
    recorder = Recorder()
    train, valid = split()
    one = model("DKHRM", n_epochs=3).fit(train, valid=valid, progress=recorder)
    assert [call.epoch for call in recorder.calls] == [1, 2, 3]
    assert {call.n_epochs for call in recorder.calls} == {3}
    assert [call.loss for call in recorder.calls] == one.losses_
    assert [call.score for call in recorder.calls] == one.valid_scores_
    assert all(call.updates_per_second > 0 for call in recorder.calls)
    assert one.stopped_ == "n_epochs"


@joint_model
def test_losses_fall(name):
    losses = fitted(name).losses_
    assert losses[-1] < losses[0]
    assert len(losses) == fitted(name).n_epochs_ == 60


@pytest.mark.parametrize("bias", [True, False])
def test_patience_keeps_the_best_parameters(bias, monkeypatch):
    """The third epoch has the best score, and later epochs do not improve on it."""
    seen = []

    class Scripted:
        users = np.arange(3, dtype=np.int32)

        def score(self, theta):
            seen.append(theta)
            return [0.1, 0.2, 0.5, 0.4, 0.5, 0.3, 0.9][len(seen) - 1]

    def build_evaluator(*_):
        return Scripted()

    monkeypatch.setattr("shortlist.models.factorization.model.build_evaluator", build_evaluator)
    train, valid = split()
    one = model("BPRMF", patience=3, bias=bias, init=1.0).fit(train, valid=valid)
    assert one.stopped_ == "patience"
    assert one.n_epochs_ == 3
    assert len(one.valid_scores_) == 6
    assert bits(one) == bits(model("BPRMF", n_epochs=3, bias=bias, init=1.0).fit(train))


@pytest.mark.parametrize("name", ["LogMF", "DKBPRMF"])
def test_patience_is_not_counted_while_vectors_are_short(monkeypatch, name):
    """From small vectors on, biases learn first; factors follow epochs later."""
    monkeypatch.setattr(training, "SHORT", 1e9)
    train, valid = split()
    fitted = model(name, patience=1, n_epochs=12).fit(train, valid=valid)
    assert (fitted.stopped_, len(fitted.losses_)) == ("n_epochs", 12)
    monkeypatch.setattr(training, "SHORT", 0.0)
    assert model(name, patience=1, n_epochs=12).fit(train, valid=valid).stopped_ == "patience"


def test_short_vectors_worked_by_hand(monkeypatch):
    norms, shapes = {"user": 6.0, "item": 4.0}, {"user": (9, 2), "item": (16, 2)}
    monkeypatch.setattr(training, "SHORT", 2.01)
    assert training.has_short_vectors(norms, shapes)
    monkeypatch.setattr(training, "SHORT", 1.99)
    assert not training.has_short_vectors(norms, shapes)


def test_tol_stops_when_the_loss_is_stable():
    one = fit("BPRMF", checkerboard(), tol=0.5)
    assert one.stopped_ == "tol"
    assert one.n_epochs_ == 4
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=4))


def test_validation_data_must_match_the_training_data():
    train, _ = split()
    with pytest.raises(DataError, match="share its id tables"):
        model("BPRMF").fit(train, valid=crowd())
    with pytest.raises(DataError, match="at least one interaction"):
        model("BPRMF").fit(train, valid=train.where(np.zeros(train.n_rows, bool)))


# ------------------------------------------------------------------ divergence and Ctrl-C
DIVERGING = [("CRRMF", 5.0), ("CRRMF", 10.0), ("DKBPRMF", 10.0), ("DKHRM", 10.0), ("BPRMF", 10.0)]


@pytest.mark.parametrize(("name", "lr"), DIVERGING)
def test_far_too_large_steps_are_halved_until_training_converges(name, lr):
    recorder = Recorder()
    one = model(name, lr=lr, n_epochs=30, reg=0.1).fit(checkerboard(), progress=recorder)
    assert one.lr_ < lr
    assert one.lr_ == lr * 0.5 ** round(np.log2(lr / one.lr_))
    assert one.stopped_ == "n_epochs"
    assert recorder.calls[-1].lr == pytest.approx(one.lr_)
    start = fit(name, checkerboard(), lr=1e-9, n_epochs=1).losses_[0]
    assert max(one.losses_) < 1.1 * start
    assert all(np.isfinite(array).all() for array in one._state.parameters)
    again = model(name, lr=lr, n_epochs=30, reg=0.1, n_threads=3).fit(checkerboard())
    assert bits(again) == bits(one)


def test_halved_steps_survive_a_checkpoint_and_a_file(tmp_path):
    options = {"lr": 10.0, "n_epochs": 8, "reg": 0.1}
    whole = fit("CRRMF", checkerboard(), **options)
    with pytest.raises(StopError):
        model("CRRMF", **options).fit(
            checkerboard(), checkpoint=tmp_path / "run", progress=Recorder(4, StopError())
        )
    part = model("CRRMF", **options | {"n_epochs": 4}).fit(checkerboard(), checkpoint=tmp_path / "run")
    assert part.lr_ < 10
    resumed = model("CRRMF", **options).fit(checkerboard(), checkpoint=tmp_path / "run")
    assert bits(resumed) == bits(whole)
    assert resumed.lr_ == whole.lr_
    assert type(whole).load(whole.save(tmp_path / "model")).lr_ == whole.lr_


def test_training_that_never_becomes_stable_stops_and_keeps_the_start(monkeypatch):
    exact = HybridFactors.run_round

    def broken(self, schedule, round_index, theta, hyper, key):
        exact(self, schedule, round_index, theta, hyper, key)
        theta.item[0] = 1e7

    monkeypatch.setattr(HybridFactors, "run_round", broken)
    one = fit("DKHRM", checkerboard())
    assert one.stopped_ == "step_size"
    assert one.n_epochs_ == 0
    assert np.abs(one._state.parameters.item).max() < 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e7])
@pytest.mark.parametrize("part", ["user", "boundary", "item", "bias"])
def test_divergence_of_any_parameter_is_detected(part, value):
    one, rows = model("DKBPRMF", n_threads=1), MemoryRows(checkerboard())
    statistics = collect_statistics(one, rows)
    start = one._initializer(statistics, rows.n_items)
    task = TrainingTask(model=one, rows=rows, statistics=statistics, start=start)
    with ThreadTrainer(task) as trainer:
        trainer.prepare_epoch(0)
        assert has_moderate_norms(trainer.norms())
        getattr(trainer.theta, part).flat[0] = value
        assert not has_moderate_norms(trainer.norms())
        trainer.undo_epoch()
        assert has_moderate_norms(trainer.norms())


def test_loss_that_is_not_finite_at_the_start_is_an_error():
    with pytest.raises(TrainingError, match="training cannot start: the loss of the initial parameters"):
        fit("DKBPRMF", checkerboard(), init=1e25)


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_ctrl_c_keeps_completed_epochs(name):
    one = model(name).fit(checkerboard(), progress=Recorder(4, KeyboardInterrupt()))
    assert one.stopped_ == "interrupted"
    assert one.n_epochs_ == 4
    assert bits(one) == bits(fit(name, checkerboard(), n_epochs=4))


def test_ctrl_c_between_epochs_keeps_the_last_epoch(monkeypatch):
    epoch = training._run_epoch

    def interrupted(state, *args):
        if state.epoch == 2:
            raise KeyboardInterrupt
        return epoch(state, *args)

    monkeypatch.setattr(training, "_run_epoch", interrupted)
    assert bits(fit("BPRMF", checkerboard())) == bits(fit("BPRMF", checkerboard(), n_epochs=2))


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_ctrl_c_during_an_epoch_keeps_a_usable_model_and_the_last_checkpoint(name, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1)
    place, one = tmp_path / "run", model(name, n_epochs=4, lr=0.05)
    kind = one.representation_class
    exact, rounds = kind.run_round, []

    def interrupted(self, schedule, round_index, *args):
        rounds.append(round_index)
        if rounds.count(0) == 3 and round_index == 1:
            raise KeyboardInterrupt
        exact(self, schedule, round_index, *args)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "run_round", interrupted)
        one.fit(crowd(), checkpoint=place)
    assert one.stopped_ == "interrupted"
    assert one.n_epochs_ == 2
    assert bits(one) != bits(fit(name, crowd(), n_epochs=2, lr=0.05))  # the third epoch had begun
    assert all(np.isfinite(array).all() for array in one._state.parameters)
    resumed = model(name, n_epochs=4, lr=0.05).fit(crowd(), checkpoint=place)
    assert bits(resumed) == bits(fit(name, crowd(), n_epochs=4, lr=0.05))


def test_ctrl_c_in_the_first_epoch_is_raised(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    one = fit("BPRMF", checkerboard())
    kept = bits(one)
    monkeypatch.setattr(training, "_run_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.fit(checkerboard())
    assert bits(one) == kept


# ------------------------------------------------------------------ checkpoints
@joint_model
def test_resumed_run_gives_the_same_bits(name, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1)
    train, valid = split()
    never = model(name, n_epochs=9, patience=9).fit(train, valid=valid)
    for after in (2, 6):  # stopped twice, with a relabeling in between
        with pytest.raises(StopError):
            model(name, n_epochs=9, patience=9).fit(
                train, valid=valid, checkpoint=tmp_path / "run", progress=Recorder(after, StopError())
            )
    recorder = Recorder()
    again = model(name, n_epochs=9, patience=9, n_threads=2).fit(
        train, valid=valid, checkpoint=tmp_path / "run", progress=recorder
    )
    assert recorder.calls[0].epoch == 6  # the checkpoint was written after epoch 5
    assert bits(again) == bits(never)
    assert again.losses_ == never.losses_
    assert again.valid_scores_ == never.valid_scores_
    assert again.n_epochs_ == never.n_epochs_


def test_finished_run_is_not_repeated_but_can_be_extended(tmp_path):
    place = tmp_path / "run"
    model("BPRMF", n_epochs=3).fit(checkerboard(), checkpoint=place)
    recorder = Recorder()
    one = model("BPRMF", n_epochs=3).fit(checkerboard(), checkpoint=place, progress=recorder)
    assert recorder.calls == []
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=3))
    longer = model("BPRMF", n_epochs=5).fit(checkerboard(), checkpoint=place)
    assert bits(longer) == bits(fit("BPRMF", checkerboard(), n_epochs=5))
    with pytest.raises(ConfigError, match=r"n_epochs must be at least 5, the epoch of .* got 4"):
        model("BPRMF", n_epochs=4).fit(checkerboard(), checkpoint=place)


def test_ctrl_c_writes_the_checkpoint(tmp_path):
    place = tmp_path / "run"
    model("BPRMF", n_epochs=9).fit(
        checkerboard(), checkpoint=place, progress=Recorder(4, KeyboardInterrupt())
    )
    recorder = Recorder()
    one = model("BPRMF", n_epochs=9).fit(checkerboard(), checkpoint=place, progress=recorder)
    assert recorder.calls[0].epoch == 5
    assert one.stopped_ == "n_epochs"
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=9))


def test_checkpoint_of_another_run_is_rejected(tmp_path):
    place = tmp_path / "run"
    model("BPRMF", n_epochs=2).fit(checkerboard(), checkpoint=place)
    train, valid = split()
    for other, data, held, what in (
        (model("BPRMF", n_epochs=2, lr=0.2), checkerboard(), None, "lr"),
        (model("BPRMF", n_epochs=2, seed=3), checkerboard(), None, "seed"),
        (model("DKBPRMF", n_epochs=2), checkerboard(), None, "class"),
        (model("BPRMF", n_epochs=2), train, None, "data"),
        (model("BPRMF", n_epochs=2), checkerboard(), valid, "valid"),
    ):
        with pytest.raises(ConfigError, match=rf"belongs to another run \(.*\b{what}\b.* differ"):
            other.fit(data, valid=held, checkpoint=place)


def test_checkpoint_path_with_other_content_is_rejected(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("mine")
    recorder = Recorder()
    with pytest.raises(DataError, match="is not a saved model"):
        model("BPRMF").fit(checkerboard(), checkpoint=tmp_path / "notes", progress=recorder)
    assert recorder.calls == []  # rejected before the first epoch
    fitted("BPRMF").save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="holds a model, not a checkpoint"):
        model("BPRMF").fit(checkerboard(), checkpoint=tmp_path / "model")


KILLED = """
    import os, signal
    from shortlist.models.factorization import training
    from tests.models.cases import checkerboard, model

    training.CHECKPOINT_SECONDS = -1

    def progress(call):
        if call.epoch == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    model("DKBPRMF", n_epochs=8).fit(checkerboard(), checkpoint={place!r}, progress=progress)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_run_resumes_to_the_same_bits(tmp_path):
    place, home = tmp_path / "run", Path(__file__).parents[3]
    code = textwrap.dedent(KILLED).format(place=str(place))
    killed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(home), str(home / "src")])},
        timeout=300,
    )
    assert killed.returncode == -signal.SIGKILL
    recorder = Recorder()
    one = model("DKBPRMF", n_epochs=8).fit(checkerboard(), checkpoint=place, progress=recorder)
    assert recorder.calls[0].epoch == 4
    assert bits(one) == bits(fit("DKBPRMF", checkerboard(), n_epochs=8))
