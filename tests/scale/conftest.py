"""One cluster for all tests of this folder."""

import pytest

from tests.scale.cluster import two_nodes


@pytest.fixture(scope="session")
def cluster():
    """Two nodes with three and two CPUs."""
    with two_nodes() as found:
        yield found
