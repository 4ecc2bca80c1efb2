"""Training people can live with: it stops by itself, survives Ctrl-C and kill, and says when it diverges."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from shortlist.errors import ConfigError, DataError, ModelFileError, TrainingError
from shortlist.models.factorization import training
from tests.models.cases import JOINT, bits, checkerboard, crowd, fit, fitted, model

joint_model = pytest.mark.parametrize("name", JOINT)


def split():
    """The checkerboard without its last basket, and that basket, over the same ids."""
    data = checkerboard()
    last = np.repeat(data.user_baskets[1:] - 1, np.diff(data.indptr))
    basket = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    return data.where(basket < last), data.where(basket == last)


class Teller:
    """Keeps what it is told, and raises after some epochs."""

    def __init__(self, after=None, error=None):
        self.told, self.after, self.error = [], after, error

    def __call__(self, progress):
        self.told.append(progress)
        if progress.epoch == self.after:
            raise self.error


class StopError(Exception):
    """What a test throws from inside a run."""


# ------------------------------------------------------------------ stopping
def test_progress_says_where_it_stands():
    teller = Teller()
    train, valid = split()
    one = model("DKHRM", n_epochs=3).fit(train, valid=valid, progress=teller)
    assert [told.epoch for told in teller.told] == [1, 2, 3]
    assert {told.n_epochs for told in teller.told} == {3}
    assert [told.loss for told in teller.told] == one.losses_
    assert [told.score for told in teller.told] == one.valid_scores_
    assert all(told.updates_per_second > 0 for told in teller.told)
    assert one.stopped_ == "n_epochs"


@joint_model
def test_losses_fall(name):
    losses = fitted(name).losses_
    assert losses[-1] < losses[0]
    assert len(losses) == fitted(name).n_epochs_ == 60


@pytest.mark.parametrize("bias", [True, False])
def test_patience_keeps_the_best_state(bias, monkeypatch):
    """A judge that likes the third epoch best, and then waits in vain."""
    seen = []

    def build_evaluator(*_):
        def judge(theta):
            seen.append(theta)
            return [0.1, 0.2, 0.5, 0.4, 0.5, 0.3, 0.9][len(seen) - 1]

        return judge

    monkeypatch.setattr("shortlist.models.factorization.engine.build_evaluator", build_evaluator)
    train, valid = split()
    one = model("BPRMF", patience=3, bias=bias).fit(train, valid=valid)
    assert one.stopped_ == "patience"
    assert one.n_epochs_ == 3
    assert len(one.valid_scores_) == 6
    assert bits(one) == bits(model("BPRMF", n_epochs=3, bias=bias).fit(train))


def test_tol_stops_when_the_loss_rests():
    one = fit("BPRMF", checkerboard(), tol=0.5)
    assert one.stopped_ == "tol"
    assert one.n_epochs_ == 4
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=4))


def test_validation_data_must_fit_the_training_data():
    train, _ = split()
    with pytest.raises(DataError, match="share its id tables"):
        model("BPRMF").fit(train, valid=crowd())
    with pytest.raises(DataError, match="at least one interaction"):
        model("BPRMF").fit(train, valid=train.where(np.zeros(train.n_rows, bool)))


# ------------------------------------------------------------------ divergence and Ctrl-C
@pytest.mark.parametrize(("name", "lr"), [("CRRMF", 5.0), ("CRRMF", 10.0)])
def test_divergence_says_so_and_leaves_the_earlier_state(name, lr):
    one = fit(name, checkerboard())
    kept, one.lr = bits(one), lr
    with pytest.raises(TrainingError, match=rf"diverged in epoch \d+: .* try a smaller lr \(it is {lr:g}"):
        one.fit(checkerboard())
    assert bits(one) == kept
    assert one.n_epochs_ == 60


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e7])
@pytest.mark.parametrize("part", ["user", "boundary", "item", "bias"])
def test_whatever_explodes_is_noticed(part, value, monkeypatch):
    exact = training._epoch

    def broken(run, *args):
        exact(run, *args)
        getattr(run.theta, part).flat[0] = value

    monkeypatch.setattr(training, "_epoch", broken)
    with pytest.raises(TrainingError, match="diverged in epoch 1"):
        fit("DKBPRMF", checkerboard(), n_epochs=1)


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_ctrl_c_keeps_what_was_learned(name):
    one = model(name).fit(checkerboard(), progress=Teller(4, KeyboardInterrupt()))
    assert one.stopped_ == "interrupted"
    assert one.n_epochs_ == 4
    assert bits(one) == bits(fit(name, checkerboard(), n_epochs=4))


def test_ctrl_c_before_an_epoch_keeps_the_one_before(monkeypatch):
    epoch = training._epoch

    def interrupted(run, *args):
        if run.epoch == 2:
            raise KeyboardInterrupt
        epoch(run, *args)

    monkeypatch.setattr(training, "_epoch", interrupted)
    assert bits(fit("BPRMF", checkerboard())) == bits(fit("BPRMF", checkerboard(), n_epochs=2))


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_ctrl_c_in_the_middle_of_an_epoch_leaves_a_usable_model_and_the_last_checkpoint(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1)
    place, one = tmp_path / "run", model(name, n_epochs=4, lr=0.05)
    kind = type(one.representation(crowd(), crowd()))
    exact, turns = kind.run_round, []

    def interrupted(self, schedule, turn, *args):
        turns.append(turn)
        if turns.count(0) == 3 and turn == 1:
            raise KeyboardInterrupt
        exact(self, schedule, turn, *args)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "run_round", interrupted)
        one.fit(crowd(), checkpoint=place)
    assert one.stopped_ == "interrupted"
    assert one.n_epochs_ == 2
    assert bits(one) != bits(fit(name, crowd(), n_epochs=2, lr=0.05))  # the third epoch had begun
    assert all(np.isfinite(array).all() for array in one._state.parameters)
    resumed = model(name, n_epochs=4, lr=0.05).fit(crowd(), checkpoint=place)
    assert bits(resumed) == bits(fit(name, crowd(), n_epochs=4, lr=0.05))


def test_ctrl_c_before_anything_was_learned_is_passed_on(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    one = fit("BPRMF", checkerboard())
    kept = bits(one)
    monkeypatch.setattr(training, "_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.fit(checkerboard())
    assert bits(one) == kept


# ------------------------------------------------------------------ checkpoints
@joint_model
def test_a_stopped_run_goes_on_to_the_same_bits(name, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1)
    train, valid = split()
    never = model(name, n_epochs=9, patience=9).fit(train, valid=valid)
    for after in (2, 6):  # stopped twice, with the items relabelled in between
        with pytest.raises(StopError):
            model(name, n_epochs=9, patience=9).fit(
                train, valid=valid, checkpoint=tmp_path / "run", progress=Teller(after, StopError())
            )
    teller = Teller()
    again = model(name, n_epochs=9, patience=9, n_threads=2).fit(
        train, valid=valid, checkpoint=tmp_path / "run", progress=teller
    )
    assert teller.told[0].epoch == 6  # what was written after epoch 5
    assert bits(again) == bits(never)
    assert again.losses_ == never.losses_
    assert again.valid_scores_ == never.valid_scores_
    assert again.n_epochs_ == never.n_epochs_


def test_a_finished_run_is_not_run_again_but_may_be_lengthened(tmp_path):
    place = tmp_path / "run"
    model("BPRMF", n_epochs=3).fit(checkerboard(), checkpoint=place)
    teller = Teller()
    one = model("BPRMF", n_epochs=3).fit(checkerboard(), checkpoint=place, progress=teller)
    assert teller.told == []
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=3))
    longer = model("BPRMF", n_epochs=5).fit(checkerboard(), checkpoint=place)
    assert bits(longer) == bits(fit("BPRMF", checkerboard(), n_epochs=5))
    with pytest.raises(ConfigError, match="in epoch 5, beyond the n_epochs of 4"):
        model("BPRMF", n_epochs=4).fit(checkerboard(), checkpoint=place)


def test_ctrl_c_writes_the_checkpoint(tmp_path):
    place = tmp_path / "run"
    model("BPRMF", n_epochs=9).fit(checkerboard(), checkpoint=place, progress=Teller(4, KeyboardInterrupt()))
    teller = Teller()
    one = model("BPRMF", n_epochs=9).fit(checkerboard(), checkpoint=place, progress=teller)
    assert teller.told[0].epoch == 5
    assert one.stopped_ == "n_epochs"
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=9))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
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


def test_a_checkpoint_must_be_ours(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("mine")
    teller = Teller()
    with pytest.raises(DataError, match="is not a saved model"):
        model("BPRMF").fit(checkerboard(), checkpoint=tmp_path / "notes", progress=teller)
    assert teller.told == []  # refused at the door, not after an epoch
    fitted("BPRMF").save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="holds a model, not a checkpoint"):
        model("BPRMF").fit(checkerboard(), checkpoint=tmp_path / "model")


KILLED = """
    import os, signal
    from shortlist.models.factorization import training
    from tests.models.cases import checkerboard, model

    training.CHECKPOINT_SECONDS = -1

    def progress(told):
        if told.epoch == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    model("DKBPRMF", n_epochs=8).fit(checkerboard(), checkpoint={place!r}, progress=progress)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that cannot be caught")
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    place, home = tmp_path / "run", Path(__file__).parents[3]
    code = textwrap.dedent(KILLED).format(place=str(place))
    killed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(home), str(home / "src")])},
        timeout=300,
    )
    assert killed.returncode == -signal.SIGKILL
    teller = Teller()
    one = model("DKBPRMF", n_epochs=8).fit(checkerboard(), checkpoint=place, progress=teller)
    assert teller.told[0].epoch == 4
    assert bits(one) == bits(fit("DKBPRMF", checkerboard(), n_epochs=8))
