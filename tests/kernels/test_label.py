"""rows_label against plain sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.label import rows_label

rows = st.lists(st.integers(-1, 6), max_size=6)


@given(
    lists=st.lists(rows, min_size=1, max_size=4),
    sets=st.lists(st.sets(st.integers(0, 6)), max_size=3),
    data=st.data(),
)
def test_members_are_marked(lists, sets, data):
    user = np.array([data.draw(st.integers(-1, len(sets) - 1)) for _ in lists], np.int32)
    indptr = np.cumsum([0, *map(len, lists)])
    set_indptr = np.cumsum([0, *map(len, sets)])
    inside = np.zeros(indptr[-1], np.bool_)
    flat = np.array([i for row in lists for i in row], np.int32)
    members = np.array([i for one in sets for i in sorted(one)], np.int32)
    rows_label(indptr, flat, user, set_indptr, members, inside)
    expected = [u >= 0 and i in sets[u] for row, u in zip(lists, user, strict=True) for i in row]
    assert inside.tolist() == expected
