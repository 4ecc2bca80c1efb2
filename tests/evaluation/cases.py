"""Lists and truth for tests: by hand, at random, and from hypothesis."""

import numpy as np
from hypothesis import strategies as st

from shortlist.data.interactions import Interactions

TRUTH = {"ann": ["a", "b", "c"], "bob": ["a"], "cat": ["d", "e"], "dan": ["a", "b"]}
LISTS = {
    "ann": ["x", "a", "b", "y"],  # hits at ranks 2 and 3
    "bob": ["a"],  # a perfect list
    "cat": [],  # an empty list; dan has no list
    "eve": ["a", "b"],  # not in the truth
}


def interactions(relevant):
    """{user_id: [item_id, …]} as interactions."""
    return Interactions.from_tuples([(user, item) for user, items in relevant.items() for item in items])


def random_case(seed, n_users=200, n_items=40, longest=12, empty=0.1):
    """Lists and truth of mixed lengths; about a tenth of the lists are empty."""
    rng = np.random.default_rng(seed)
    users = [f"u{k:04}" for k in range(n_users)]
    items = [f"i{k:03}" for k in range(n_items)]
    relevant, shown = {}, {}
    for user in users:
        n = int(rng.integers(1, longest + 1))
        relevant[user] = list(rng.choice(items, int(rng.integers(1, longest + 1)), replace=False))
        shown[user] = [] if rng.random() < empty else list(rng.choice(items, n, replace=False))
    return shown, relevant


users = st.integers(0, 12)
items = st.integers(0, 15)
truths = st.dictionaries(users, st.sets(items, min_size=1, max_size=8).map(sorted), min_size=1, max_size=10)
shown = st.dictionaries(users, st.lists(items, unique=True, max_size=10), max_size=10)
