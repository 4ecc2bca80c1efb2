"""Prices of an allocation: which candidates to show so that their total value is highest within all limits.

A total has one price, contacts have one, each item with a limit has one, and so have a user's places in
groups of further fields. Whatever the prices, their sum times the limits, plus what users could get at these
prices, is at least the best possible value. So every solution has a bound on its distance from the optimum.

- A total, lengths and one field of groups: the price is the first value that is not shown. Exact.
- Contacts, limits per item or groups in several fields: each price rises while more is wanted than there is,
  and falls while less is, in steps that grow until the direction changes and halve when it does (Riedmiller
  and Braun, "RPROP", 1993). Then offers are shown in the order of their value less prices, as far as all
  limits allow.
- Few offers: if prices leave a gap, because units and contacts are whole, HiGHS solves an integer program.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.ragged import row_lengths, row_owners
from shortlist.core.threads import map_slices
from shortlist.kernels.allocation import (
    DIGITS,
    UNLIMITED,
    CandidateValues,
    LimitPrices,
    Offers,
    UserLimits,
    count_digits,
    count_offers,
    fill_in_order,
    fill_offers,
    number_places,
    take_at_prices,
)
from shortlist.kernels.rows import starts
from shortlist.types import Bools, Doubles, Ints, Longs

BLOCK = 1 << 14  # users per block; fixed, so that sums do not depend on the number of threads
ROWS = 1 << 22  # rows per block
N_NODES = 20_000  # of the integer program
ROUNDS, MAX_TURNS = 10, 20  # changes of the prices before a solution is made, and how often
FASTER, SLOWER = 1.2, 0.5  # by which the step of a price changes
SMALL, EXACT = 5_000, 1e-4  # offers up to which an integer program is solved, and the gap from which on
LARGE = 2_000_000  # offers from which on COARSE is close enough
FINE, COARSE = 1e-6, 1e-4  # distance from the bound at which prices are good enough


@dataclass(frozen=True)
class AllocationProblem:
    """Candidates with their values, and all limits."""

    lists: CandidateValues
    limits: UserLimits
    stock: Longs | None = None  # (n_items,) units of each item, -1: no limit
    budget: int = UNLIMITED
    contacts: int = UNLIMITED
    contact_cost: float = 0.0

    @property
    def n_users(self) -> int:
        """Number of users."""
        return self.lists.indptr.size - 1

    @property
    def has_contacts(self) -> bool:
        """Whether contacts cost something or are limited."""
        return self.contact_cost > 0 or self.contacts < self.n_users


class AllocationSolution(NamedTuple):
    """What is shown, the prices, and a bound that no solution can exceed."""

    offers: Offers
    positions: Ints  # (n_offers,) of each offer in the user's list
    held: Bools  # (n_offers,) whether it is shown
    value: float
    bound: float
    price: float
    contact_price: float
    item_prices: Doubles  # (n_items,)


def solve(problem: AllocationProblem) -> AllocationSolution:
    """Find the solution and its bound; few offers far from the bound are solved as an integer program."""
    solution = _solve_by_prices(problem)
    is_far = solution.bound - solution.value > EXACT * abs(solution.bound)
    return _solve_exactly(problem, solution) if is_far and solution.held.size <= SMALL else solution


def _solve_by_prices(problem: AllocationProblem) -> AllocationSolution:
    """Find prices at which what users want fits the limits."""
    n_fields = problem.limits.groups.shape[1]
    if problem.stock is not None:  # items without a unit are never offered
        gains = np.where(problem.stock == 0, -1.0, problem.lists.gains)
        problem = replace(problem, lists=problem.lists._replace(gains=gains))
    if problem.stock is None and n_fields <= 1:
        offers, positions = build_offers(problem, problem.limits)
        solve_offers = _solve_scarce if problem.has_contacts else _solve_total
        return solve_offers(problem, offers, positions)
    no_limits = UserLimits(UNLIMITED, np.empty((0, 0), np.int32), np.empty(0, np.int64))
    return _solve_scarce(problem, *build_offers(problem, no_limits))


def build_offers(problem: AllocationProblem, limits: UserLimits) -> tuple[Offers, Ints]:
    """The candidates with positive values within the limits of users, best first, and their positions."""
    n = problem.n_users
    sizes = np.empty(n, np.int64)

    def count(users: slice) -> None:
        count_offers(problem.lists, limits, users.start, sizes[users])

    map_slices(count, n, BLOCK)
    indptr = starts(sizes)
    offers = Offers(indptr, np.empty(indptr[-1], np.int32), np.empty(indptr[-1]))
    positions = np.empty(indptr[-1], np.int32)

    def fill(users: slice) -> None:
        block, rows = _block(offers, users)
        fill_offers(problem.lists, limits, users.start, block, positions[rows])

    map_slices(fill, n, BLOCK)
    return offers, positions


def _block(offers: Offers, users: slice) -> tuple[Offers, slice]:
    """The offers of consecutive users, and their rows."""
    indptr = offers.indptr[users.start : users.stop + 1]
    rows = slice(int(indptr[0]), int(indptr[-1]))
    return Offers(indptr - indptr[0], offers.items[rows], offers.values[rows]), rows


def select_by_digits(count: Callable[[int, int], Longs], k: int) -> tuple[float, int]:
    """(the k-th largest (from 1) of positive values, how many are larger).

    `count(prefix, shift)` counts the digit at `shift` of the values whose higher digits are `prefix`.
    """
    prefix, n_above = 0, 0
    for shift in (48, 32, 16, 0):
        above = np.cumsum(count(prefix, shift)[::-1])
        at = int(np.searchsorted(above, k - n_above))
        n_above += int(above[at - 1]) if at else 0
        prefix = (prefix << 16) | (DIGITS - 1 - at)
    return float(np.array([prefix], np.uint64).view(np.float64)[0]), n_above


def kth_largest(values: Doubles, k: int) -> float:
    """The k-th largest (from 1) of positive values, found digit by digit without a copy."""
    bits = values.view(np.uint64)

    def count(prefix: int, shift: int) -> Longs:
        def count_rows(rows: slice) -> Longs:
            counts = np.zeros(DIGITS, np.int64)
            count_digits(bits[rows], prefix, shift, counts)
            return counts

        return sum(map_slices(count_rows, values.size, ROWS), np.zeros(DIGITS, np.int64))

    return select_by_digits(count, k)[0]


def _take_best(offers: Offers, held: Bools, n: int) -> Bools:
    """The n most valuable of the held offers; equal values are taken in the order of users."""
    n_held = int(held.sum())
    if n_held <= n:
        return held
    if n == 0:
        return np.zeros_like(held)
    all_held = n_held == held.size
    values = offers.values if all_held else offers.values[held]
    last = kth_largest(values, n)
    best = offers.values > last
    best &= held
    n_tied = n - int(best.sum())
    tied = offers.values == last
    tied &= held
    best[np.flatnonzero(tied)[:n_tied]] = True
    return best


def _total_value(offers: Offers, held: Bools) -> float:
    """The sum of the values of held offers, in a fixed order."""
    sums = map_slices(lambda rows: float(offers.values[rows][held[rows]].sum()), held.size, ROWS)
    return float(sum(sums))


def _solve_total(problem: AllocationProblem, offers: Offers, positions: Ints) -> AllocationSolution:
    """The `budget` most valuable offers: exact."""
    n = offers.values.size
    held = _take_best(offers, np.ones(n, np.bool_), problem.budget)
    value = _total_value(offers, held)
    price = kth_largest(offers.values, problem.budget + 1) if problem.budget < n else 0.0
    prices = np.zeros(problem.lists.gains.size)
    return AllocationSolution(offers, positions, held, value, value, price, 0.0, prices)


class _Contacts(NamedTuple):
    """Whom to contact at given prices."""

    contacted: Bools  # (n_users,)
    price: float
    surplus: float  # what contacted users get beyond prices, and the price of contacts times their number


def _choose_contacts(problem: AllocationProblem, worth: Doubles) -> _Contacts:
    """Contact the users with the highest worth beyond the cost of a contact; ties in the order of users."""
    net = worth - problem.contact_cost
    limit, positive = problem.contacts, net > 0
    if int(positive.sum()) <= limit:
        return _Contacts(positive, 0.0, float(net[positive].sum()))
    price = float(np.partition(net, net.size - limit - 1)[net.size - limit - 1])  # the first who is left out
    contacted = net > price
    contacted[np.flatnonzero(net == price)[: limit - int(contacted.sum())]] = True
    surplus = float(np.maximum(net - price, 0.0).sum()) + price * limit
    return _Contacts(contacted, price, surplus)


def _drop_losses(problem: AllocationProblem, offers: Offers, held: Bools) -> tuple[Bools, float]:
    """Leave out lists that earn less than their contact costs; also return the value."""
    if not problem.contact_cost:
        return held, _total_value(offers, held)
    sums = np.add.reduceat(np.append(np.where(held, offers.values, 0.0), 0.0), offers.indptr[:-1])
    sums[row_lengths(offers.indptr) == 0] = 0.0
    kept = sums > problem.contact_cost
    held = held & kept[row_owners(offers.indptr)]
    return held, float((sums[kept] - problem.contact_cost).sum())


class _Resources(NamedTuple):
    """What the limits allow, beside the total and the contacts."""

    places: Longs  # (n_offers, n_fields) the places of users in groups that offers use, -1: none
    stock: Longs  # (n_items,) units; UNLIMITED if the limit cannot bind
    rooms: Longs  # (n_places,) items


def _list_resources(problem: AllocationProblem, offers: Offers) -> _Resources:
    """The limits of items and of a user's groups."""
    limits, n_items = problem.limits, problem.lists.gains.size
    places = np.empty((offers.items.size, limits.groups.shape[1]), np.int64)
    counts = np.zeros(number_places(offers, limits, 0, places), np.int64)
    rooms = np.empty_like(counts)
    for field, column in enumerate(places.T):
        rows = np.flatnonzero(column >= 0)
        rooms[column[rows]] = limits.group_limits[limits.groups[offers.items[rows], field]]
        counts += np.bincount(column[rows], minlength=counts.size)
    may_bind = counts > rooms
    numbers = np.append(np.where(may_bind, np.cumsum(may_bind) - 1, -1), -1)
    places, rooms = numbers[places], rooms[may_bind]
    stock = np.full(n_items, UNLIMITED) if problem.stock is None else problem.stock
    stock = np.where((stock < 0) | (stock >= np.bincount(offers.items, minlength=n_items)), UNLIMITED, stock)
    return _Resources(places, stock, rooms)


class _Demand(NamedTuple):
    """What users want at given prices, and the bound that follows."""

    wanted: Longs  # (n_prices,)
    contacts: _Contacts
    bound: float


class _PriceSearch:
    """Prices of the total, of items and of places, and how they change."""

    def __init__(self, problem: AllocationProblem, offers: Offers, resources: _Resources) -> None:
        self.problem, self.offers, self.resources = problem, offers, resources
        first = problem.limits.groups[:, :1]  # lists within the groups of one field need no prices
        self.limits = UserLimits(problem.limits.max_items, first, problem.limits.group_limits)
        self.places = np.ascontiguousarray(resources.places[:, 1:])
        self.limit = np.concatenate([[problem.budget], resources.stock, resources.rooms])
        self.prices = np.zeros(self.limit.size)
        if problem.budget < offers.values.size:
            self.prices[0] = kth_largest(offers.values, problem.budget + 1)
        self.steps = np.full(self.limit.size, float(offers.values.mean()) / 4)
        self.signs = np.zeros(self.limit.size)
        self.taken, self.worth = np.empty(offers.values.size, np.bool_), np.empty(problem.n_users)
        self.users = row_owners(offers.indptr).astype(np.int32)
        self.owners = np.empty(resources.rooms.size, np.int32)  # of places
        for column in resources.places.T:
            self.owners[column[column >= 0]] = self.users[column >= 0]

    @property
    def current(self) -> LimitPrices:
        """The prices by kind."""
        n_items = self.resources.stock.size
        return LimitPrices(float(self.prices[0]), self.prices[1 : n_items + 1], self.prices[n_items + 1 :])

    def ask(self) -> _Demand:
        """What users want at the prices."""

        def block(users: slice) -> None:
            offers, rows = _block(self.offers, users)
            take_at_prices(
                offers, self.limits, self.current, self.places[rows], self.taken[rows], self.worth[users]
            )

        map_slices(block, self.problem.n_users, BLOCK)
        now, (_, stock, rooms) = self.current, self.resources
        if rooms.size:  # a user's places are paid for only with a contact
            self.worth += np.bincount(self.owners, now.places * rooms, minlength=self.problem.n_users)
        contacts = _choose_contacts(self.problem, self.worth)
        rows = np.flatnonzero(self.taken)
        places = self.places[rows]
        wanted_places = np.bincount(places[places >= 0], minlength=rooms.size)
        rows = rows[contacts.contacted[self.users[rows]]]
        wanted_items = np.bincount(self.offers.items[rows], minlength=stock.size)
        priced = now.items > 0
        bound = contacts.surplus + float(now.items[priced] @ stock[priced])
        bound += now.total * self.problem.budget if now.total > 0 else 0.0
        return _Demand(np.concatenate([[rows.size], wanted_items, wanted_places]), contacts, bound)

    def change(self, demand: _Demand) -> None:
        """Raise the prices of what is short, lower those of what is left."""
        signs = np.sign(demand.wanted - self.limit).astype(np.float64)
        signs[(self.prices == 0) & (signs < 0)] = 0
        turned = signs * self.signs
        self.steps *= np.where(turned > 0, FASTER, np.where(turned < 0, SLOWER, 1.0))
        self.signs = signs
        self.prices = np.maximum(self.prices + signs * self.steps, 0.0)

    def fill(self, contacted: Bools) -> Bools:
        """Show the best offers of contacted users at the prices, as far as all limits allow."""
        problem, offers, now = self.problem, self.offers, self.current
        held, budget = np.zeros(offers.values.size, np.bool_), problem.budget
        stock, rooms = self.resources.stock.copy(), self.resources.rooms.copy()
        lengths = np.where(contacted, min(problem.limits.max_items, UNLIMITED), 0)
        low, high = 0.9 * now.total, np.inf
        while budget > 0:
            rows = np.flatnonzero((offers.values > low) & (offers.values <= high))
            reduced = offers.values[rows] - now.items[offers.items[rows]]
            for column in self.places.T:
                at = column[rows]
                reduced -= np.where(at >= 0, now.places[at], 0.0) if now.places.size else 0.0
            order = rows[np.argsort(-reduced, kind="stable")]
            budget = fill_in_order(
                order,
                self.users[order],
                offers.items,
                self.resources.places,
                stock,
                rooms,
                lengths,
                held,
                budget,
            )
            if low == 0:
                break
            low, high = 0.0, low
        return held


def _solve_scarce(problem: AllocationProblem, offers: Offers, positions: Ints) -> AllocationSolution:
    """Change prices until what users want fits the limits, and show what fits."""
    if not offers.values.size:
        return _solve_total(problem, offers, positions)
    search = _PriceSearch(problem, offers, _list_resources(problem, offers))
    tolerance = COARSE if offers.values.size > LARGE else FINE
    best: AllocationSolution | None = None
    bound = np.inf
    for _ in range(MAX_TURNS):
        for _ in range(ROUNDS):
            demand = search.ask()
            bound = min(bound, demand.bound)
            search.change(demand)
        demand = search.ask()
        bound = min(bound, demand.bound)
        held, value = _drop_losses(problem, offers, search.fill(demand.contacts.contacted))
        if best is None or value > best.value:
            now = search.current
            best = AllocationSolution(
                offers, positions, held, value, bound, now.total, demand.contacts.price, now.items
            )
        if bound - best.value <= tolerance * abs(bound):
            break
    assert best is not None
    return best._replace(bound=max(bound, best.value))


class _Program:
    """The rows of an integer program: sums of some of its variables, each with a limit."""

    def __init__(self) -> None:
        self.entries, self.limits = list[tuple[Longs, Longs, Doubles]](), list[Doubles]()

    def add(
        self, columns: Longs, keys: Longs, limit_of: Longs | float, weights: Doubles | float = 1.0
    ) -> None:
        """Add a row for each distinct key; its limit is that at the position of the key, or one for all."""
        distinct, numbers = np.unique(keys, return_inverse=True)
        limits = np.full(distinct.size, limit_of) if np.isscalar(limit_of) else np.asarray(limit_of)[distinct]
        first = sum(values.size for values in self.limits)
        self.entries.append((numbers + first, columns, np.broadcast_to(weights, columns.shape)))
        self.limits.append(limits.astype(np.float64))

    def solve(self, costs: Doubles) -> Any:
        """Minimize the costs of variables that are 0 or 1; nodes are limited, not time: always the same."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # costs time, and is rarely needed
        from scipy.sparse import csr_array

        rows, columns, values = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        limits = np.concatenate(self.limits)
        matrix = csr_array((values, (rows, columns)), shape=(limits.size, costs.size))
        return milp(
            costs,
            integrality=np.ones(costs.size, np.int64),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, -np.inf, limits),
            options={"mip_rel_gap": EXACT / 10, "node_limit": N_NODES},
        )


def _solve_exactly(problem: AllocationProblem, solution: AllocationSolution) -> AllocationSolution:
    """The better of a solution and that of branch and bound, with the lower of both bounds."""
    offers, n, n_users = solution.offers, solution.held.size, problem.n_users
    user, item, limits = row_owners(offers.indptr), offers.items, problem.limits
    every, contact, program = np.arange(n), n + np.arange(n_users), _Program()
    program.add(every, np.zeros(n, np.int64), float(min(problem.budget, n)))
    program.add(every, user, float(min(limits.max_items, n)))
    for field in range(limits.groups.shape[1]):
        group = limits.groups[item, field].astype(np.int64)
        rows, n_groups = np.flatnonzero(group >= 0), limits.group_limits.size
        program.add(rows, user[rows] * n_groups + group[rows], np.tile(limits.group_limits, n_users))
    if problem.stock is not None:
        rows = np.flatnonzero(problem.stock[item] >= 0)
        program.add(rows, item[rows].astype(np.int64), problem.stock)
    if problem.has_contacts:  # no item without a contact
        program.add(np.append(every, contact[user]), np.tile(every, 2), 0.0, np.repeat([1.0, -1.0], n))
        program.add(contact, np.zeros(n_users, np.int64), float(min(problem.contacts, n_users)))
    shown = program.solve(np.append(-offers.values, np.full(n_users, problem.contact_cost)))
    bound, best = shown.mip_dual_bound, solution
    if shown.x is not None:
        held, value = _drop_losses(problem, offers, shown.x[:n] > 0.5)
        best = solution._replace(held=held, value=value) if value > solution.value else solution
    bound = solution.bound if bound is None or not np.isfinite(bound) else min(solution.bound, -float(bound))
    return best._replace(bound=max(bound, best.value))


def contact_worth(problem: AllocationProblem, solution: AllocationSolution) -> Doubles:
    """(n_users,) what each user's list could earn at the prices of items, before the cost of a contact."""
    offers, worth = solution.offers, np.empty(problem.n_users)
    prices = LimitPrices(solution.price, solution.item_prices, np.empty(0))

    def block(users: slice) -> None:
        rows = _block(offers, users)[0]
        taken, places = np.empty(rows.items.size, np.bool_), np.empty((rows.items.size, 0), np.int64)
        take_at_prices(rows, problem.limits, prices, places, taken, worth[users])

    map_slices(block, problem.n_users, BLOCK)
    return worth
