"""What every test stands on: a fresh compile cache, property tests that do not race the compiler, groups."""

import os
import tempfile

import pytest
from hypothesis import settings

# Numba's cache does not notice an edited callee in another file, so no run may reuse an older run's code.
# Set before anything imports Numba; parallel workers inherit it.
if "NUMBA_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="shortlist-numba-", ignore_cleanup_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = _cache.name

settings.register_profile("shortlist", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("shortlist")

# Files whose tests share something slow to start: a cluster, a server and a browser, a fitted model.
# Each group runs in one process. Groups come before single tests, which then keep all processes busy.
GROUPS = (
    "tests/spark/",
    "tests/serve/test_page.py",
    "tests/cli/test_cutoff_flags.py",
    "tests/cli/test_fuzz.py",
    "tests/test_warmup.py",
    "tests/reproduction/",
    "tests/models/test_files_fuzz.py",
    "tests/serve/test_schema.py",
    "tests/serve/test_replicas.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadgroup`, form the groups by file: pytest 9.2 ignores the marker `xdist_group`."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class FileGroups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((group for group in GROUPS if nodeid.startswith(group)), nodeid)

    return FileGroups(config, log)
