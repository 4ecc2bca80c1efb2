"""The training loop: early stopping, Ctrl-C and divergence."""

import numpy as np
import pytest

from shortlist.errors import DataError, TrainingError
from shortlist.models.factorization import training
from shortlist.models.factorization.groups import Groups
from shortlist.models.factorization.training import Trainer, TrainingRows, has_moderate_norms
from tests.models.cases import JOINT, bits, checkerboard, crowd, fit, fitted, model
from tests.threads import use_threads

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
    norms = {"user": 6.0, "item": 4.0}
    monkeypatch.setattr(training, "SHORT", 2.01)
    assert training.has_short_vectors(norms, 9, 16)
    monkeypatch.setattr(training, "SHORT", 1.99)
    assert not training.has_short_vectors(norms, 9, 16)


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
    with use_threads(3):
        again = model(name, lr=lr, n_epochs=30, reg=0.1).fit(checkerboard())
    assert bits(again) == bits(one)


def test_the_halved_step_size_survives_a_file(tmp_path):
    whole = fit("CRRMF", checkerboard(), lr=10.0, n_epochs=8, reg=0.1)
    assert whole.lr_ < 10
    assert type(whole).load(whole.save(tmp_path / "model")).lr_ == whole.lr_


def test_training_that_never_becomes_stable_stops_and_keeps_the_start(monkeypatch):
    exact = Groups.run_round

    def broken(self, schedule, round_index, theta, hyper, key):
        exact(self, schedule, round_index, theta, hyper, key)
        theta.item[0] = 1e7

    monkeypatch.setattr(Groups, "run_round", broken)
    one = fit("DKHRM", checkerboard())
    assert one.stopped_ == "step_size"
    assert one.n_epochs_ == 0
    assert np.abs(one._state.parameters.item).max() < 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e7])
@pytest.mark.parametrize("part", ["user", "boundary", "item", "bias"])
def test_divergence_of_any_parameter_is_detected(part, value):
    one, data = model("DKBPRMF"), checkerboard()
    start = one.terms.start(data)
    rows = TrainingRows.of(one, one.representation.groups(data, start, one.weight_transform))
    theta = one.initialize(data.n_users, data.n_items, start)
    with Trainer(one, rows, theta) as trainer:
        trainer.prepare_epoch(0)
        assert has_moderate_norms(trainer.norms())
        getattr(trainer.theta, part).flat[0] = value
        assert not has_moderate_norms(trainer.norms())
        trainer.undo_epoch()
        assert has_moderate_norms(trainer.norms())


def test_loss_that_is_not_finite_at_the_start_is_an_error():
    with pytest.raises(TrainingError, match="training cannot start: the loss of the initial parameters"):
        fit("DKBPRMF", checkerboard(), init=1e12)


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_ctrl_c_keeps_completed_epochs(name):
    one = model(name).fit(checkerboard(), progress=Recorder(4, KeyboardInterrupt()))
    assert one.stopped_ == "interrupted"
    assert one.n_epochs_ == 4
    assert bits(one) == bits(fit(name, checkerboard(), n_epochs=4, boundary="learned"))


def test_ctrl_c_between_epochs_keeps_the_last_epoch(monkeypatch):
    epoch = training._run_epoch

    def interrupted(state, *args):
        if state.epoch == 2:
            raise KeyboardInterrupt
        return epoch(state, *args)

    monkeypatch.setattr(training, "_run_epoch", interrupted)
    assert bits(fit("BPRMF", checkerboard())) == bits(fit("BPRMF", checkerboard(), n_epochs=2))


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_ctrl_c_during_an_epoch_keeps_a_usable_model(name, monkeypatch):
    one = model(name, n_epochs=4, lr=0.05)
    exact, rounds = Groups.run_round, []

    def interrupted(self, schedule, round_index, *args):
        rounds.append(round_index)
        if rounds.count(0) == 3 and round_index == 1:
            raise KeyboardInterrupt
        exact(self, schedule, round_index, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Groups, "run_round", interrupted)
        one.fit(crowd())
    assert one.stopped_ == "interrupted"
    assert one.n_epochs_ == 2
    assert bits(one) != bits(fit(name, crowd(), n_epochs=2, lr=0.05))  # the third epoch had begun
    assert all(np.isfinite(array).all() for array in one._state.parameters)


def test_ctrl_c_in_the_first_epoch_is_raised(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    one = fit("BPRMF", checkerboard())
    kept = bits(one)
    monkeypatch.setattr(training, "_run_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.fit(checkerboard())
    assert bits(one) == kept
