"""Model files: what is activated stays what it was and servers share a folder."""

import os
import time

import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.errors import ModelFileError
from shortlist.serve import deployment as models
from shortlist.serve.deployment import (
    CutoffFiles,
    Deployment,
    file_checksum,
    find_model,
    kept_path,
    list_model_files,
    load_refit_data,
)
from shortlist.serve.experiments import Arm, Experiments, LiveExperiment
from shortlist.serve.projections import find_activations
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import create_token
from tests.serve.conftest import start
from tests.serve.test_app import wait_for


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
    return {path.stem for path in folder.glob("*.shortlist")} - set(list_model_files(folder))


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


def test_what_is_replaced_changes_no_arm(store, tmp_path):
    """Neither the file of a model, nor an activation, nor the file of a cutoff."""
    save_popular(tmp_path / "shop.shortlist", 4)
    save_popular(tmp_path / "arm.shortlist", 2)
    sl.cutoff.FixedN(N=6).save(tmp_path / "six.shortlist")
    first, second = Deployment(tmp_path, store), Deployment(tmp_path, store)
    first.start(tmp_path / "shop.shortlist")
    second.start(tmp_path / "shop.shortlist")
    arms = (Arm("now", 0.5), Arm("two", 0.3, "arm"), Arm("six", 0.2, None, {"cutoff": "six"}))
    experiments = Experiments(store)
    started = experiments.start(LiveExperiment("spring", arms).freeze(first))
    first.follow(started.versions)
    for name in ("arm", "shop"):
        save_popular(tmp_path / f"{name}.shortlist", 9)
    sl.cutoff.FixedN(N=9).save(tmp_path / "six.shortlist")
    first.activate("shop", "another one")
    for server in (first, second):
        server.follow(started.versions)
        assert server.served.model.cutoff_.N == 9
        assert [server.model_of(arm.version).model.cutoff_.N for arm in started.arms] == [4, 2, 4]
    assert CutoffFiles(tmp_path).read(started.arms[2].request_options["cutoff"]).N == 6
    description = started.arms[0].describe()
    assert (
        description == f"the model in service (shop, file {started.arms[0].version.checksum[:8]}), its cutoff"
    )
    first.follow()  # the experiment has ended
    assert first.model_of(started.arms[0].version) is None


def test_a_server_without_the_model_of_an_arm_is_not_ready(tmp_path):
    save_popular(tmp_path / "shop.shortlist", 4)
    arm = save_popular(tmp_path / "arm.shortlist", 2)
    token = create_token(tmp_path / "tokens", "all", ["read", "admin"])
    with start(tmp_path, token_file=str(tmp_path / "tokens")) as client:
        client.headers["authorization"] = f"Bearer {token}"
        arms = [{"name": "now", "share": 0.5}, {"name": "two", "share": 0.5, "model": "arm"}]
        body = {"name": "spring", "arms": arms}
        assert client.post("/v1/experiment", json=body).status_code == 200
        ask = {"users": ["u1", "u2", "u3", "u4"]}
        wait_for(lambda: "arm" in client.post("/v1/recommend", json=ask).json()["lists"][0])
        assert client.get("/ready").status_code == 200
    kept_path(tmp_path, file_checksum(arm)).unlink()
    arm.unlink()
    with start(tmp_path, token_file=str(tmp_path / "tokens")) as client:
        client.headers["authorization"] = f"Bearer {token}"
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]) == (503, "not_ready")
        lists = client.post("/v1/recommend", json=ask).json()["lists"]
        assert [row for row in lists if "arm" in row] == []  # nobody takes part here
        assert client.post("/v1/experiment/stop", json={"name": "spring"}).status_code == 200
        wait_for(lambda: client.get("/ready").status_code == 200)


def test_a_folder_that_cannot_be_written_is_enough_to_serve(store, tmp_path, monkeypatch, capsys):
    path = save_popular(tmp_path / "shop.shortlist", 3)

    def fail(*_):
        raise sl.errors.DataError("cannot write: Read-only file system; choose another path.")

    with monkeypatch.context() as patched:
        patched.setattr("shortlist.serve.deployment.keep_file", fail)
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
        models.keep_file(tmp_path, path, "0" * 64)
    assert kept(tmp_path) == set()


def test_the_latest_activations_and_running_arms_are_kept(store, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "UNUSED_SECONDS", -1.0)
    others = save_popular(tmp_path / "other.shortlist", 20)  # of another service with the same folder
    models.keep_file(tmp_path, others, file_checksum(others))
    save_popular(tmp_path / "arm.shortlist", 10)
    served = Deployment(tmp_path, store, keep_models=1)
    served.start(save_popular(tmp_path / "shop.shortlist", 1))
    first = served.served.activation.checksum
    arms = (Arm("now", 0.5), Arm("ten", 0.5, "arm"))
    experiments = Experiments(store)
    experiments.start(LiveExperiment("spring", arms).freeze(served))
    for number in range(2, 5):
        save_popular(tmp_path / "shop.shortlist", number)
        served.activate("shop", "by request")
    latest = {activation.checksum for activation in find_activations(store, 2)}
    arm = file_checksum(tmp_path / "arm.shortlist")
    assert kept(tmp_path) == {first, *latest, arm, file_checksum(others)}
    experiments.stop("spring")
    served.remove_unused()
    assert kept(tmp_path) == {*latest, file_checksum(others)}


def test_a_file_of_the_last_hour_is_not_deleted(tmp_path):
    path = save_popular(tmp_path / "shop.shortlist", 3)
    checksum = file_checksum(path)
    models.keep_file(tmp_path, path, checksum)
    models.remove_models(tmp_path, [checksum])
    assert kept(tmp_path) == {checksum}
    old = time.time() - 7_200
    os.utime(kept_path(tmp_path, checksum), (old, old))
    models.remove_models(tmp_path, [checksum])
    assert kept(tmp_path) == set()


def test_activate_on_the_command_line_keeps_the_file(tmp_path, capsys):
    path, database = save_popular(tmp_path / "shop.shortlist", 3), f"sqlite:///{tmp_path / 'store.sqlite'}"
    EventStore(database).create()
    assert main(["service", "activate", str(path), "--db", database]) == 0, capsys.readouterr().err
    assert kept(tmp_path) == {file_checksum(path)}
