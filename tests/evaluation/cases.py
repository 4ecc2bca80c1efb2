"""Lists and truth to judge: by hand, at random, and whatever hypothesis invents."""

import numpy as np
from hypothesis import strategies as st

from shortlist.data.interactions import Interactions

TRUTH = {"ann": ["a", "b", "c"], "bob": ["a"], "cat": ["d", "e"], "dan": ["a", "b"]}
LISTS = {
    "ann": ["x", "a", "b", "y"],  # hits at 2 and 3
    "bob": ["a"],  # all there is, at once
    "cat": [],  # abstained; dan has no list at all
    "eve": ["a", "b"],  # nobody knows what she took
}


def interactions(taken):
    """{user_id: [item_id, …]} as interactions."""
    return Interactions.from_tuples([(user, item) for user, items in taken.items() for item in items])


def random_case(seed, n_users=200, n_items=40, longest=12, empty=0.1):
    """Lists and truth of mixed lengths; about a tenth of the lists are empty."""
    rng = np.random.default_rng(seed)
    users = [f"u{k:04}" for k in range(n_users)]
    items = [f"i{k:03}" for k in range(n_items)]
    taken, shown = {}, {}
    for user in users:
        n = int(rng.integers(1, longest + 1))
        taken[user] = list(rng.choice(items, int(rng.integers(1, longest + 1)), replace=False))
        shown[user] = [] if rng.random() < empty else list(rng.choice(items, n, replace=False))
    return shown, taken


users = st.integers(0, 12)
items = st.integers(0, 15)
truths = st.dictionaries(users, st.sets(items, min_size=1, max_size=8).map(sorted), min_size=1, max_size=10)
shown = st.dictionaries(users, st.lists(items, unique=True, max_size=10), max_size=10)
