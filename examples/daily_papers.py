"""Daily papers: new candidates every morning, none of which has any readers yet.

    python examples/daily_papers.py

A preprint server announces new papers every weekday. Each has a text (here: its share of each of twelve
fields) and no readers, so it is ranked by its text; a reader's vector is the mean of the papers read so far.
Only the day's papers are candidates: on some mornings ten papers suit a reader, on others none. The data is
generated with a fixed seed. The cells (# %%) open as a notebook in most editors.
"""

# %% The data: 50 weekdays of 15 to 60 papers, 300 readers with different interests and activity.
import numpy as np
import polars as pl

import shortlist as sl
from shortlist.cutoff import Cutoff, ExpectedValue, FixedN

N_DAYS, N_READERS, N_FIELDS = 50, 300, 12
TRAIN_END, VALID_END = 30, 40  # train until day 30, choose on days 30 to 39, test on days 40 to 49
rng = np.random.default_rng(7)

per_day = rng.integers(15, 61, N_DAYS)
day_of = np.repeat(np.arange(N_DAYS), per_day)
texts = rng.dirichlet(np.full(N_FIELDS, 0.15), day_of.size)
papers = np.array([f"d{day:02}.{number:03}" for number, day in enumerate(day_of)])
readers = np.array([f"r{number:03}" for number in range(N_READERS)])

interests = rng.dirichlet(np.full(N_FIELDS, 0.2), N_READERS)
activity = rng.normal(-7.2, 1.2, N_READERS)
match = interests @ texts.T / np.linalg.norm(interests, axis=1)[:, None] / np.linalg.norm(texts, axis=1)
reads = rng.random(match.shape) < 1 / (1 + np.exp(-(activity[:, None] + 7 * match)))
per_reader = reads.sum() / N_READERS / N_DAYS
print(f"{papers.size} papers in {N_DAYS} days; a reader reads {per_reader:.2f} papers per day")
active = np.array([reads[:, day_of == day].any(axis=1).mean() for day in range(N_DAYS)])
print(f"on an average day {1 - active.mean():.0%} of the readers read nothing")


# %% One morning: a reader's vector is the mean text of the papers read so far; the score is the cosine.
def recommend(
    day: int, users: list[str] | None = None, *, N: int | None = None, cutoff: Cutoff | str = "auto"
) -> sl.RankedLists:
    """Recommend from the day's papers only; readers without any reads score 0 everywhere."""
    earlier = day_of < day
    vectors = reads[:, earlier] @ texts[earlier]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    unit = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    history = sl.Interactions.from_csr(reads * earlier, readers, papers)  # new papers are empty columns
    model = sl.PrecomputedScores(scores=(vectors, unit)).fit(history)
    return model.recommend(users, candidates=papers[day_of == day], N=N, cutoff=cutoff)


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
test, test_ids = truth_of(range(VALID_END, N_DAYS))
candidates = sl.RankedLists.from_frame(
    pl.concat(with_day(day, recommend(day, N=20)) for day in range(TRAIN_END, VALID_END))
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
print("                          papers per mail  minutes gained  mornings without a mail")
for name, cut in {f"top {fixed.N} for all readers": fixed, "gain exceeds cost": value}.items():
    tables = [with_day(day, recommend(day, cutoff=cut)) for day in range(VALID_END, N_DAYS)]
    lists = sl.RankedLists.from_frame(pl.concat(tables))
    sent = lists.lengths[lists.lengths > 0]
    empty = 1 - lists.cover_ratio
    print(f"{name:25} {sent.mean():15.1f} {minutes(lists, test, test_ids):15} {empty:24.0%}")

# %% One reader's week: list lengths also depend on the day's candidates.
reader = readers[int(np.argmax(np.abs(activity + 7.2) < 0.05))]
for day in range(VALID_END, VALID_END + 5):
    mail = recommend(day, [reader], cutoff=value)[reader]
    print(f"day {day}, {per_day[day]} papers: {reader} gets {len(mail)} ({mail.reason})")
