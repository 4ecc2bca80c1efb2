"""evaluate_alerts: lists that are sent day by day, from candidates that change every day."""

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError


class AlertReport(NamedTuple):
    """What a sender of alerts wants to know; a request is one user on one day.

    Parameters
    ----------
    n_requests
        Users times days, whether something was sent or not.
    messages
        Items sent.
    useful
        Items sent that the user interacted with.
    relevant
        Items of the candidates' days that users interacted with.
    lists
        Requests with at least one item.
    useless_lists
        Lists sent on a day without any relevant item: each is a mistake.
    silent
        Requests without a list.
    right_silences
        Requests without a list and without a relevant item.
    f1
        Mean F1 over all requests; a silent request without a relevant item counts 1, any other mistake 0.
    """

    n_requests: int
    messages: int
    useful: int
    relevant: int
    lists: int
    useless_lists: int
    silent: int
    right_silences: int
    f1: float

    @property
    def useful_share(self) -> float:
        """Useful messages among all messages; 0 if none was sent."""
        return self.useful / max(self.messages, 1)


def evaluate_alerts(days: Iterable[tuple[RankedLists, Interactions]]) -> AlertReport:
    """Evaluate lists over (user, day) requests, days without any relevant item included.

    Parameters
    ----------
    days
        One pair per day: the lists of everybody who could get one, empty lists included, and the interactions
        of that day with that day's candidates.

    Returns
    -------
    AlertReport

    Raises
    ------
    DataError
        If there are no days.

    Examples
    --------
    >>> import polars as pl
    >>> lists = sl.RankedLists.from_frame(pl.DataFrame({"user_id": ["ann", "bob"], "item_id": ["a", "b"]}))
    >>> truth = sl.Interactions.from_tuples([("ann", "a")])
    >>> report = sl.evaluate_alerts([(lists, truth)])
    >>> report.messages, report.useful, report.useless_lists
    (2, 1, 1)
    """
    tables = [_requests(lists, truth) for lists, truth in days]
    if not tables:
        raise DataError("days must hold at least one pair of lists and truth, got none.")
    found = pl.concat(tables)
    sent, wanted, hits = pl.col("sent"), pl.col("wanted"), pl.col("hits")
    silent = sent == 0
    quiet = silent & (wanted == 0)
    f1 = pl.when(quiet).then(1.0).otherwise(2 * hits / (sent + wanted).clip(1))
    row = found.select(
        n_requests=pl.len(),
        messages=sent.sum(),
        useful=hits.sum(),
        relevant=wanted.sum(),
        lists=(~silent).sum(),
        useless_lists=(~silent & (wanted == 0)).sum(),
        silent=silent.sum(),
        right_silences=quiet.sum(),
        f1=f1.mean(),
    ).row(0, named=True)
    return AlertReport(**row)


def _requests(lists: RankedLists, truth: Interactions) -> pl.DataFrame:
    """One row per list: items sent, relevant items, and those of both."""
    indptr, _ = truth.item_sets
    wanted = pl.DataFrame({"user": truth.users.values, "wanted": indptr[1:] - indptr[:-1]})
    pairs = truth.to_frame().select(pl.col("user_id").alias("user"), pl.col("item_id").alias("item")).unique()
    numbers = [n for n, length in enumerate(lists.lengths.tolist()) for _ in range(length)]
    users = lists.users.values
    shown = pl.DataFrame({"user": users.gather(numbers), "item": lists.item_ids.to_ids(lists.items)}).join(
        pairs.cast({"user": users.dtype, "item": lists.item_ids.values.dtype}), on=["user", "item"]
    )
    hits = shown.group_by("user").agg(hits=pl.len().cast(pl.Int64))
    table = pl.DataFrame({"user": users, "sent": lists.lengths}).with_columns(pl.col("sent").cast(pl.Int64))
    table = table.join(wanted.cast({"user": users.dtype}), on="user", how="left").join(
        hits, on="user", how="left"
    )
    return table.select(pl.col("sent", "wanted", "hits").fill_null(0).cast(pl.Int64))
