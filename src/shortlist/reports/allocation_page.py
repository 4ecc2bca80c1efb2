"""The report of an allocation as one HTML page: what it brings against the same number for everyone."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.core.charts import Mark, Series, legend, length_chart, line_chart
from shortlist.cutoff.allocation import Allocation, measure_volumes
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import REASON_TEXT, RankedLists
from shortlist.evaluation.significance import PairedTest, paired_test
from shortlist.kernels.rows import sum_rows
from shortlist.reports.page import render
from shortlist.types import Doubles

LONGEST = 20  # of the chart of lengths
VOLUMES = (0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0)  # of the curves, relative to the allocation
N_SCARCE = 12  # items in the table of scarce items
FAR = 0.15  # between expected and real, from which on the page says what to check
LIMITS = {
    "budget": "the total number of items",
    "contacts": "the number of users to contact",
    "max_items": "the length of a list",
    "item_limits": "the limits per item, such as the stock",
    "max_per_group": "the limits per list and group",
}


class Outcome(NamedTuple):
    """Hits and value of one way to spend the volume, expected or measured."""

    hits: float
    value: float
    per_user: Doubles  # (n_users,) hits

    def amount(self, *, money: bool) -> float:
        """The value, or the hits where nothing has a price."""
        return self.value if money else self.hits


class Strategy(NamedTuple):
    """One way to spend the volume: an item counts by its weight, the last one for some users only."""

    name: str
    lists: RankedLists
    weight: Doubles  # (n_shown,)

    def outcome(self, allocation: Allocation, taken: Doubles) -> Outcome:
        """The outcome if items (n_shown,) are taken with these probabilities."""
        problem, lists = allocation.problem, self.lists
        gains, cost = problem.lists.gains[lists.items], problem.lists.cost
        hits = sum_rows(lists.indptr, taken * self.weight).astype(np.float64)
        n_contacts = float(self.weight[lists.positions == 0].sum())
        value = float(((taken * gains - cost) * self.weight).sum()) - problem.contact_cost * n_contacts
        return Outcome(float(hits.sum()), value, hits)

    def expected(self, allocation: Allocation) -> Outcome:
        """The outcome by the probabilities of the candidates; 0 for an item that is none."""
        p = self.lists.probabilities
        assert p is not None
        return self.outcome(allocation, p)

    def measured(self, allocation: Allocation, truth: Interactions) -> Outcome:
        """What users took; a user who is not in the test set took nothing."""
        return self.outcome(allocation, label_lists(self.lists, truth).relevant.astype(np.float64))


def list_strategies(allocation: Allocation, history: Interactions | None) -> list[Strategy]:
    """The allocation, and the same volume spent in the usual ways."""
    ours = allocation.lists
    every = candidate_lists(allocation)
    weight = np.clip(allocation.same_for_all.N - every.positions, 0.0, 1.0)
    fixed = allocation.same_for_all.N
    name = f"{fixed:.0f}" if abs(fixed - round(fixed)) < 0.05 else f"{fixed:.1f}"
    strategies = [
        Strategy("allocation", ours, np.ones(ours.items.size)),
        Strategy(f"{name} for everyone", every, weight),
    ]
    if history is not None and allocation.n_items:
        often, name = most_often_bought(allocation, history), "what was bought most often, latest first"
        strategies.append(Strategy(name, often, np.ones(often.items.size)))
    return strategies


def candidate_lists(allocation: Allocation) -> RankedLists:
    """All candidates of all users, in the order of the ranking."""
    candidates = allocation.problem.lists
    return RankedLists(
        users=allocation.lists.users,
        item_ids=allocation.lists.item_ids,
        indptr=candidates.indptr,
        items=candidates.items,
        scores=np.zeros(candidates.items.size, np.float32),
        probabilities=candidates.probabilities,
    )


def most_often_bought(allocation: Allocation, history: Interactions) -> RankedLists:
    """The pairs of user and item that were bought most often, latest first, within the same volume.

    As many items and contacts as the allocation has, and no longer lists. Ties are broken by ids.
    """
    ids, lists = ["user_id", "item_id"], allocation.lists
    latest = [pl.col("timestamp").max()] if history.time is not None else []
    known = pl.col("user_id").is_in(lists.users.values.implode())
    known &= pl.col("item_id").is_in(lists.item_ids.values.implode())
    pairs = history.to_frame().filter(known).group_by(ids).agg(pl.len().alias("n"), *latest)
    keys = ["n", "timestamp"] if latest else ["n"]
    pairs = pairs.sort([*keys, *ids], descending=[True] * len(keys) + [False, False])
    pairs = pairs.filter(pl.int_range(pl.len()).over("user_id") < allocation.problem.limits.max_items)
    contacted = pairs["user_id"].unique(maintain_order=True).head(allocation.n_users)
    pairs = pairs.filter(pl.col("user_id").is_in(contacted.implode())).head(allocation.n_items)
    every = candidate_lists(allocation).take(lists.users.lookup(contacted))
    p = pl.DataFrame(
        {
            "user_id": every.users.to_ids(every.owner),
            "item_id": every.item_ids.to_ids(every.items),
            "probability": every.probabilities,
        }
    )
    pairs = pairs.join(p, ids, how="left", maintain_order="left")
    pairs = pairs.with_columns(pl.col("probability").fill_null(0.0), rank=pl.int_range(pl.len()) + 1)
    return RankedLists.from_frame(pairs.select(*ids, "rank", "probability"), lists.item_ids)


class RealOutcome(NamedTuple):
    """What happened to the users of an allocation, against the same volume spent in the usual ways."""

    outcomes: list[Outcome]  # of the allocation and each other strategy
    tests: list[PairedTest]  # of the hits per user against each other strategy
    n_active: int  # users with any interaction in the test set

    @classmethod
    def measure(
        cls, allocation: Allocation, truth: Interactions, strategies: list[Strategy]
    ) -> "RealOutcome":
        """Count what users took of the shown items."""
        outcomes = [strategy.measured(allocation, truth) for strategy in strategies]
        per_user = []
        for strategy, outcome in zip(strategies, outcomes, strict=True):
            hits = np.zeros(len(allocation.lists))
            hits[allocation.lists.users.align(strategy.lists.users)] = outcome.per_user
            per_user.append(hits)
        n_relevant = label_lists(allocation.lists, truth).n_relevant
        tests = [paired_test(per_user[0], other) for other in per_user[1:]]
        return cls(outcomes, tests, int((n_relevant > 0).sum()))


def has_money(allocation: Allocation) -> bool:
    """Whether value is something else than the number of hits."""
    lists = allocation.problem.lists
    plain = (lists.gains[np.unique(lists.items)] == 1).all() and not lists.cost
    return not (plain and not allocation.problem.contact_cost)


def allocation_headline(
    allocation: Allocation, strategies: list[Strategy], real: RealOutcome | None = None
) -> str:
    """What the allocation brings against the usual ways, measured or expected, in one sentence."""
    if allocation.n_items == 0:
        return "No item is worth its cost, so no list has any."
    money = has_money(allocation)
    expected = [strategy.expected(allocation) for strategy in strategies]
    names = [strategy.name for strategy in strategies[1:]]
    outcomes = expected if real is None else real.outcomes
    verb = ("earn" if money else "reach") + ("" if real is None else "ed")
    kind = "Expected" if real is None else "Measured"
    doubt = "" if real is None else f" (expected: {_compare_all(expected, names, money=money)})"
    compared = _compare_all(outcomes, names, money=money)
    return f"{kind}: the same {allocation.n_items:,} items {verb} {compared}{doubt}."


def _compare_all(outcomes: list[Outcome], names: list[str], *, money: bool) -> str:
    """The change from each other strategy to the allocation, in words."""
    ours, *others = (outcome.amount(money=money) for outcome in outcomes)
    return " and ".join(
        f"{_compare(ours, other, money=money)} {name}" for other, name in zip(others, names, strict=True)
    )


def _compare(ours: float, theirs: float, *, money: bool) -> str:
    """The change from theirs to ours in words, with the word before what is compared with."""
    what = "" if money else " purchases"
    if theirs <= 0:  # no share of it is a gain
        return f"{ours:,.0f}{what} instead of {theirs:,.0f} with"
    share = abs(ours / theirs - 1)
    change = f"{share:.0%}" if share >= 0.005 else f"{share:.1%}"
    return f"{change} {'more' if ours >= theirs else 'less' if money else 'fewer'}{what} than"


def render_allocation_report(
    allocation: Allocation,
    name: str,
    strategies: list[Strategy],
    real: RealOutcome | None = None,
) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    expected = [strategy.expected(allocation) for strategy in strategies]
    curve = measure_volumes(allocation.problem, [step * max(allocation.n_items, 1) for step in VOLUMES])
    return render(
        "allocation.html.j2",
        allocation=allocation,
        headline=allocation_headline(allocation, strategies, real),
        rows=_compare_rows(allocation, strategies, expected, real),
        money=has_money(allocation),
        same=allocation.same_for_all,
        name=name,
        today=datetime.now(UTC).date().isoformat(),
        version=sl.__version__,
        hits=_volume_chart(allocation, curve, "hits", "expected purchases"),
        value=_volume_chart(allocation, curve, "value", "expected value") if has_money(allocation) else "",
        lengths=_length_figure(allocation),
        reasons=_reasons(allocation),
        limits=_limits(allocation),
        scarce=_scarce(allocation),
        real=real,
        far=real is not None and _is_far(expected[0].hits, real.outcomes[0].hits),
    )


def _compare_rows(
    allocation: Allocation,
    strategies: list[Strategy],
    expected: list[Outcome],
    real: RealOutcome | None,
) -> list[dict[str, Any]]:
    """One row per strategy: volume, expected and measured figures, and the interval of the difference."""
    rows = []
    for number, (strategy, outcome) in enumerate(zip(strategies, expected, strict=True)):
        n_contacts = strategy.weight[strategy.lists.positions == 0].sum()
        row = {"name": strategy.name, "expected": outcome, "items": strategy.weight.sum()}
        row |= {"contacts": n_contacts, "real": None, "gain": None}
        if real is not None:
            row["real"] = real.outcomes[number]
        if real is not None and number:
            test, n = real.tests[number - 1], len(allocation.lists)
            row["gain"] = {name: getattr(test, name) * n for name in ("difference", "low", "high")}
        rows.append(row)
    return rows


def _is_far(expected: float, measured: float) -> bool:
    return abs(measured / max(expected, 1e-9) - 1) > FAR


def _volume_chart(allocation: Allocation, curve: pl.DataFrame, column: str, label: str) -> str:
    """Hits or value of both ways against the number of items."""
    now = {"hits": allocation.expected_hits, "value": allocation.expected_value}[column]
    ours = {0.0: 0.0, float(allocation.n_items): now}
    ours |= dict(zip(curve["n_items"].cast(pl.Float64).to_list(), curve[column].to_list(), strict=True))
    volumes = [step * allocation.n_items for step in VOLUMES]
    chart = line_chart(
        f"{label[0].upper()}{label[1:]} against volume",
        "items shown",
        label,
        [
            Series("allocation", sorted(ours), [ours[volume] for volume in sorted(ours)], 0),
            Series("the same for everyone", [0.0, *volumes], [0.0, *curve[f"{column}_same"].to_list()], 1),
        ],
        marks=[Mark(float(allocation.n_items), now, f"this allocation: {now:,.0f}")],
    )
    return chart + legend([("allocation", 0), ("the same number for everyone", 1)])


def _length_figure(allocation: Allocation) -> str:
    lengths = allocation.lists.lengths
    longest = min(LONGEST, int(lengths.max(initial=1)))
    counts = np.bincount(np.minimum(lengths, longest + 1), minlength=longest + 2)
    fixed = allocation.same_for_all.N
    mark = (float(min(fixed, longest + 1)), f"the same for everyone: {fixed:.1f}")
    return length_chart("Items per user", counts.tolist(), 0, mark=mark)


def _reasons(allocation: Allocation) -> list[dict[str, Any]]:
    """Why lists end, most frequent first."""
    table = allocation.lists.summary()["reason"].value_counts(sort=True)
    return [
        {"text": REASON_TEXT[reason], "users": n, "share": n / max(len(allocation.lists), 1)}
        for reason, n in table.rows()
    ]


def _limits(allocation: Allocation) -> list[dict[str, Any]]:
    """What each limit costs, and what a little more of it would earn."""
    prices = {"budget": allocation.prices.item, "contacts": allocation.prices.contact}
    return [
        {"name": LIMITS[limit], "value": value, "cost": cost, "price": prices.get(limit)}
        for limit, value, cost in allocation.limit_costs.rows()
    ]


def _scarce(allocation: Allocation) -> list[dict[str, Any]]:
    """The items of which one more unit would earn most."""
    lists, table = allocation.lists, allocation.prices.stock.head(N_SCARCE)
    at = lists.item_ids.lookup(table["item_id"])
    names = table["item_id"].cast(pl.String) if lists.item_names is None else lists.item_names.gather(at)
    return [
        {"name": name, "limit": limit, "price": price}
        for name, limit, price in zip(names, table["limit"], table["price"], strict=True)
    ]
