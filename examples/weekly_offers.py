"""A weekly mailing with a budget: margins, stock and product families of Online Retail.

    python examples/weekly_offers.py

A shop prints offers for its customers, two for each on average. Which customer gets which offer? Prices,
quantities and names come from the published file. Two things are not in it and are assumed here: a margin of
30%, and that the stock of an item is what is sold of it in four weeks. The cells (# %%) open as a notebook in
most editors.
"""

# %% What was sold, and what every customer bought at the last visit, which is the test.
import tempfile
from pathlib import Path

import polars as pl

import shortlist as sl
from shortlist.data.datasets import fetch_originals

MARGIN, COST = 0.3, 0.05
data = sl.load_dataset("online-retail")
split = sl.split.last_basket(data)
with tempfile.TemporaryDirectory() as folder:
    path = fetch_originals("online-retail", Path(folder)) / "lines.csv"
    lines = pl.read_csv(path, encoding="utf8-lossy", infer_schema=False)

# %% One row per item: the margin of a purchase, the stock, and the family: the last word of the name.
sold = lines.select(
    item_id="StockCode",
    item_name=pl.col("Description").str.strip_chars(),
    price=pl.col("UnitPrice").cast(pl.Float64, strict=False),
    quantity=pl.col("Quantity").cast(pl.Float64, strict=False),
).filter(pl.col("price") > 0, pl.col("quantity") > 0)
items = sold.group_by("item_id", maintain_order=True).agg(
    pl.col("item_name").drop_nulls().first(),
    margin=MARGIN * (pl.col("price") * pl.col("quantity")).median(),
    stock=(pl.col("quantity").sum() / 13 / pl.col("quantity").median()).ceil(),  # purchases in four weeks
    family=pl.col("item_name").drop_nulls().first().str.split(" ").list.last(),
)
items = items.filter(pl.col("item_id").is_in(data.items.values.implode()))
print(f"{items.height:,} items; half of the purchases earn more than {items['margin'].median():.2f}")

# %% Any model with calibrated probabilities. The cutoff is fitted on the visit before the last one.
# Offers are for customers who visit the shop.
cutoff = sl.cutoff.ExpectedValue(cost=COST)
model = sl.fit(split.train_valid, models="PersonalFrequency", cutoff=cutoff, users="buyers")
customers = split.test.users.to_ids(split.test.active_users)
budget = 2 * len(customers)


# %% What offers really earned: the margins of the purchases of the last visit less the cost of all offers.
def earned(lists: sl.RankedLists) -> float:
    shown = lists.to_frame().filter(pl.col("rank") > 0).select("user_id", "item_id")
    bought = shown.join(split.test.to_frame().select("user_id", "item_id").unique(), ["user_id", "item_id"])
    return bought.join(items, "item_id")["margin"].sum() - COST * shown.height


# %% The same number for everyone, and the allocation within stock and two offers per family.
money = {"gain": "margin", "cost": COST, "items": items}
candidates = model.candidates(customers)
allocation = sl.allocate(candidates, budget=budget, **money)
limited = sl.allocate(
    candidates, budget=budget, item_limits="stock", max_per_group={"family": 2}, max_items=8, **money
)
rows = [
    ("2 for everyone", model.recommend(customers, N=2), allocation.same_for_all.value),
    ("allocation", allocation.lists, allocation.expected_value),
    ("with stock, families and length", limited.lists, limited.expected_value),
]
print(f"{'':32}offers  customers  expected  really earned")
for name, lists, expected in rows:
    n_customers = int((lists.lengths > 0).sum())
    print(f"{name:32}{lists.items.size:6} {n_customers:10} {expected:9.0f} {earned(lists):14.0f}")

# %% What the limits cost, and which item is missed most.
for limit, _, cost in limited.limit_costs.rows():
    print(f"without {limit} it would earn {cost:.0f} more")
scarce = limited.prices.stock.join(items, "item_id").row(0, named=True)
print(f"one more {scarce['item_name']} would earn {scarce['price']:.2f} ({scarce['limit']} in stock)")

# %% One customer's offers and the reason why there are no more.
longest = max(limited.lists, key=len)
names = dict(zip(items["item_id"], items["item_name"], strict=True))
first = ", ".join(names[item].lower() for item in longest.items[:3])
print(f"customer {longest.user_id}: {len(longest)} offers, first {first} ({longest.reason})")
