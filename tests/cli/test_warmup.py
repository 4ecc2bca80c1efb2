"""`shortlist warmup` compiles what later commands need."""

import json

from shortlist.cli import main, warmup


def test_every_model_is_fitted_and_used(capsys):
    assert main(["warmup", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert list(found["by_model"]) == [type(model).__name__ for model in warmup.models()]
    assert found["seconds"] >= sum(found["by_model"].values()) - 1
    assert "warning" not in err


def test_nothing_is_compiled_afterwards(monkeypatch):
    from numba.core import event

    assert main(["warmup"]) == 0
    with event.install_recorder("numba:compile") as recorder:
        assert main(["warmup"]) == 0
    assert recorder.buffer == []
