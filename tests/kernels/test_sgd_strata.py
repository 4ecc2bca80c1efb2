"""Strata: each row is visited once per epoch, and blocks of a round share no user or item."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.strata import cell_state, permute_rows
from shortlist.models.factorization.schedule import RELABEL_PERIOD, Partition, Schedule
from tests import naive

ROWS = st.lists(
    st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=6, unique=True), max_size=3),
    min_size=1,
    max_size=9,
)


def schedule_of(users, n_items, n_blocks, seed=0, n_threads=1, each=1, examples=None):
    """A schedule over users → baskets → items."""
    groups = [basket for baskets in users for basket in baskets]
    indptr = np.concatenate([[0], np.cumsum([len(g) for g in groups])]).astype(np.int64)
    item = np.array([i for g in groups for i in g], np.int32)
    group_starts = np.concatenate([[0], np.cumsum([len(baskets) for baskets in users])]).astype(np.int64)
    pool = ThreadPoolExecutor(n_threads)
    return Schedule(
        indptr, item, group_starts, n_items, Partition(n_blocks, each), seed, pool, n_threads, examples
    )


def labeled_rows(schedule):
    """The rows of each group, liked or drawn, in the order of the strata and by their label."""
    indptr, item = schedule._rows()
    codes = [int(schedule.label[i]) if i >= 0 else ~int(schedule.label[~i]) for i in item]
    return [codes[indptr[g] : indptr[g + 1]] for g in range(indptr.size - 1)]


def cells(schedule):
    """{(block, range): [(group, item by its index), …]} read back from the strata."""
    strata, n = schedule.strata, schedule.n_ranges
    own = np.argsort(schedule.label)
    found = {}
    for cell in range(schedule.n_blocks * n):
        b, part = divmod(cell, n)

        def item_at(spot, first=part * strata.range_size):
            return int(own[first + spot])

        found[b, part] = [
            (
                int(strata.groups[v]),
                item_at(spot) if spot >= 0 else ~item_at(~spot),
            )
            for v in range(strata.cells[cell], strata.cells[cell + 1])
            for spot in strata.liked[strata.starts[v] : strata.starts[v + 1]]
        ]
    return found


@given(ROWS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 3), st.integers(1, 3))
def test_every_row_is_visited_once_and_blocks_share_nothing(users, n_blocks, each, seed, n_threads):
    schedule = schedule_of(users, 11, n_blocks, seed, n_threads, each)
    assert schedule.prepare(0)
    owner = [user for user, baskets in enumerate(users) for _ in baskets]
    wanted = sorted(
        (group, item)
        for group, basket in enumerate(basket for baskets in users for basket in baskets)
        for item in basket
    )
    found = cells(schedule)
    assert sorted(row for rows in found.values() for row in rows) == wanted
    for round_index in range(n_blocks):
        rows_per_block = [
            [row for k in range(each) for row in found[b, (b + round_index) % n_blocks * each + k]]
            for b in range(n_blocks)
        ]
        for members in (
            [{owner[g] for g, _ in rows} for rows in rows_per_block],
            [{i for _, i in rows} for rows in rows_per_block],
        ):
            assert sum(map(len, members)) == len(set().union(*members))
    for (b, _), rows in found.items():
        assert all(schedule.user_starts[b] <= owner[g] < schedule.user_starts[b + 1] for g, _ in rows)


def test_items_are_relabeled_periodically_from_the_seed():
    one, other, third = (schedule_of([[list(range(11))]] * 3, 11, 3, seed) for seed in (1, 1, 2))
    assert one.prepare(0)
    label = one.label.copy()
    assert sorted(label) == list(range(11))
    assert not one.prepare(RELABEL_PERIOD - 1)
    assert (one.label == label).all()
    assert one.prepare(RELABEL_PERIOD)
    assert (one.label != label).any()
    other.prepare(RELABEL_PERIOD)  # without the epochs before
    assert (one.label == other.label).all()
    third.prepare(0)
    assert (third.label != label).any()


def test_user_blocks_have_similar_numbers_of_rows():
    rng = np.random.default_rng(0)
    users = [[list(range(rng.integers(1, 11)))] for _ in range(400)]
    schedule = schedule_of(users, 11, 4)
    rows = np.add.reduceat([len(baskets[0]) for baskets in users], schedule.user_starts[:-1])
    assert rows.max() - rows.min() <= 20


@given(st.integers(0, 2**64 - 1), st.integers(0, 5000))
def test_each_cell_has_its_own_stream(key, number):
    assert int(cell_state(np.uint64(key), number)[0]) == naive.cell_state(key, number)
    assert cell_state(np.uint64(key), number)[0] != cell_state(np.uint64(key), number + 1)[0]


@given(st.permutations(range(7)), st.integers(1, 3))
def test_rows_are_permuted_in_place(target, width):
    table = np.arange(7 * width, dtype=np.float32).reshape(7, width)
    wanted = np.empty_like(table)
    wanted[list(target)] = table
    permute_rows(table, np.array(target, np.int32), np.empty(7, np.bool_))
    assert (table == wanted).all()
