"""The number of threads: settings, limits, cores, and where work runs."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import shortlist as sl
from shortlist.core import threads
from shortlist.core.threads import limit_threads, map_slices, open_pool, set_threads, thread_count
from shortlist.errors import ConfigError
from tests.threads import on_threads, use_threads


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    monkeypatch.setattr(threads, "_setting", None)
    monkeypatch.delenv("SHORTLIST_THREADS", raising=False)


def test_a_call_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", "3")
    assert thread_count() == 3
    set_threads(5)
    assert thread_count() == 5
    set_threads(0)
    assert thread_count() == threads.core_count()


@pytest.mark.parametrize("n", [-1, 1.5, "2", None, True])
def test_a_setting_is_a_whole_number(n):
    with pytest.raises(ConfigError, match="n must be a whole number of at least 0"):
        set_threads(n)


@pytest.mark.parametrize("text", ["-1", "two", "1.5", "²"])
def test_a_wrong_variable_is_named(text, monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", text)
    with pytest.raises(ConfigError, match="SHORTLIST_THREADS must be a whole number of at least 0"):
        thread_count()


def test_an_empty_variable_means_every_core(monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", " ")
    assert thread_count() == threads.core_count()


def test_limits_only_lower_the_setting_and_end():
    set_threads(4)
    with limit_threads(2):
        assert thread_count() == 2
        with limit_threads(1):
            assert thread_count() == 1
        assert thread_count() == 2
    with limit_threads(9):
        assert thread_count() == 4
    assert thread_count() == 4


def test_other_threads_have_no_limit():
    set_threads(4)
    with limit_threads(1), ThreadPoolExecutor(1) as pool:
        assert pool.submit(thread_count).result() == 4


def test_a_limit_of_one_starts_no_threads():
    set_threads(4)
    with limit_threads(1):
        names = map_slices(lambda _: threading.current_thread(), 10, 1)
    assert set(names) == {threading.current_thread()}


def test_threads_of_a_pool_compute_alone():
    set_threads(4)
    with open_pool(2) as pool:
        assert pool.submit(thread_count).result() == 1
    barrier = threading.Barrier(4, timeout=30)  # passed by four threads together, or not at all
    assert map_slices(lambda rows: (barrier.wait() >= 0, thread_count(), rows.start), 8, 2) == [
        (True, 1, start) for start in (0, 2, 4, 6)
    ]


@pytest.mark.parametrize(
    ("own", "above", "cores"),
    [("max 100000", "max 100000", 8), ("150000 100000", "max 100000", 2), ("max 100000", "50000 100000", 1)],
)
def test_limits_of_containers_are_respected(own, above, cores, tmp_path, monkeypatch):
    (tmp_path / "cgroup").write_text("0::/pod/shop\n")
    (tmp_path / "fs/pod/shop").mkdir(parents=True)
    (tmp_path / "fs/pod/shop/cpu.max").write_text(own + "\n")
    (tmp_path / "fs/cpu.max").write_text(above + "\n")
    monkeypatch.setattr(threads, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(threads, "CGROUPS", tmp_path / "fs")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    threads.cpu_limit.cache_clear()
    try:
        assert threads.core_count() == cores
    finally:
        threads.cpu_limit.cache_clear()


@pytest.mark.parametrize("text", [None, "", "12:cpu:/old\n", "0::/gone\n"])
def test_without_a_readable_limit_affinity_decides(text, tmp_path, monkeypatch):
    if text is not None:
        (tmp_path / "cgroup").write_text(text)
    monkeypatch.setattr(threads, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(threads, "CGROUPS", tmp_path / "fs")
    threads.cpu_limit.cache_clear()
    try:
        assert threads.cpu_limit() is None
    finally:
        threads.cpu_limit.cache_clear()


def test_affinity_is_respected():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system has no affinity")
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from shortlist.core.threads import thread_count; print(thread_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_the_same_bits_on_one_thread_and_on_two():
    data = sl.load_dataset("sample")
    for model in (
        sl.DKBPRMF(n_epochs=2, n_factors=8, seed=1),
        sl.ALS(n_factors=32, n_epochs=1),
        sl.TIFUKNN(),
    ):
        one, two = on_threads(1, 2, run=lambda model=model: model.clone().fit(data))
        assert one.fingerprint_ == two.fingerprint_
        lists = on_threads(1, 2, run=lambda one=one: one.recommend(N=5).to_frame())
        assert lists[0].equals(lists[1])


def test_the_setting_of_a_test_ends():
    with use_threads(3):
        assert thread_count() == 3
    assert threads._setting is None
