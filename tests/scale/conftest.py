"""One cluster for all tests of this folder."""

import pytest

from tests.scale.cluster import three_nodes


@pytest.fixture(scope="session")
def cluster():
    """Three nodes with one CPU each."""
    with three_nodes() as found:
        yield found
