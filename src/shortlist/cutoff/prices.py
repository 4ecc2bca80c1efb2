"""Prices of an allocation: which candidates to show so that their total value is highest within all limits.

A total has one price, contacts have one, and each item with a limit has one. Whatever the prices, their sum
times the limits, plus what users could get at these prices, is at least the best possible value. So every
solution comes with a bound on its distance from the optimum.

- A total, lengths and one field of groups: the price is the first value that is not shown. Exact.
- Costs or limits of contacts: bisection over the price of the total.
- Limits per item: an auction. The price of the total falls until the total is used; item prices only rise.
- Both: the users to contact are chosen at the mean of earlier prices, and the auction is run among them.
- Few offers: if prices leave a gap, because units and contacts are whole, branch and bound closes it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.threads import map_slices
from shortlist.kernels.allocation import (
    DIGITS,
    N_BINS,
    UNLIMITED,
    CandidateValues,
    Market,
    Offers,
    UserLimits,
    count_available,
    count_digits,
    count_offers,
    fill_offers,
    price_users,
    run_auction,
    sum_above,
)
from shortlist.kernels.rows import starts
from shortlist.types import Bools, Doubles, Ints, Longs

BLOCK = 1 << 14  # users per block; fixed, so that sums do not depend on the number of threads
ROWS = 1 << 22  # rows per block
N_NODES = 20_000  # of branch and bound per user, if items have groups in several fields
N_BISECTIONS = 60
MAX_HURRY = 20.0
MAX_ROUNDS = 100  # in which the price of the total falls
CONTACT_ROUNDS = 40  # in which the users to contact are chosen
SMALL = 5_000  # offers up to which an integer program is solved if prices leave a gap
LARGE = 2_000_000  # offers from which on a solution need not be closer to the bound than COARSE
FINE, COARSE = 1e-4, 1e-3


@dataclass(frozen=True)
class AllocationProblem:
    """Candidates with their values, and all limits."""

    lists: CandidateValues
    limits: UserLimits
    stock: Longs | None = None  # (n_items,) units of each item, -1: no limit
    budget: int = UNLIMITED
    max_users: int = UNLIMITED
    contact_cost: float = 0.0
    n_threads: int = 0

    @property
    def n_users(self) -> int:
        """Number of users."""
        return self.lists.indptr.size - 1

    @property
    def has_contacts(self) -> bool:
        """Whether contacts cost something or are limited."""
        return self.contact_cost > 0 or self.max_users < self.n_users


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
    is_far = solution.bound - solution.value > FINE * abs(solution.bound)
    return _solve_exactly(problem, solution) if is_far and solution.held.size <= SMALL else solution


def _solve_by_prices(problem: AllocationProblem) -> AllocationSolution:
    """Find prices at which what users want fits the limits."""
    n_fields = problem.limits.groups.shape[1]
    if problem.stock is not None:  # items without a unit are never offered
        gains = np.where(problem.stock == 0, -1.0, problem.lists.gains)
        problem = replace(problem, lists=problem.lists._replace(gains=gains))
    if problem.stock is None and n_fields <= 1:
        offers, positions = build_offers(problem, problem.limits)
        if problem.has_contacts:
            return _solve_contacts(problem, offers, positions)
        return _solve_total(problem, offers, positions)
    no_limits = UserLimits(UNLIMITED, np.empty((0, 0), np.int32), np.empty(0, np.int64))
    return _solve_market(problem, *build_offers(problem, no_limits))


def build_offers(problem: AllocationProblem, limits: UserLimits) -> tuple[Offers, Ints]:
    """The candidates with positive values within the limits of users, best first, and their positions."""
    n, threads = problem.n_users, problem.n_threads
    sizes = np.empty(n, np.int64)

    def count(users: slice) -> None:
        count_offers(problem.lists, limits, users.start, sizes[users])

    map_slices(count, n, BLOCK, threads)
    indptr = starts(sizes)
    offers = Offers(indptr, np.empty(indptr[-1], np.int32), np.empty(indptr[-1]))
    positions = np.empty(indptr[-1], np.int32)

    def fill(users: slice) -> None:
        block, rows = _block(offers, users)
        fill_offers(problem.lists, limits, users.start, block, positions[rows])

    map_slices(fill, n, BLOCK, threads)
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


def kth_largest(values: Doubles, k: int, n_threads: int = 0) -> float:
    """The k-th largest (from 1) of positive values, found digit by digit without a copy."""
    bits = values.view(np.uint64)

    def count(prefix: int, shift: int) -> Longs:
        def count_rows(rows: slice) -> Longs:
            counts = np.zeros(DIGITS, np.int64)
            count_digits(bits[rows], prefix, shift, counts)
            return counts

        return sum(map_slices(count_rows, values.size, ROWS, n_threads), np.zeros(DIGITS, np.int64))

    return select_by_digits(count, k)[0]


def _take_best(offers: Offers, held: Bools, n: int, n_threads: int) -> Bools:
    """The n most valuable of the held offers; equal values are taken in the order of users."""
    n_held = int(held.sum())
    if n_held <= n:
        return held
    if n == 0:
        return np.zeros_like(held)
    all_held = n_held == held.size
    values = offers.values if all_held else offers.values[held]
    last = kth_largest(values, n, n_threads)
    best = offers.values > last
    best &= held
    n_tied = n - int(best.sum())
    tied = offers.values == last
    tied &= held
    best[np.flatnonzero(tied)[:n_tied]] = True
    return best


def _total_value(offers: Offers, held: Bools, n_threads: int) -> float:
    """The sum of the values of held offers, in a fixed order."""
    sums = map_slices(lambda rows: float(offers.values[rows][held[rows]].sum()), held.size, ROWS, n_threads)
    return float(sum(sums))


def _solve_total(problem: AllocationProblem, offers: Offers, positions: Ints) -> AllocationSolution:
    """The `budget` most valuable offers: exact."""
    n, threads = offers.values.size, problem.n_threads
    held = _take_best(offers, np.ones(n, np.bool_), problem.budget, threads)
    value = _total_value(offers, held, threads)
    price = kth_largest(offers.values, problem.budget + 1, threads) if problem.budget < n else 0.0
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
    limit, positive = problem.max_users, net > 0
    if int(positive.sum()) <= limit:
        return _Contacts(positive, 0.0, float(net[positive].sum()))
    price = float(np.partition(net, net.size - limit - 1)[net.size - limit - 1])  # the first who is left out
    contacted = net > price
    contacted[np.flatnonzero(net == price)[: limit - int(contacted.sum())]] = True
    surplus = float(np.maximum(net - price, 0.0).sum()) + price * limit
    return _Contacts(contacted, price, surplus)


def _solve_contacts(problem: AllocationProblem, offers: Offers, positions: Ints) -> AllocationSolution:
    """Bisection over the price of the total; offers are sorted, so users take them from the front."""
    n, budget = problem.n_users, problem.budget
    worth, sizes = np.empty(n), np.empty(n, np.int64)

    def demand(price: float) -> tuple[_Contacts, int, float]:
        def block(users: slice) -> None:
            sum_above(_block(offers, users)[0], price, worth[users], sizes[users])

        map_slices(block, n, BLOCK, problem.n_threads)
        contacts = _choose_contacts(problem, worth)
        bound = contacts.surplus + (price * budget if price > 0 else 0.0)
        return contacts, int(sizes[contacts.contacted].sum()), bound

    low, high = 0.0, float(offers.values.max(initial=0.0))
    contacts, wanted, bound = demand(low)
    tried = [contacts]
    if wanted > budget:
        for _ in range(N_BISECTIONS):
            middle = (low + high) / 2
            contacts, wanted, new_bound = demand(middle)
            bound = min(bound, new_bound)
            low, high = (middle, high) if wanted > budget else (low, middle)
            if wanted == budget:
                break
        tried = [demand(low)[0], demand(high)[0]]
    else:
        high = 0.0
    choices = [_show_to(problem, offers, solution.contacted) for solution in tried]
    held, value = max(choices, key=lambda choice: choice[1])
    prices = np.zeros(problem.lists.gains.size)
    return AllocationSolution(
        offers, positions, held, value, max(bound, value), high, tried[-1].price, prices
    )


def _show_to(problem: AllocationProblem, offers: Offers, contacted: Bools) -> tuple[Bools, float]:
    """The best offers of contacted users, and their value less the cost of contacts."""
    held = np.repeat(contacted, np.diff(offers.indptr))
    held = _take_best(offers, held, problem.budget, problem.n_threads)
    return _drop_losses(problem, offers, held)


def _drop_losses(problem: AllocationProblem, offers: Offers, held: Bools) -> tuple[Bools, float]:
    """Leave out lists that earn less than their contact costs; also return the value."""
    if not problem.contact_cost:
        return held, _total_value(offers, held, problem.n_threads)
    sums = np.add.reduceat(np.append(np.where(held, offers.values, 0.0), 0.0), offers.indptr[:-1])
    sums[np.diff(offers.indptr) == 0] = 0.0
    kept = sums > problem.contact_cost
    held = held & np.repeat(kept, np.diff(offers.indptr))
    return held, float((sums[kept] - problem.contact_cost).sum())


def _new_market(problem: AllocationProblem, offers: Offers) -> Market:
    """A market without bids; items whose limit cannot bind have none."""
    n_items = problem.lists.gains.size
    wanted = sum(
        map_slices(
            lambda rows: np.bincount(offers.items[rows], minlength=n_items), offers.items.size, ROWS, 1
        ),
        np.zeros(n_items, np.int64),
    )
    stock = np.full(n_items, -1, np.int64) if problem.stock is None else problem.stock
    limits = np.where((stock >= 0) & (stock < wanted), stock, -1)
    at = starts(np.maximum(limits, 0))
    # empty: pages of units that are never sold are never touched
    return Market(
        limits,
        at,
        np.zeros(n_items, np.int64),
        np.empty(at[-1]),
        np.empty(at[-1], np.int64),
        np.empty(at[-1], np.int32),
        np.zeros(offers.items.size, np.bool_),
    )


def _item_prices(market: Market) -> Doubles:
    """(n_items,) the lowest bid of items of which no unit is left; 0 for others."""
    full = np.flatnonzero((market.limits > 0) & (market.n_bids == market.limits))
    prices = np.zeros(market.limits.size)
    prices[full] = market.bids[market.starts[full]]
    return prices


class _Sale(NamedTuple):
    """The result of one auction."""

    held: Bools
    price: float
    item_prices: Doubles


def _sell(problem: AllocationProblem, offers: Offers, market: Market, active: Bools) -> _Sale:
    """Lower the price of the total until it is used up; at each price, users bid until no one wants more."""
    market.n_bids[:], market.held[:] = 0, False
    price, step, best = float(offers.values.max(initial=0.0)), 0.0, np.empty(problem.n_users)
    tolerance = COARSE if offers.values.size > LARGE else FINE
    n_held, hurry = 0, 1.0
    for _ in range(MAX_ROUNDS):
        missing = problem.budget - n_held
        if missing <= problem.budget * tolerance / 2 or price <= 0:
            break
        price, mean = _lower(problem, offers, market, active, step, price, int(missing * hurry), best)
        if not step:
            step = max(tolerance * mean / 2, 1e-300)
        run_auction(
            offers, problem.limits, market, np.flatnonzero(best > price).astype(np.int32), price, step
        )
        added = int(market.held.sum()) - n_held
        n_held += added
        if offers.values.size > LARGE:
            # bids that only replace others add nothing: ask for more next time, but rather too little
            hurry = min(max(0.8 * missing * hurry / max(added, 1), 1.0), MAX_HURRY)
    prices = _item_prices(market)
    return _Sale(_trim(problem, offers, market.held, prices), price, prices)


def _lower(
    problem: AllocationProblem,
    offers: Offers,
    market: Market,
    active: Bools,
    step: float,
    price: float,
    wanted: int,
    best: Doubles,  # (n_users,) filled with the highest value − item price of each user
) -> tuple[float, float]:
    """The price at which users would take `wanted` items beside those held, and the mean value of these."""
    for share in (0.9, 0.5, 0.0):  # offers below a first guess need not be looked at
        low, width = price * share, price * (1 - share) / N_BINS

        def count(users: slice, low: float = low, width: float = width) -> Longs:
            counts, span = np.zeros(N_BINS, np.int64), (users.start, users.stop)
            count_available(offers, problem.limits, market, active, span, step, (low, width), counts, best)
            return counts

        blocks = map_slices(count, problem.n_users, BLOCK * 4, problem.n_threads)
        counts = sum(blocks, np.zeros(N_BINS, np.int64))[::-1]
        above = np.cumsum(counts)
        if above[-1] >= wanted or low == 0:
            break
    best += np.where(best > 0, low, 0.0)
    at = min(int(np.searchsorted(above, wanted)), N_BINS - 1)
    middles = low + (np.arange(N_BINS, 0, -1) - 0.5) * width
    taken = counts[: at + 1]
    mean = float((taken * middles[: at + 1]).sum() / max(int(taken.sum()), 1))
    return low + (N_BINS - 1 - at) * width, mean


def _trim(problem: AllocationProblem, offers: Offers, held: Bools, prices: Doubles) -> Bools:
    """Leave out the offers that are worth the least if a few too many are held."""
    rows = np.flatnonzero(held)
    surplus = rows.size - problem.budget
    held = held.copy()
    if surplus > 0:
        worth = offers.values[rows] - prices[offers.items[rows]]
        held[rows[np.argsort(worth, kind="stable")[:surplus]]] = False
    return held


def _worth(problem: AllocationProblem, offers: Offers, price: float, item_prices: Doubles) -> Doubles:
    """(n_users,) what each user could get at these prices."""
    worth = np.empty(problem.n_users)

    def block(users: slice) -> None:
        rows = _block(offers, users)[0]
        price_users(rows, problem.limits, price, item_prices, N_NODES, worth[users])

    map_slices(block, problem.n_users, BLOCK, problem.n_threads)
    return worth


def _bound(problem: AllocationProblem, contacts: _Contacts, price: float, item_prices: Doubles) -> float:
    """The value that no solution exceeds."""
    total = contacts.surplus + (price * problem.budget if price > 0 else 0.0)
    if problem.stock is None:
        return total
    return total + float((item_prices * np.maximum(problem.stock, 0)).sum())


def _solve_market(problem: AllocationProblem, offers: Offers, positions: Ints) -> AllocationSolution:
    """Auctions among the users to contact, who are chosen at the mean of the prices so far."""
    market = _new_market(problem, offers)
    tolerance = COARSE if offers.values.size > LARGE else FINE
    mean_price, mean_prices = 0.0, np.zeros(problem.lists.gains.size)
    active = np.ones(problem.n_users, np.bool_)
    best: AllocationSolution | None = None
    bound = np.inf
    for turn in range(CONTACT_ROUNDS if problem.has_contacts else 1):
        if problem.has_contacts:
            contacts = _choose_contacts(problem, _worth(problem, offers, mean_price, mean_prices))
            bound = min(bound, _bound(problem, contacts, mean_price, mean_prices))
            active = contacts.contacted
        sale = _sell(problem, offers, market, active)
        held, value = _drop_losses(problem, offers, sale.held)
        contacts = _choose_contacts(problem, _worth(problem, offers, sale.price, sale.item_prices))
        bound = min(bound, _bound(problem, contacts, sale.price, sale.item_prices))
        if best is None or value > best.value:
            best = AllocationSolution(
                offers, positions, held, value, bound, sale.price, contacts.price, sale.item_prices
            )
        if bound - best.value <= tolerance * abs(bound):
            break
        mean_price += (sale.price - mean_price) / (turn + 1)
        mean_prices += (sale.item_prices - mean_prices) / (turn + 1)
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

        rows, columns, values = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        limits = np.concatenate(self.limits)
        matrix = csr_array((values, (rows, columns)), shape=(limits.size, costs.size))
        return milp(
            costs,
            integrality=np.ones(costs.size, np.int64),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, -np.inf, limits),
            options={"mip_rel_gap": FINE / 10, "node_limit": N_NODES},
        )


def _solve_exactly(problem: AllocationProblem, solution: AllocationSolution) -> AllocationSolution:
    """The better of a solution and that of branch and bound, with the lower of both bounds."""
    offers, n, n_users = solution.offers, solution.held.size, problem.n_users
    user, item, limits = np.repeat(np.arange(n_users), np.diff(offers.indptr)), offers.items, problem.limits
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
        program.add(contact, np.zeros(n_users, np.int64), float(min(problem.max_users, n_users)))
    shown = program.solve(np.append(-offers.values, np.full(n_users, problem.contact_cost)))
    bound, best = shown.mip_dual_bound, solution
    if shown.x is not None:
        held, value = _drop_losses(problem, offers, shown.x[:n] > 0.5)
        best = solution._replace(held=held, value=value) if value > solution.value else solution
    bound = solution.bound if bound is None or not np.isfinite(bound) else min(solution.bound, -float(bound))
    return best._replace(bound=max(bound, best.value))


def contact_worth(problem: AllocationProblem, solution: AllocationSolution) -> Doubles:
    """(n_users,) what each user's list could earn at the prices of items, before the cost of a contact."""
    return _worth(problem, solution.offers, solution.price, solution.item_prices)
