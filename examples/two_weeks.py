"""Two weeks in production: fit once, then observe, recommend, update and monitor day by day.

    python examples/two_weeks.py                          # generated data, seconds
    python examples/two_weeks.py --dataset online-retail  # real data, a minute; downloaded once

The last two weeks of the data are replayed. Every day the visitors get a list from what was known before,
then the day's purchases are observed. One guarantee keeps the threshold of the first day; another one is
updated every evening. The cells (# %%) open as a notebook in most editors.
"""

# %% Everything before the last two weeks is known; sl.fit keeps users back and tests the guarantee on them.
import argparse
from datetime import timedelta

import polars as pl

import shortlist as sl
from shortlist.core.charts import Figure, Series, line_chart

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--dataset", choices=["sample", "online-retail"], default="sample")
parser.add_argument("--picture", help="SVG file to write")
arguments = parser.parse_args()
levels = {"sample": 0.1, "online-retail": 0.2}
level = levels[arguments.dataset]

events = sl.load_dataset(arguments.dataset).to_frame()
end = events["timestamp"].max().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
start = end - timedelta(days=14)
known = sl.Interactions.from_frame(events.filter(pl.col("timestamp") < start))
guarantee = sl.cutoff.Guarantee(min_precision=level, confidence=0.9)
model = sl.fit(known, models="PersonalFrequency", budget="quick", cutoff=guarantee)
first = model.cutoff_
print(f"{model} on {known}")
print(f"guarantee: {first.guarantee_.split(', for the model')[0]}")

# %% Day by day: lists from what is known, then the purchases, then the evening's bookkeeping.
monitors = {"fixed": sl.GuaranteeMonitor.of(first), "updated": sl.GuaranteeMonitor.of(first)}
days, rates = [], {"fixed": [], "updated": []}
print("day         visitors  precision  covered  threshold   after update: precision  threshold")
for number in range(14):
    day = start + timedelta(days=number)
    bought = events.filter(pl.col("timestamp").is_between(day, day + timedelta(days=1), closed="left"))
    if bought.is_empty():
        continue  # the store is closed
    truth = sl.Interactions.from_frame(bought)
    visitors = [user for user in truth.users.values.to_list() if user in model.users_]
    fixed = model.recommend(visitors, at=day.isoformat(), cutoff=first)
    shown = model.recommend(visitors, at=day.isoformat())
    cut = model.cutoff_
    found = {"fixed": first.batch_rate(fixed, truth), "updated": first.batch_rate(shown, truth)}
    for name, lists in (("fixed", fixed), ("updated", shown)):
        monitors[name].update(lists, truth, at=f"{day:%Y-%m-%d}")
        rates[name].append(found[name])
    days.append(number + 1)
    model.set_cutoff(cut.update(shown, truth), model.selection_)
    model.observe(truth)
    fixed_rate, updated_rate = ("none" if rate is None else f"{rate:.3f}" for rate in found.values())
    print(
        f"{day:%Y-%m-%d}  {len(visitors):8}  {fixed_rate:>9}  {fixed.cover_ratio:7.0%}  "
        f"{first.threshold_:9.4f}   {updated_rate:>23}  {cut.threshold_:9.4f}"
    )

# %% What became of the guarantee.
for name, monitor in monitors.items():
    print(f"{name:8} {monitor.summary()}")
print(f"updated  {model.cutoff_.guarantee_}")

# %% The picture: precision of each day, with and without updates.
curves = [Series("guaranteed", days, [level] * len(days), 2, dotted=False)]
for style, (name, values) in enumerate(rates.items()):
    points = [(day, rate) for day, rate in zip(days, values, strict=True) if rate is not None]
    curves.append(Series(f"{name} threshold", *zip(*points, strict=True), style))
title = f"Precision of two weeks, guaranteed {level:.0%}"
chart = line_chart(title, f"day since {start:%Y-%m-%d}", "precision", curves)
figure = Figure(title, chart, tuple((one.name, one.style) for one in curves))
if arguments.picture:
    print(f"picture: {figure.save(arguments.picture)}")
