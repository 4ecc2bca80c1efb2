"""Daily papers: every morning other candidates, none of which anybody has read yet.

    python examples/daily_papers.py

A preprint server announces new papers every weekday. Each has a text (here: how much it is about each of
twelve fields) and no readers yet, so it is ranked by its text; what a reader has read becomes the reader's
vector. Candidates are the day's papers alone: some mornings hold ten papers for somebody, some none. The
stream is made up, with a fixed seed. The cells (# %%) open as a notebook in most editors.
"""

# %% The stream: 50 weekdays of 15 to 60 papers, 300 readers with a few fields and an appetite of their own.
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.cutoff import ExpectedValue, FixedN

N_DAYS, N_READERS, N_FIELDS = 50, 300, 12
LEARN, CHOOSE = 30, 40  # read until day 30, choose on days 30 to 39, judge on days 40 to 49
rng = np.random.default_rng(7)

per_day = rng.integers(15, 61, N_DAYS)
day_of = np.repeat(np.arange(N_DAYS), per_day)
texts = rng.dirichlet(np.full(N_FIELDS, 0.15), day_of.size)
papers = np.array([f"d{day:02}.{number:03}" for number, day in enumerate(day_of)])
readers = np.array([f"r{number:03}" for number in range(N_READERS)])

tastes = rng.dirichlet(np.full(N_FIELDS, 0.2), N_READERS)
appetite = rng.normal(-7.2, 1.2, N_READERS)
likes = tastes @ texts.T / np.linalg.norm(tastes, axis=1)[:, None] / np.linalg.norm(texts, axis=1)
reads = rng.random(likes.shape) < 1 / (1 + np.exp(-(appetite[:, None] + 7 * likes)))
print(f"{papers.size} papers in {N_DAYS} days; a reader reads {reads.sum() / N_READERS / N_DAYS:.2f} a day")
on_a_day = np.array([reads[:, day_of == day].any(axis=1).mean() for day in range(N_DAYS)])
print(f"on an average day {1 - on_a_day.mean():.0%} of the readers read nothing")


# %% A morning: a reader's vector is the mean text of what was read before, the score its cosine with a paper.
def morning(day: int, **wishes: Any) -> sl.RankedLists:
    """Lists from the day's papers alone; readers who have read nothing yet score 0 everywhere."""
    past = day_of < day
    vectors = reads[:, past] @ texts[past]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    unit = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    known = sl.Interactions.from_csr(reads * past, readers, papers)  # new papers are columns without readers
    ranker = sl.PrecomputedScores(scores=(vectors, unit)).fit(known)
    return ranker.recommend(candidates=papers[day_of == day], **wishes)


# %% A cutoff learns from one list and one truth per reader. Several days: one name per reader and day.
def dated(day: int, lists: sl.RankedLists) -> pl.DataFrame:
    return lists.to_frame().with_columns(pl.col("user_id") + f" on day {day}")


def read_on(days: range) -> sl.Interactions:
    """What was read, and one row more per reader and day: whoever has no row in the truth is not counted."""
    rows = []
    for day in days:
        names = [f"{reader} on day {day}" for reader in readers]
        rows += [(name, "(nothing)") for name in names]
        rows += [(names[u], papers[i]) for u, i in zip(*np.nonzero(reads * (day_of == day)), strict=True)]
    return sl.Interactions.from_tuples(rows)


chosen_on, judged_on = read_on(range(LEARN, CHOOSE)), read_on(range(CHOOSE, N_DAYS))
heads = sl.RankedLists.from_frame(pl.concat(dated(day, morning(day, N=20)) for day in range(LEARN, CHOOSE)))

# %% A paper that is read is worth a quarter of an hour; one that is not costs two minutes of looking at it.
GAIN, COST = 15, 2


def minutes(lists: sl.RankedLists, truth: sl.Interactions) -> int:
    users = sl.evaluate(lists, truth).users
    hits, shown = users["hits"].sum(), users["length"].sum()
    return GAIN * hits - COST * (shown - hits)


fixed = max((FixedN(N=n) for n in range(21)), key=lambda cut: minutes(cut.apply(heads), chosen_on))
value = ExpectedValue(gain=GAIN, cost=COST, calibration="isotonic", n_candidates=20).fit(heads, chosen_on)

# %% Ten mornings, judged over all readers and days.
print("                          papers a mail  minutes won  mornings without a mail")
for name, cut in {f"top {fixed.N} for everybody": fixed, "worth more than it costs": value}.items():
    tables = [dated(day, morning(day, cutoff=cut)) for day in range(CHOOSE, N_DAYS)]
    lists = sl.RankedLists.from_frame(pl.concat(tables))
    sent = lists.lengths[lists.lengths > 0]
    silent = 1 - lists.cover_ratio
    print(f"{name:25} {sent.mean():13.1f} {minutes(lists, judged_on):12} {silent:24.0%}")

# %% One reader's week: the candidates decide, too.
reader = readers[int(np.argmax(np.abs(appetite + 7.2) < 0.05))]
for day in range(CHOOSE, CHOOSE + 5):
    mail = morning(day, users=[reader], cutoff=value)[reader]
    print(f"day {day}, {per_day[day]} papers: {reader} gets {len(mail)} ({mail.reason})")
