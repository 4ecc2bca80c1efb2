"""Daily papers: new candidates every morning, none of which has any readers yet.

    python examples/daily_papers.py

A preprint server announces new papers every weekday. Each has a text and no readers, so only its words can
rank it: `ContentProfile` compares them with the papers that a reader has read. Only the day's papers are
candidates: on some mornings ten papers suit a reader, on others none. The data is generated with a fixed
seed. `benchmarks/papers.py` does the same with real articles and readers. The cells (# %%) open as a notebook
in most editors.
"""

# %% The data: 50 weekdays of 15 to 60 papers, 300 readers with different interests and activity.
import argparse

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.core.charts import Figure, Series, line_chart
from shortlist.cutoff import ExpectedValue, FixedN

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--picture", help="SVG file to write")
arguments = parser.parse_args()

N_DAYS, N_READERS, N_FIELDS = 50, 300, 12
TRAIN_END, VALID_END = 30, 40  # train until day 30, choose on days 30 to 39, test on days 40 to 49
rng = np.random.default_rng(7)

per_day = rng.integers(15, 61, N_DAYS)
day_of = np.repeat(np.arange(N_DAYS), per_day)
topics = rng.dirichlet(np.full(N_FIELDS, 0.15), day_of.size)  # the share of each field in a paper
papers = np.array([f"d{day:02}.{number:03}" for number, day in enumerate(day_of)])
readers = np.array([f"r{number:03}" for number in range(N_READERS)])
texts = [
    " ".join(
        f"field{field}word{word}" for field, word in zip(rng.choice(N_FIELDS, 40, p=p), words, strict=True)
    )
    for p, words in zip(topics, rng.integers(20, size=(day_of.size, 40)), strict=True)
]
items = pl.DataFrame({"item_id": papers, "text": texts})

interests = rng.dirichlet(np.full(N_FIELDS, 0.2), N_READERS)
activity = rng.normal(-7.2, 1.2, N_READERS)
match = interests @ topics.T / np.linalg.norm(interests, axis=1)[:, None] / np.linalg.norm(topics, axis=1)
reads = rng.random(match.shape) < 1 / (1 + np.exp(-(activity[:, None] + 7 * match)))
per_reader = reads.sum() / N_READERS / N_DAYS
print(f"{papers.size} papers in {N_DAYS} days; a reader reads {per_reader:.2f} papers per day")
active = np.array([reads[:, day_of == day].any(axis=1).mean() for day in range(N_DAYS)])
print(f"on an average day {1 - active.mean():.0%} of the readers read nothing")


def reads_of(days: range) -> sl.Interactions:
    """Return what was read on these days."""
    pairs = zip(*np.nonzero(reads & np.isin(day_of, days)), strict=True)
    return sl.Interactions.from_tuples([(readers[u], papers[i]) for u, i in pairs])


# %% Fit once. Every morning: add the day's papers, recommend from them, and observe in the evening.
model = sl.ContentProfile().fit(reads_of(range(TRAIN_END)), items=items.filter(day_of < TRAIN_END))
mornings = {}
for day in range(TRAIN_END, N_DAYS):
    today = items.filter(day_of == day)
    model.add_items(today)
    mornings[day] = model.recommend(readers, candidates=today["item_id"], N=20)
    model.observe(reads_of(range(day, day + 1)))


# %% A cutoff is fitted on one list and one truth per id. For several days, use one id per reader and day.
def with_day(day: int, lists: sl.RankedLists) -> pl.DataFrame:
    return lists.to_frame().with_columns(pl.col("user_id") + f" on day {day}")


def truth_of(days: range) -> tuple[sl.Interactions, list[str]]:
    """Return what was read, and the ids of all readers and days, also of those who read nothing."""
    ids = [f"{reader} on day {day}" for day in days for reader in readers]
    rows = [
        (f"{readers[u]} on day {day_of[i]}", papers[i])
        for u, i in zip(*np.nonzero(reads & np.isin(day_of, days)), strict=True)
    ]
    return sl.Interactions.from_tuples(rows), ids


valid, valid_ids = truth_of(range(TRAIN_END, VALID_END))
candidates = sl.RankedLists.from_frame(
    pl.concat(with_day(day, mornings[day]) for day in range(TRAIN_END, VALID_END))
)

# %% A paper that is read gains 15 minutes; a paper that is not read costs two minutes of attention.
GAIN, COST = 15, 2


def minutes(lists: sl.RankedLists, truth: sl.Interactions, ids: list[str]) -> int:
    users = sl.evaluate(lists, truth, users=ids).users
    hits, shown = users["hits"].sum(), users["length"].sum()
    return GAIN * hits - COST * (shown - hits)


fixed = max(
    (FixedN(N=n) for n in range(21)), key=lambda cut: minutes(cut.apply(candidates), valid, valid_ids)
)
value = ExpectedValue(gain=GAIN, cost=COST, calibration="isotonic", n_candidates=20)
value.fit(candidates, valid, users=valid_ids)

# %% The test: ten mornings, over all readers and days.
print("                          papers per mail  minutes gained  useful  correct empty")
gained: dict[str, list[int]] = {}
for name, cut in {f"top {fixed.N} for all readers": fixed, "gain exceeds cost": value}.items():
    mails = {day: cut.apply(mornings[day]) for day in range(VALID_END, N_DAYS)}
    report = sl.evaluate_alerts((mail, reads_of(range(day, day + 1))) for day, mail in mails.items())
    gained[name] = [
        minutes(mail, reads_of(range(day, day + 1)), readers.tolist()) for day, mail in mails.items()
    ]
    empty = f"{report.correct_empty} of {report.empty}"
    print(
        f"{name:25} {report.messages / max(report.lists, 1):15.1f} {sum(gained[name]):15} "
        f"{report.useful_share:7.0%} {empty:>15}"
    )

# %% One reader's week: list lengths also depend on the day's candidates.
reader = readers[int(np.argmax(np.abs(activity + 7.2) < 0.05))]
for day in range(VALID_END, VALID_END + 5):
    mail = value.apply(mornings[day])[reader]
    print(f"day {day}, {per_day[day]} papers: {reader} gets {len(mail)} ({mail.reason})")

# %% The picture: minutes gained on each of the ten mornings.
days = list(range(VALID_END, N_DAYS))
curves = [Series(name, days, values, 1 - style) for style, (name, values) in enumerate(gained.items())]
title = "Minutes gained by 300 readers"
figure = Figure(
    title, line_chart(title, "day", "minutes", curves), tuple((one.name, one.style) for one in curves)
)
if arguments.picture:
    print(f"picture: {figure.save(arguments.picture)}")
