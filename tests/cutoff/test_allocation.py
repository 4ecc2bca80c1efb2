"""Allocations against HiGHS, their bounds, prices and reasons, and every error."""

from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

import shortlist as sl
from shortlist.cutoff import allocation_solver
from shortlist.data.ids import IdMap
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError, UnknownIdError
from tests.threads import on_threads

TABLE = pl.DataFrame(
    {
        "user": ["ann", "ann", "ann", "bob", "bob", "cid"],
        "item": ["tea", "milk", "soap", "tea", "milk", None],
        "probability": [0.5, 0.4, 0.1, 0.3, 0.2, None],
    }
)
ITEMS = sl.Items.from_frame(
    pl.DataFrame(
        {
            "item_id": ["tea", "milk", "soap"],
            "kind": ["drink", "drink", None],
            "margin": [1.0, 2.0, 9.0],
            "stock": [1, 0, None],
            "tags": [["a"], ["b"], ["c"]],
        }
    ),
    categories=["kind"],
)


def random_lists(seed, n_users=250, n_items=30, longest=15):
    """Candidates with popular items, and users who differ in how much they buy."""
    rng = np.random.default_rng(seed)
    popularity = rng.dirichlet(np.full(n_items, 0.5)) + 1e-3
    lengths = rng.integers(0, longest + 1, n_users)
    drawn = [rng.choice(n_items, n, replace=False, p=popularity / popularity.sum()) for n in lengths]
    rates = np.repeat(0.3 + rng.beta(1, 3, n_users), lengths)
    p = np.clip(rng.beta(1, 4, rates.size) * rates, 0, 1)
    return RankedLists(
        users=IdMap.of(list(range(n_users))),
        item_ids=IdMap.of(list(range(n_items))),
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        items=np.concatenate(drawn).astype(np.int32),
        scores=p.astype(np.float32),
        probabilities=p,
    )


def random_items(seed, n_items=30):
    """Items in two fields of groups, with margins and stock."""
    rng = np.random.default_rng(seed + 1000)
    table = {
        "item_id": np.arange(n_items),
        "kind": [f"k{k}" for k in rng.integers(0, 5, n_items)],
        "brand": [f"b{k}" for k in rng.integers(0, 7, n_items)],
        "margin": rng.uniform(0.5, 3, n_items),
        "stock": rng.integers(0, 30, n_items),
    }
    return sl.Items.from_frame(pl.DataFrame(table), categories=["kind", "brand"])


def solve_exactly(problem):
    """The optimum by HiGHS, and an upper bound of it."""
    lists, n = problem.lists, problem.lists.items.size
    user = np.repeat(np.arange(problem.n_users), np.diff(lists.indptr))
    n_all, entries, limits = n + problem.n_users, [], []

    def add(columns, limit):
        entries.extend((len(limits), int(c), 1.0) for c in columns)
        limits.append(limit)

    add(range(n), problem.budget)
    add(range(n, n_all), problem.contacts)
    for u in range(problem.n_users):
        rows = np.flatnonzero(user == u)
        add(rows, problem.limits.max_items)
        for codes in problem.limits.groups[lists.items[rows]].T:
            for group in np.unique(codes[codes >= 0]):
                add(rows[codes == group], problem.limits.group_limits[group])
    for item, units in enumerate([] if problem.stock is None else problem.stock):
        if units >= 0:
            add(np.flatnonzero(lists.items == item), units)
    for row in range(n):
        entries.append((len(limits), n + int(user[row]), -1.0))
        add([row], 0)
    at, columns, numbers = zip(*entries, strict=True)
    matrix = coo_array((numbers, (at, columns)), shape=(len(limits), n_all)).tocsr()
    values = lists.probabilities * lists.gains[lists.items] - lists.cost
    found = milp(
        -np.concatenate([values, np.full(problem.n_users, -problem.contact_cost)]),
        constraints=LinearConstraint(matrix, -np.inf, np.array(limits, float)),
        bounds=Bounds(0, 1),
        integrality=np.ones(n_all),
        options={"time_limit": 20, "mip_rel_gap": 1e-4},
    )
    return -found.fun, -found.mip_dual_bound


def check_feasible(result):
    """Every limit is kept, and the value is that of the lists."""
    problem, lists = result.problem, result.lists
    assert lists.items.size <= problem.budget
    assert result.n_users <= problem.contacts
    assert lists.lengths.max(initial=0) <= problem.limits.max_items
    if problem.stock is not None:
        sold = np.bincount(lists.items, minlength=problem.stock.size)
        assert ((problem.stock < 0) | (sold <= problem.stock)).all()
    user = np.repeat(np.arange(len(lists)), lists.lengths)
    for codes in problem.limits.groups[lists.items].T:
        pairs, counts = np.unique(np.stack([user, codes])[:, codes >= 0], axis=1, return_counts=True)
        assert (counts <= problem.limits.group_limits[pairs[1]]).all()
    values = lists.probabilities * problem.lists.gains[lists.items] - problem.lists.cost
    assert result.expected_value == pytest.approx(values.sum() - problem.contact_cost * result.n_users)
    assert result.expected_hits == pytest.approx(lists.probabilities.sum())


LIMITS = {
    "budget": (None, 200),
    "contacts": (None, 80),
    "max_items": (None, 3),
    "item_limits": (None, "stock"),
    "max_per_group": (None, {"kind": 2}, {"kind": 2, "brand": 2}),
    "contact_cost": (0.0, 0.15),
}


@pytest.mark.parametrize("number", range(96))
def test_every_combination_of_limits_is_near_its_bound(number):
    combination = dict(zip(LIMITS, list(product(*LIMITS.values()))[number], strict=True))
    gain = ("margin", 1.0)[number % 2]
    result = sl.allocate(
        random_lists(number), gain=gain, cost=0.03, items=random_items(number), **combination
    )
    check_feasible(result)
    assert result.gap <= 0.005


SCARCE = [
    dict(zip(LIMITS, limits, strict=True))
    for limits in product(*LIMITS.values())
    if limits[3] is not None or len(limits[4] or ()) > 1
]


@pytest.mark.parametrize("number", range(len(SCARCE)))
def test_scarce_stock_and_several_groups_are_within_a_thousandth_of_the_bound(number, monkeypatch):
    lists, items = random_lists(number), random_items(number)
    small = sl.allocate(lists, gain="margin", cost=0.03, items=items, **SCARCE[number])
    check_feasible(small)
    assert small.gap <= 1e-3
    monkeypatch.setattr(allocation_solver, "SMALL", 0)  # prices alone
    given = {
        name: limit * 8 if name in ("budget", "contacts") and limit else limit
        for name, limit in SCARCE[number].items()
    }
    if given["item_limits"]:
        given["item_limits"] = {item: 8 * (item % 25) for item in range(30)}
    lists = random_lists(number, n_users=2000)
    large = sl.allocate(lists, gain="margin", cost=0.03, items=items, **given)
    check_feasible(large)
    assert large.gap <= 1e-3


@pytest.mark.parametrize("number", range(0, len(SCARCE), 6))
def test_prices_alone_are_near_the_optimum_of_an_integer_program(number, monkeypatch):
    monkeypatch.setattr(allocation_solver, "SMALL", 0)
    lists, items = random_lists(number, n_users=400), random_items(number)
    result = sl.allocate(lists, gain="margin", cost=0.03, items=items, **SCARCE[number])
    check_feasible(result)
    optimum, bound = solve_exactly(result.problem)
    assert result.expected_value >= 0.999 * optimum
    assert result.expected_value <= bound * (1 + 1e-6)
    assert result.bound >= optimum * (1 - 1e-6)


@pytest.mark.parametrize("number", range(0, 96, 5))
def test_the_bound_is_valid_and_the_value_near_the_optimum(number):
    combination = dict(zip(LIMITS, list(product(*LIMITS.values()))[number], strict=True))
    lists, items = random_lists(number, n_users=100, longest=10), random_items(number)
    result = sl.allocate(lists, gain="margin", cost=0.03, items=items, **combination)
    optimum, bound = solve_exactly(result.problem)
    assert result.bound >= optimum * (1 - 1e-6)
    assert result.expected_value >= 0.99 * optimum
    assert result.expected_value <= bound * (1 + 1e-6)


@pytest.mark.parametrize("n_users", [3, 8, 20, 60])
def test_small_instances_with_scarce_stock_are_solved_exactly(n_users):
    for number, limits in enumerate(product(*LIMITS.values())):
        if number % 7 != n_users % 7:
            continue
        given = dict(zip(LIMITS, limits, strict=True))
        given |= {
            name: max(1, given[name] * n_users // 250) for name in ("budget", "contacts") if given[name]
        }
        stock = {item: item % 4 for item in range(30)} if given["item_limits"] else None
        lists, items = random_lists(number, n_users=n_users), random_items(number)
        result = sl.allocate(lists, gain="margin", cost=0.03, items=items, **given | {"item_limits": stock})
        check_feasible(result)
        assert result.gap <= 2e-4
        optimum, _ = solve_exactly(result.problem)
        assert result.expected_value == pytest.approx(optimum, rel=3e-4)


def test_what_a_limit_costs_is_what_would_be_earned_without_it():
    lists, items = random_lists(3), random_items(3)
    given = {
        "budget": 200,
        "contacts": 80,
        "max_items": 3,
        "item_limits": "stock",
        "max_per_group": {"kind": 1},
    }
    result = sl.allocate(lists, gain="margin", items=items, **given)
    table = {row["limit"]: row for row in result.limit_costs.rows(named=True)}
    assert list(table) == list(given)
    for name in given:
        rest = {other: limit for other, limit in given.items() if other != name}
        other = sl.allocate(lists, gain="margin", items=items, **rest)
        assert table[name]["value"] == pytest.approx(max(other.expected_value, result.expected_value))
        assert table[name]["cost"] == pytest.approx(table[name]["value"] - result.expected_value)
    assert sl.allocate(lists).limit_costs.is_empty()


def test_the_same_for_all_is_interpolated():
    table = pl.DataFrame({"user": [1, 1, 2, 2], "item": list("abab"), "probability": [0.5, 0.2, 0.4, 0.3]})
    same = sl.allocate(table, budget=3, gain=2.0, cost=0.1).same_for_all
    assert same == pytest.approx((1.5, 0.9 + 0.25, 2 * 1.15 - 0.3))


def test_shares_that_add_up_to_one_are_doubted():
    rows = [(user, item, p) for user in range(25) for item, p in zip("abc", (0.5, 0.3, 0.2), strict=True)]
    table = pl.DataFrame(rows, schema=["user", "item", "probability"], orient="row")
    with pytest.warns(sl.errors.DataWarning, match="add up to 1"):
        sl.allocate(table, budget=5)
    sl.allocate(table.filter(pl.col("user") < 19), budget=5)  # too few lists to tell
    with pytest.warns(sl.errors.DataWarning, match="add up to 1"):
        sl.allocate(table.filter(pl.col("user") < 20), budget=5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 400), st.integers(1, 6))
def test_a_total_alone_takes_the_largest_values(seed, budget, max_items):
    lists = random_lists(seed, n_users=40)
    result = sl.allocate(lists, budget=budget, max_items=max_items, cost=0.02)
    rows = [
        np.sort(lists.probabilities[a:b])[::-1][:max_items]
        for a, b in zip(lists.indptr, lists.indptr[1:], strict=False)
    ]
    values = np.sort(np.concatenate(rows) - 0.02)[::-1]
    values = values[values > 0]
    assert result.expected_value == pytest.approx(values[:budget].sum())
    assert result.gap < 1e-9
    assert result.prices.item == pytest.approx(values[budget] if budget < values.size else 0.0)


def test_ties_are_broken_in_the_order_of_users():
    table = pl.DataFrame({"user": [3, 1, 2], "item": ["a", "b", "c"], "probability": [0.5, 0.5, 0.5]})
    assert sl.allocate(table, budget=2).lists.lengths.tolist() == [1, 1, 0]
    assert sl.allocate(table, contacts=2).lists.lengths.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    "limits",
    [
        {"budget": 300},
        {"budget": 300, "contacts": 70},
        {"budget": 300, "item_limits": 12, "max_items": 3},
        {"item_limits": 12, "max_per_group": {"kind": 2, "brand": 2}, "contact_cost": 0.1},
    ],
)
def test_results_do_not_depend_on_threads(limits, monkeypatch):
    monkeypatch.setattr(allocation_solver, "BLOCK", 16)
    monkeypatch.setattr(allocation_solver, "ROWS", 100)
    lists, items = random_lists(5), random_items(5)
    runs = on_threads(1, 2, 5, run=lambda: sl.allocate(lists, gain="margin", items=items, **limits))
    for other in runs[1:]:
        assert other.lists.to_frame().equals(runs[0].lists.to_frame())
        assert (other.bound, other.prices.item) == (runs[0].bound, runs[0].prices.item)
        assert other.prices.stock.equals(runs[0].prices.stock)


def test_prices_say_what_one_more_would_earn():
    lists, items = random_lists(7), random_items(7)
    limits = {"budget": 200, "item_limits": 8, "max_items": 3}
    result = sl.allocate(lists, gain="margin", items=items, **limits)
    more = sl.allocate(lists, gain="margin", items=items, **limits | {"budget": 220})
    fewer = sl.allocate(lists, gain="margin", items=items, **limits | {"budget": 180})
    tolerance = 0.002 * result.expected_value
    assert more.expected_value - result.expected_value <= 20 * result.prices.item + tolerance
    assert result.expected_value - fewer.expected_value >= 20 * result.prices.item - tolerance
    assert result.prices.stock["price"].is_sorted(descending=True)
    assert (result.prices.stock["limit"] == 8).all()
    contacts = [sl.allocate(lists, contacts=n, contact_cost=0.1) for n in (80, 81)]
    earned = contacts[1].expected_value - contacts[0].expected_value
    assert contacts[0].prices.contact == pytest.approx(earned)


def test_stock_for_everyone_who_wants_it_has_no_price():
    assert sl.allocate(TABLE, item_limits={"tea": 2}).prices.stock.is_empty()
    assert sl.allocate(TABLE, item_limits={"tea": 1}).prices.stock["item_id"].to_list() == ["tea"]


def test_a_limit_of_contacts_that_does_not_bind_has_no_price():
    assert sl.allocate(TABLE, contacts=1, contact_cost=0.6).prices.contact == 0
    assert sl.allocate(TABLE, contacts=1, contact_cost=0.4).prices.contact == pytest.approx(0.1)


def test_a_contact_that_earns_exactly_its_cost_is_not_made():
    table = pl.DataFrame({"user": [1, 1], "item": ["a", "b"], "probability": [0.5, 0.25]})
    assert sl.allocate(table, contact_cost=0.5).n_items == 2
    assert sl.allocate(table, contact_cost=0.5, budget=1).n_items == 0


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_lists_do_not_depend_on_the_unit_of_money(unit, monkeypatch):
    monkeypatch.setattr(allocation_solver, "SMALL", 0)  # prices alone
    limits = {"budget": 200, "contacts": 80, "item_limits": 8}
    lists = random_lists(0)
    result = sl.allocate(lists, gain=1.0, cost=0.03, contact_cost=0.1, **limits)
    other = sl.allocate(lists, gain=unit, cost=0.03 * unit, contact_cost=0.1 * unit, **limits)
    assert other.lists.items.tolist() == result.lists.items.tolist()
    assert other.lists.lengths.tolist() == result.lists.lengths.tolist()
    assert other.expected_value == result.expected_value * unit


def test_every_list_has_a_reason():
    def reasons(**limits):
        return sl.allocate(TABLE, items=ITEMS, **limits).lists.summary()["reason"].to_list()

    assert reasons(budget=1) == ["below_price", "below_price", "no_candidates"]
    assert reasons() == ["all_candidates", "all_candidates", "no_candidates"]
    assert reasons(max_items=1) == ["max_items", "max_items", "no_candidates"]
    assert reasons(cost=0.15) == ["value", "all_candidates", "no_candidates"]
    assert reasons(item_limits={"tea": 1, "milk": 2}) == ["all_candidates", "item_limit", "no_candidates"]
    assert reasons(max_per_group={"kind": 1}) == ["group_limit", "group_limit", "no_candidates"]
    assert reasons(contacts=1) == ["all_candidates", "contact_limit", "no_candidates"]
    assert reasons(contact_cost=0.6) == ["all_candidates", "contact_cost", "no_candidates"]
    assert reasons(item_limits={"tea": 1}, budget=2) == ["below_price", "item_limit", "no_candidates"]


def test_lists_are_ordered_by_value_if_gains_differ():
    result = sl.allocate(TABLE, gain="margin", items=ITEMS)
    assert result.lists["ann"].items == ["soap", "milk", "tea"]
    assert sl.allocate(TABLE, gain=3.0).lists["ann"].items == ["tea", "milk", "soap"]
    assert sl.allocate(TABLE, gain={"tea": -1, "milk": 1, "soap": 1}).lists["ann"].items == ["milk", "soap"]


def test_limits_come_from_numbers_mappings_and_columns():
    def sold(limits):
        shown = sl.allocate(TABLE, item_limits=limits, items=ITEMS).lists.to_frame()["item_id"].drop_nulls()
        return dict(zip(*(column.to_list() for column in shown.value_counts(sort=True)), strict=True))

    assert sold(1) == {"tea": 1, "milk": 1, "soap": 1}
    assert sold({"tea": 0}) == {"milk": 2, "soap": 1}
    assert sold({"tea": 1}) == {"milk": 2, "tea": 1, "soap": 1}
    assert sold("stock") == {"tea": 1, "soap": 1}


def test_curve_compares_with_the_same_number_for_everyone():
    lists = random_lists(3)
    curve = sl.allocate(lists, budget=100, cost=0.01).curve
    first = curve.row(0, named=True)
    heads = lists.probabilities[lists.indptr[:-1][lists.lengths > 0]]
    assert curve["N"].to_list() == [1, 2, 3, 5, 7, 10, 15]
    assert first["n_items"] == heads.size
    owner, floor = np.repeat(np.arange(len(lists)), lists.lengths), np.sort(lists.probabilities)[-heads.size]
    assert first["n_users"] == np.unique(owner[lists.probabilities >= floor]).size
    assert first["hits_same"] == pytest.approx(heads.sum())
    assert first["value_same"] == pytest.approx((heads - 0.01).sum())
    assert first["hits"] == pytest.approx(np.sort(lists.probabilities)[::-1][: heads.size].sum())
    assert (curve["value"] >= curve["value_same"] - 1e-9).all()


def test_empty_candidates_give_empty_lists():
    table = pl.DataFrame({"user": [1, 2], "item": [None, None], "probability": [None, None]})
    result = sl.allocate(table.cast({"item": pl.String, "probability": pl.Float64}), budget=5, item_limits=2)
    assert (result.n_items, result.n_users, result.gap, result.expected_value) == (0, 0, 0.0, 0.0)
    assert result.curve.is_empty()
    assert result.lists.summary()["reason"].to_list() == ["no_candidates"] * 2
    assert sl.allocate(TABLE, budget=0).n_items == 0
    assert sl.allocate(TABLE, contacts=0).n_items == 0


def test_pandas_and_arrow_tables_are_candidates():
    expected = sl.allocate(TABLE, budget=2).lists.to_frame()
    assert sl.allocate(TABLE.to_arrow(), budget=2).lists.to_frame().equals(expected)
    assert sl.allocate(TABLE.to_pandas(), budget=2).lists.to_frame().equals(expected)


def test_text_shows_the_result():
    result = sl.allocate(TABLE, budget=2)
    assert (
        repr(result) == "Allocation(2 items for 1 of 3 users, 0.9 expected hits, expected value 0.9, optimal)"
    )
    assert "below_price" in result._repr_html_()


def test_a_model_is_allocated_with_the_probabilities_of_its_cutoff():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.PersonalFrequency().fit(split.train)
    with pytest.raises(ConfigError, match="cutoff"):
        sl.allocate(model, budget=100)
    lists = model.recommend(N=100, filter_seen=False)
    cutoff = sl.cutoff.ExpectedValue(calibration="isotonic").fit(lists, split.valid)
    model.set_cutoff(cutoff)
    result = sl.allocate(model.candidates(filter_seen=False), budget=500)
    assert result.n_items == 500
    assert result.expected_hits == pytest.approx(
        sl.allocate(cutoff.with_probabilities(lists), budget=500).expected_hits
    )


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"budget": -1}, ConfigError, "budget"),
        ({"budget": 1.5}, ConfigError, "budget"),
        ({"contacts": -2}, ConfigError, "contacts"),
        ({"max_items": 0}, ConfigError, "max_items"),
        ({"cost": -0.1}, ConfigError, "cost"),
        ({"cost": float("nan")}, ConfigError, "cost"),
        ({"contact_cost": float("inf")}, ConfigError, "contact_cost"),
        ({"gain": float("nan")}, ConfigError, "gain"),
        ({"gain": None}, ConfigError, "gain must be"),
        ({"gain": {"tea": 1, "milk": 1, "soap": 1, "jam": 2}}, UnknownIdError, "'jam'"),
        ({"gain": {"tea": 1}}, DataError, "'milk'"),
        ({"gain": {"tea": float("nan"), "milk": 1, "soap": 1}}, ConfigError, "'tea'"),
        ({"gain": "margin"}, ConfigError, "items="),
        ({"gain": 1.0, "cost": 1.0}, ConfigError, "exceed cost"),
        ({"gain": "price", "items": ITEMS}, ConfigError, "'margin'"),
        ({"gain": "kind", "items": ITEMS}, ConfigError, "numbers"),
        ({"gain": "stock", "items": ITEMS}, DataError, "'soap'"),
        ({"item_limits": -1}, ConfigError, "item_limits"),
        ({"item_limits": float("nan")}, ConfigError, "item_limits"),
        ({"item_limits": {"tea": -3}}, ConfigError, "-3"),
        ({"item_limits": {"tea": 1.5}}, ConfigError, "1.5"),
        ({"item_limits": {"jam": 1}}, UnknownIdError, "'jam'"),
        ({"item_limits": [1, 2]}, ConfigError, "item_limits"),
        ({"item_limits": pl.DataFrame({"item": ["tea"], "limit": [1]})}, ConfigError, "item_limits must be"),
        ({"max_per_group": {"kind": 2}}, ConfigError, "items="),
        ({"max_per_group": {"color": 2}, "items": ITEMS}, ConfigError, "'color'"),
        ({"max_per_group": {"kind": 0}, "items": ITEMS}, ConfigError, "kind"),
        ({"max_per_group": {"tags": 1}, "items": ITEMS}, ConfigError, "tags"),
        ({"max_per_group": 2, "items": ITEMS}, ConfigError, "max_per_group"),
        ({"total": 5}, TypeError, "total"),
    ],
)
def test_invalid_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        sl.allocate(TABLE, **arguments)


@pytest.mark.parametrize("wrong", [1.2, -0.1, float("nan")])
def test_probabilities_must_be_probabilities(wrong):
    table = pl.DataFrame({"user": [1, 1], "item": ["a", "b"], "probability": [wrong, 0.5]})
    with pytest.raises(DataError, match="from 0 to 1"):
        sl.allocate(table)


def test_scores_are_no_probabilities():
    table = pl.DataFrame({"user": [1, 1], "item": ["a", "b"], "score": [0.1, 0.5]})
    with pytest.raises(DataError, match="'probability'"):
        sl.allocate(table)
    with pytest.raises(DataError, match="calibrated probabilities"):
        sl.allocate(RankedLists.from_frame(table))
    with pytest.raises(DataError, match="int"):
        sl.allocate(5)


def test_probabilities_that_are_not_calibrated_warn():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.DKBPRMF(n_epochs=1).fit(split.train)
    lists = model.recommend(N=20)
    for cutoff in (sl.cutoff.ExpectedValue(calibration="none"), sl.cutoff.FixedN()):
        model.set_cutoff(cutoff.fit(lists, split.valid))
        with pytest.warns(sl.errors.DataWarning, match="not calibrated .* fit the model with"):
            sl.allocate(model, budget=100)
    model.set_cutoff(sl.cutoff.ExpectedValue(calibration="platt").fit(lists, split.valid))
    assert sl.allocate(model, budget=100).n_items == 100


def test_excluded_users_get_nothing_and_do_not_count():
    for users in (["ann"], pl.DataFrame({"user_id": ["ann"]}), pl.DataFrame({"customer": ["ann"]})):
        result = sl.allocate(TABLE, budget=1, exclude_users=users)
        assert "ann" not in result.lists.users
        assert result.n_items == 1
    with pytest.warns(UserWarning, match="none of the 1 users to exclude has candidates"):
        assert sl.allocate(TABLE, budget=1, exclude_users=["nobody"]).n_items == 1
    with pytest.raises(DataError, match="users need a column 'user_id'"):
        sl.allocate(TABLE, budget=1, exclude_users=pl.DataFrame({"a": [1], "b": [2]}))


def test_contacts_alone_limit_the_length_of_a_list():
    rows = [(user, item, 0.5) for user in "ab" for item in range(30)]
    table = pl.DataFrame(rows, ["user", "item", "probability"], orient="row")
    assert sl.allocate(table, contacts=1).n_items == 10
    assert sl.allocate(table, contacts=1, max_items=20).n_items == 20
    assert sl.allocate(table, contacts=1, budget=25).n_items == 25
