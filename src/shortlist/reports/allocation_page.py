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

LONGEST = 20  # of the chart of lengths
VOLUMES = (0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0)  # of the curves, relative to the allocation
N_SCARCE = 12  # items in the table of scarce items
FAR = 0.15  # between expected and real, from which on the page says what to check
LIMITS = {
    "budget": "the total number of items",
    "max_users": "the number of users to contact",
    "max_items": "the length of a list",
    "item_limits": "the limits per item, such as the stock",
    "max_per_group": "the limits per list and group",
}


class RealOutcome(NamedTuple):
    """What happened to the users of an allocation, against the same number of items for everyone."""

    hits: float
    hits_same: float
    value: float
    value_same: float
    test: PairedTest  # of the hits per user
    n_active: int  # users with any interaction in the test set

    @classmethod
    def measure(cls, allocation: Allocation, truth: Interactions) -> "RealOutcome":
        """Count what users took of the shown items; a user who is not in the test set took nothing."""
        lists, problem = allocation.lists, allocation.problem
        candidates, cost = problem.lists, problem.lists.cost
        every = RankedLists(
            users=lists.users,
            item_ids=lists.item_ids,
            indptr=candidates.indptr,
            items=candidates.items,
            scores=np.zeros(candidates.items.size, np.float32),
        )
        labels = label_lists(lists, truth)
        ours, same = labels.relevant, label_lists(every, truth).relevant
        # the last item is for some users only
        weight = np.clip(allocation.same_for_all.N - every.positions, 0.0, 1.0)
        hits = sum_rows(lists.indptr, ours).astype(np.float64)
        hits_same = sum_rows(every.indptr, same * weight)
        contacts = np.array([allocation.n_users, weight[every.positions == 0].sum()]) * problem.contact_cost
        earned = (ours * candidates.gains[lists.items] - cost).sum() - contacts[0]
        earned_same = ((same * candidates.gains[candidates.items] - cost) * weight).sum() - contacts[1]
        return cls(
            float(hits.sum()),
            float(hits_same.sum()),
            float(earned),
            float(earned_same),
            paired_test(hits, hits_same),
            int((labels.n_relevant > 0).sum()),
        )


def has_money(allocation: Allocation) -> bool:
    """Whether value is something else than the number of hits."""
    lists = allocation.problem.lists
    plain = (lists.gains[np.unique(lists.items)] == 1).all() and not lists.cost
    return not (plain and not allocation.problem.contact_cost)


def allocation_headline(allocation: Allocation, real: RealOutcome | None = None) -> str:
    """What the allocation brought, or what it is expected to bring if that is not known, in one sentence."""
    if allocation.n_items == 0:
        return "No item is worth its cost, so no list has any."
    same, money = allocation.same_for_all, has_money(allocation)
    pair = (allocation.expected_value, same.value) if money else (allocation.expected_hits, same.hits)
    change, than = _compare(*pair, money=money)
    verb, expected = "earn" if money else "reach", ""
    if real is not None:
        verb, expected = "earned" if money else "reached", f" (expected: {change})"
        pair = (real.value, real.value_same) if money else (real.hits, real.hits_same)
        change, than = _compare(*pair, money=money)
    fixed = f"{same.N:.0f}" if abs(same.N - round(same.N)) < 0.05 else f"{same.N:.1f}"
    return f"The same {allocation.n_items:,} items {verb} {change} {than} {fixed} for everyone{expected}."


def _compare(ours: float, theirs: float, *, money: bool) -> tuple[str, str]:
    """The change from theirs to ours in words, and the word before what is compared with."""
    what = "" if money else " purchases"
    if theirs <= 0:  # no share of it is a gain
        return f"{ours:,.0f}{what} instead of {theirs:,.0f}", "with"
    share = abs(ours / theirs - 1)
    change = f"{share:.0%}" if share >= 0.005 else f"{share:.1%}"
    return f"{change} {'more' if ours >= theirs else 'less' if money else 'fewer'}{what}", "than"


def render_allocation_report(allocation: Allocation, name: str, real: RealOutcome | None = None) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    curve = measure_volumes(allocation.problem, [step * max(allocation.n_items, 1) for step in VOLUMES])
    return render(
        "allocation.html.j2",
        allocation=allocation,
        headline=allocation_headline(allocation, real),
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
        **({} if real is None else _compare_real(allocation, real)),
    )


def _compare_real(allocation: Allocation, real: RealOutcome) -> dict[str, Any]:
    """Expected and real figures of both ways, and the interval of the difference over all users."""
    same, n = allocation.same_for_all, len(allocation.lists)
    rows = [
        ("purchases, allocation", allocation.expected_hits, real.hits),
        ("purchases, the same for everyone", same.hits, real.hits_same),
    ]
    if has_money(allocation):
        rows += [
            ("value, allocation", allocation.expected_value, real.value),
            ("value, the same for everyone", same.value, real.value_same),
        ]
    gain = {name: getattr(real.test, name) * n for name in ("difference", "low", "high")}
    is_far = abs(real.hits / max(allocation.expected_hits, 1e-9) - 1) > FAR
    return {"real_rows": rows, "gain": gain, "far": is_far}


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
    prices = {"budget": allocation.prices.item, "max_users": allocation.prices.contact}
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
