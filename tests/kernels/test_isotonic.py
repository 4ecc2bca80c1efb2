"""violators_pool against the definition: no rising sequence is nearer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from shortlist.kernels.isotonic import violators_pool


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=20))
def test_pools_are_the_isotonic_regression(groups):
    total, weight = (np.array(column, np.float64) for column in zip(*groups, strict=True))
    expected = isotonic_regression(total / weight, weights=weight).x
    first = np.empty(total.size, np.int64)
    blocks = violators_pool(total, weight, first)
    ends = np.append(first[1:blocks], len(groups))
    found = np.repeat(total[:blocks] / weight[:blocks], ends - first[:blocks])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert (np.diff(total[:blocks] / weight[:blocks]) > 0).all()
