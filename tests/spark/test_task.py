"""What workers have in common with the driver."""

import pytest

from shortlist.errors import ConfigError
from shortlist.spark.task import check_code, code_stamp, worker_environment


def test_a_worker_with_other_versions_is_refused():
    ours = code_stamp()
    check_code(ours, dict(ours), "node-7")
    with pytest.raises(ConfigError, match=r"must run the same code, but node-7 has numba 0\.1 instead of"):
        check_code(ours, ours | {"numba": "0.1"}, "node-7")


def test_workers_use_one_thread_and_the_cache_of_the_driver(monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/cache")
    found = worker_environment()
    assert found["NUMBA_CACHE_DIR"] == "/cache"
    assert (found["OMP_NUM_THREADS"], found["POLARS_MAX_THREADS"]) == ("1", "1")
