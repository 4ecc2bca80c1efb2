"""Links between items, against plain loops over the baskets."""

from collections import defaultdict

import numpy as np
import pytest

from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.kernels.rows import starts
from shortlist.kernels.snapshot_features import (
    DAY,
    CandidateRules,
    LinkTable,
    NewPairs,
    PairKind,
    list_pairs,
    merge_links,
)
from shortlist.models.two_stage import snapshots as rolling_links
from shortlist.models.two_stage.snapshots import WINDOWS, EventReplay
from tests.kernels.cases import baskets

DECAY = 0.5


def whole(data, window=2, decay=DECAY):
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, 4, window, decay, data.has_repeats)
    return EventReplay(History.of(data), rules).whole


def plain_pairs(log, positions, window, decay=DECAY):
    """(item, other, weight) of every pair that these baskets complete, in order of time."""
    users, found = log.users, []

    def items(b):
        return users.item[users.baskets[b] : users.baskets[b + 1]].tolist()

    for b in log.order[positions[0] : positions[1]].tolist():
        first = users.user_baskets[log.owner[b], 0]
        for earlier in range(max(b - window, first), b) if window else [b]:
            weight = decay ** (b - earlier - 1) if window else 1.0
            found += [(i, j, weight) for i in items(earlier) for j in items(b) if i != j]
    return found


def listed(log, positions, kind, n_items):
    room = rolling_links._new_pairs(np.zeros(n_items, np.int64), 0)
    list_pairs(log, np.array(positions), kind, room)
    begin = starts(room.end)
    new = rolling_links._new_pairs(begin[:-1], begin[-1])
    list_pairs(log, np.array(positions), kind, new)
    assert (new.end <= begin[1:]).all()
    return new


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("window", [0, 1, 2, 5])
def test_pairs_are_those_of_the_window_and_no_others(window, reverse):
    data = baskets(window)
    log, positions = whole(data).timeline.log, (3, 15)
    new = listed(log, positions, PairKind(window, DECAY, reverse), data.n_items)
    found = [
        (i, int(j), float(weight))
        for i in range(data.n_items)
        for j, weight in zip(
            new.other[new.begin[i] : new.end[i]], new.weight[new.begin[i] : new.end[i]], strict=True
        )
    ]
    expected = [(j, i, w) if reverse else (i, j, w) for i, j, w in plain_pairs(log, positions, window)]
    assert len(expected) > 5
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_room_is_counted_for_every_row_with_every_other(reverse):
    data = baskets(1)
    log, room = whole(data).timeline.log, np.zeros(data.n_items, np.int64)
    none = (np.empty(0, kind) for kind in (np.int32, np.float32, np.int16))
    new = NewPairs(room.copy(), room, *none)
    list_pairs(log, np.array([0, log.order.size]), PairKind(1, DECAY, reverse), new)
    expected, users = np.zeros(data.n_items, np.int64), log.users
    for b in range(data.n_baskets):
        if b > log.first[b]:
            sides = [users.item[users.baskets[a] : users.baskets[a + 1]] for a in (b - 1, b)]
            np.add.at(expected, sides[reverse], sides[not reverse].size)
    assert room.tolist() == expected.tolist()


def test_sixty_items_of_a_large_basket_form_pairs():
    data = Interactions.from_tuples([(1, f"i{k}", 0) for k in range(70)])
    new = listed(whole(data).timeline.log, (0, 1), PairKind(0, DECAY, False), data.n_items)
    assert (new.end - new.begin).sum() == 60 * 59


def test_weightless_transitions_are_no_pairs():
    data = baskets(2)
    log = whole(data).timeline.log
    new = listed(log, (0, log.order.size), PairKind(5, 0.0, False), data.n_items)
    n = sum(weight > 0 for _, _, weight in plain_pairs(log, (0, log.order.size), 5, 0.0))
    assert (new.end - new.begin).sum() == n > 0


def merged(known, pairs, most):
    """Merge pairs of item 0 into a table of one item with links; return (other, weight, total)."""
    n = 12
    first = np.array([0] + [len(known)] * n, np.int64)
    others, weights = np.array([j for j, _ in known], np.int32), np.array([w for _, w in known], np.float32)
    table = LinkTable(first, others, weights, np.array([weights.sum()] + [0.0] * (n - 1)))
    begin, end = np.full(n, len(pairs)), np.full(n, len(pairs))
    begin[0] = 0
    new = NewPairs(
        begin,
        end,
        np.array([j for j, _ in pairs], np.int32),
        np.array([w for _, w in pairs], np.float32),
        np.zeros(len(pairs), np.int16),
    )
    size = len(known) + len(pairs)
    room = np.array([0] + [size] * n, np.int64)
    out = LinkTable(room, np.full(size, -1, np.int32), np.zeros(size, np.float32), np.zeros(n))
    size = merge_links(table, new, most, out)
    assert out.starts.tolist() == [0] + [size] * n
    entries = list(zip(out.other[:size].tolist(), out.weight[:size].tolist(), strict=True))
    return entries, out.total[0]


def test_the_heaviest_links_remain_and_of_equal_ones_the_latest():
    known = [(3, 2.0), (4, 1.0), (5, 1.0), (6, 4.0)]
    assert merged(known, [(4, 1.0), (7, 1.0)], 9) == (
        [(3, 2.0), (4, 2.0), (5, 1.0), (6, 4.0), (7, 1.0)],
        10.0,
    )
    assert merged(known, [(4, 1.0), (7, 1.0)], 4) == ([(3, 2.0), (4, 2.0), (6, 4.0), (7, 1.0)], 10.0)
    assert merged(known, [(7, 1.0), (8, 1.0)], 3) == ([(3, 2.0), (6, 4.0), (8, 1.0)], 10.0)
    assert merged(known, [], 4) == (known, 8.0)


@pytest.mark.parametrize("seed", range(20))
def test_selection_against_sorting(seed):
    rng = np.random.default_rng(seed)
    pairs = [(int(j), float(w)) for j, w in zip(rng.permutation(11) + 1, rng.integers(1, 4, 11), strict=True)]
    most = int(rng.integers(1, 11))
    entries, _ = merged([], pairs, most)
    order = sorted(range(11), key=lambda k: (-pairs[k][1], -k))[:most]
    assert entries == [pairs[k] for k in sorted(order)]


@pytest.mark.parametrize("most", [100, 2])
def test_tables_after_each_solution(monkeypatch, most):
    for name, value in {"LINKS_FIRST_BASKETS": 4, "LINKS_GROWTH": 1.4, "MAX_LINKS": most}.items():
        monkeypatch.setattr(rolling_links, name, value)
    data = baskets(5)
    rolling = whole(data).links
    assert rolling.sizes.size > 4
    kinds = {"together": (0, False), "after": (2, False), "before": (2, True)}
    for name, (window, reverse) in kinds.items():
        weights, totals, first = defaultdict(dict), defaultdict(float), 0
        for number, end in enumerate(rolling.sizes.tolist(), 1):
            for i, j, weight in plain_pairs(rolling.log, (first, end), window):
                i, j = (j, i) if reverse else (i, j)
                weights[i][j] = weights[i].get(j, 0.0) + weight
                totals[i] += weight
            for i, links in weights.items():
                order = list(links)
                kept = sorted(order, key=lambda j: (-links[j], -order.index(j)))[:most]
                weights[i] = {j: links[j] for j in order if j in kept}
            table = getattr(rolling.solution(number), name)
            for i in range(data.n_items):
                part = slice(table.starts[i], table.starts[i + 1])
                found = dict(zip(table.other[part].tolist(), table.weight[part].tolist(), strict=True))
                assert found == weights[i], (name, number, i)
                assert table.total[i] == totals[i]
            first = end


def test_a_solution_does_not_depend_on_those_asked_for_before(monkeypatch):
    monkeypatch.setattr(rolling_links, "MAX_LINKS", 2)
    data = baskets(6)
    asked, fresh = whole(data).links, whole(data).links
    last = asked.sizes.size
    for number in (2, last, 1, last - 1):
        asked.solution(number)
    assert len(asked._cache) <= asked.max_cached
    assert last in asked._cache
    for a, b in zip(asked.solution(last - 2), fresh.solution(last - 2), strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("most", [100, 3])
@pytest.mark.parametrize("max_pairs", [1, 60, 10**6])
def test_steps_counted_at_once_give_the_bits_of_single_steps(monkeypatch, most, max_pairs):
    for name, value in {"LINKS_FIRST_BASKETS": 4, "LINKS_GROWTH": 1.2, "MAX_LINKS": most}.items():
        monkeypatch.setattr(rolling_links, name, value)
    single, many = (whole(baskets(7), decay=0.7).links for _ in range(2))
    for number in range(1, single.sizes.size):
        single.solution(number)
    monkeypatch.setattr(rolling_links, "MAX_PAIRS", max_pairs)
    last = single.sizes.size
    assert last > 5
    for a, b in zip(single.solution(last), many.solution(last), strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
