"""Model files: what is activated stays what it was, servers share a folder, and 0.3 databases are emptied."""

import os
import time

import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.errors import ModelFileError
from shortlist.serve import model_files
from shortlist.serve.activations import find_activations
from shortlist.serve.deployment import Deployment, load_refit_data
from shortlist.serve.experiments import Arm, Experiments, LiveExperiment
from shortlist.serve.model_files import file_checksum, find_model, kept_path, model_names
from shortlist.serve.store import EventStore
from tests.serve.conftest import start


def save_popular(path, n):
    """A model that can be told from others by the length of its lists."""
    return sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=n)).save(path)


@pytest.fixture
def store(tmp_path):
    found = EventStore(f"sqlite:///{tmp_path / 'store.sqlite'}")
    found.create()
    yield found
    found.close()


def kept(folder):
    return {path.stem for path in folder.glob("*.shortlist")} - set(model_names(folder))


def test_an_activated_model_outlives_its_file(store, tmp_path):
    path = save_popular(tmp_path / "shop.shortlist", 3)
    first = Deployment(tmp_path, store)
    first.start(path)
    checksum = file_checksum(path)
    path.unlink()
    second = Deployment(tmp_path, store)
    second.start(path)
    assert second.served.model.cutoff_.N == 3
    assert second.available() == ["shop"]
    assert load_refit_data(store, tmp_path, "shop").model.cutoff_.N == 3
    kept_path(tmp_path, checksum).unlink()
    with pytest.raises(ModelFileError, match="is not in the folder of models"):
        Deployment(tmp_path, store).start(path)


def test_going_back_brings_back_the_file_of_that_time(folder, tokens):
    """Also if the name belongs to another file by now."""
    save_popular(folder / "shop.shortlist", 3)
    with start(folder, token_file=str(folder / "tokens")) as client:
        headers = {"authorization": f"Bearer {tokens['admin']}"}

        def activate(**body):
            answer = client.post("/v1/model", json={"name": "shop", **body}, headers=headers)
            assert answer.status_code == 200, answer.text
            return answer.json()["cutoff_description"]

        save_popular(folder / "shop.shortlist", 5)
        assert "N=5" in activate()
        assert "N=3" in activate(activation=1)


def test_a_replaced_file_changes_no_arm(store, tmp_path):
    save_popular(tmp_path / "shop.shortlist", 4)
    save_popular(tmp_path / "arm.shortlist", 2)
    first, second = Deployment(tmp_path, store), Deployment(tmp_path, store)
    first.start(tmp_path / "shop.shortlist")
    second.start(tmp_path / "shop.shortlist")
    arms = (Arm("now", 0.5), Arm("two", 0.5, "arm"))
    experiments = Experiments(store)
    started = experiments.start(LiveExperiment("spring", arms).with_files(first))
    first.follow(started.models)
    save_popular(tmp_path / "arm.shortlist", 9)
    for server in (first, second):
        server.follow(started.models)
        assert server.model_of("arm").model.cutoff_.N == 2


def test_a_folder_that_cannot_be_written_is_enough_to_serve(store, tmp_path, monkeypatch, capsys):
    path = save_popular(tmp_path / "shop.shortlist", 3)

    def fail(*_):
        raise sl.errors.DataError("cannot write: Read-only file system; choose another path.")

    with monkeypatch.context() as patched:
        patched.setattr("shortlist.serve.deployment.keep_model", fail)
        Deployment(tmp_path, store).start(path)
    assert "Read-only file system" in capsys.readouterr().err
    assert kept(tmp_path) == set()
    Deployment(tmp_path, store).start(path)
    save_popular(path, 4)
    with pytest.raises(ModelFileError, match="has changed"):
        find_model(tmp_path, "shop", find_activations(store, 1)[0].checksum)


def test_a_file_that_is_replaced_while_it_is_copied_is_refused(tmp_path):
    path = save_popular(tmp_path / "shop.shortlist", 3)
    with pytest.raises(ModelFileError, match="was replaced while it was read"):
        model_files.keep_model(tmp_path, path, "0" * 64)
    assert kept(tmp_path) == set()


def test_the_latest_activations_and_running_arms_are_kept(store, tmp_path, monkeypatch):
    monkeypatch.setattr(model_files, "UNUSED_SECONDS", -1.0)
    others = save_popular(tmp_path / "other.shortlist", 20)  # of another service with the same folder
    model_files.keep_model(tmp_path, others, file_checksum(others))
    save_popular(tmp_path / "arm.shortlist", 10)
    served = Deployment(tmp_path, store, keep_models=1)
    served.start(save_popular(tmp_path / "shop.shortlist", 1))
    arms = (Arm("now", 0.5), Arm("ten", 0.5, "arm"))
    experiments = Experiments(store)
    experiments.start(LiveExperiment("spring", arms).with_files(served))
    for number in range(2, 5):
        save_popular(tmp_path / "shop.shortlist", number)
        served.activate("shop", "by request")
    latest = {activation.checksum for activation in find_activations(store, 2)}
    arm = file_checksum(tmp_path / "arm.shortlist")
    assert kept(tmp_path) == {*latest, arm, file_checksum(others)}
    experiments.stop("spring")
    served.remove_unused()
    assert kept(tmp_path) == {*latest, file_checksum(others)}


def test_a_file_of_the_last_hour_is_not_deleted(tmp_path):
    path = save_popular(tmp_path / "shop.shortlist", 3)
    checksum = file_checksum(path)
    model_files.keep_model(tmp_path, path, checksum)
    model_files.remove_models(tmp_path, [checksum])
    assert kept(tmp_path) == {checksum}
    old = time.time() - 7_200
    os.utime(kept_path(tmp_path, checksum), (old, old))
    model_files.remove_models(tmp_path, [checksum])
    assert kept(tmp_path) == set()


def test_activate_on_the_command_line_keeps_the_file(tmp_path, capsys):
    path, database = save_popular(tmp_path / "shop.shortlist", 3), f"sqlite:///{tmp_path / 'store.sqlite'}"
    EventStore(database).create()
    assert main(["service", "activate", str(path), "--db", database]) == 0, capsys.readouterr().err
    assert kept(tmp_path) == {file_checksum(path)}
