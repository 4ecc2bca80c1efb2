"""What every test stands on: a fresh compile cache, and property tests that do not race the compiler."""

import os
import tempfile

from hypothesis import settings

# Numba's cache does not notice an edited callee in another file, so no run may reuse an older run's code.
# Set before anything imports Numba; parallel workers inherit it.
if "NUMBA_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="shortlist-numba-", ignore_cleanup_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = _cache.name

settings.register_profile("shortlist", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("shortlist")
