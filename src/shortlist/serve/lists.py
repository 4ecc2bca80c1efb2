"""Computes the lists of many requests at once and turns them into JSON."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.data.id_map import IdMap
from shortlist.data.ranked_lists import RankedLists
from shortlist.data.reasons import REASON_TEXT
from shortlist.serve.deployment import Served

Reasons = dict[Any, tuple[float | None, list[Any]]]  # probability and contributions by item id


@dataclass(frozen=True)
class ListJob:
    """One request for lists, with ids in the type of the model."""

    served: Served
    users: tuple[Any, ...] | None
    history: dict[str, list[Any]] | None
    candidates: list[Any] | None
    exclude: list[Any] | None
    N: int | None
    min_items: int
    max_items: int | None
    cutoff: Cutoff | Literal["auto", "boundary"]
    at: str | None
    withheld: int = 0
    explain: bool = False
    notes: tuple[str, ...] = ()
    log_share: float = 1.0  # of the lists that are logged

    @property
    def is_mergeable(self) -> bool:
        """Whether the lists can be computed together with those of other requests."""
        return self.history is None and self.candidates is None and self.exclude is None and not self.explain

    @property
    def options(self) -> tuple[Any, ...]:
        """Requests with equal options can be computed together."""
        return (
            id(self.served),
            self.N,
            self.min_items,
            self.max_items,
            id(self.cutoff),
            self.at,
            self.withheld,
        )


@dataclass(frozen=True)
class ListResult:
    """The JSON of an answer, the rows of the log, and what the counters need."""

    body: bytes
    log: list[dict[str, Any]]
    lengths: list[int]
    unknown: int


def answer_jobs(jobs: Sequence[ListJob]) -> "list[ListResult | Exception]":
    """Answer many requests; those with equal options share one call of the model."""
    groups: dict[Any, list[int]] = {}
    for number, job in enumerate(jobs):
        groups.setdefault(job.options if job.is_mergeable else number, []).append(number)
    answers: dict[int, ListResult | Exception] = {}
    for numbers in groups.values():
        group = [jobs[number] for number in numbers]
        try:
            found: Sequence[ListResult | Exception] = _answer_group(group)
        except Exception as error:  # only the requests of this group fail
            found = [error] * len(group)
        answers.update(zip(numbers, found, strict=True))
    return [answers[number] for number in range(len(jobs))]


def _answer_group(jobs: Sequence[ListJob]) -> list[ListResult]:
    first = jobs[0]
    request: dict[str, Any] = {
        "candidates": first.candidates,
        "exclude": first.exclude,
        "history": first.history,
        "at": first.at,
        "n_threads": 1,
    }
    users = None if first.users is None else list(dict.fromkeys(u for job in jobs for u in job.users or ()))
    lists = first.served.model.recommend(
        users,
        **request,
        N=first.N,
        cutoff=first.cutoff,
        min_items=first.min_items,
        max_items=first.max_items,
    )
    longer = None
    if first.withheld:
        depth = int(lists.lengths.max(initial=0)) + first.withheld
        longer = first.served.model.recommend(users, **request, N=depth)
    reasons = _reasons(first, lists) if first.explain else None
    texts = _Texts(lists)
    number_of = {user: number for number, user in enumerate(lists.users.values)}
    return [_answer(job, lists, longer, texts, number_of, reasons) for job in jobs]


class _Texts:
    """Ids, names, scores and probabilities of the items in plain Python values."""

    def __init__(self, lists: RankedLists) -> None:
        self.ids = _plain_ids(lists.item_ids)
        self.names = (
            None
            if lists.item_names is None
            else lists.item_names.gather(pl.Series(lists.items.astype("u4"))).to_list()
        )
        self.items = lists.items.tolist()
        self.scores = lists.scores.tolist()
        self.probabilities = (
            [None] * len(self.items) if lists.probabilities is None else lists.probabilities.tolist()
        )

    def rows(self, start: int, end: int) -> list[dict[str, Any]]:
        """The items at positions start … end − 1 of all lists."""
        return [
            {
                "item_id": self.ids[self.items[at]],
                "name": None if self.names is None else self.names[at],
                "score": self.scores[at],
                "probability": self.probabilities[at],
            }
            for at in range(start, end)
        ]


_LAST_IDS: list[tuple[IdMap, list[Any]]] = []  # of the latest request; the same for almost every request


def _plain_ids(ids: IdMap) -> list[Any]:
    """The ids as a Python list."""
    for known, plain in _LAST_IDS:
        if known is ids:
            return plain
    plain = ids.values.to_list()
    _LAST_IDS[:] = [(ids, plain)]
    return plain


def _answer(
    job: ListJob,
    lists: RankedLists,
    longer: RankedLists | None,
    texts: _Texts,
    number_of: dict[Any, int],
    reasons: Reasons | None,
) -> ListResult:
    """The part of the lists that one request needs."""
    wanted = lists.users.values.to_list() if job.users is None else job.users
    made = time.time()
    found, log, lengths, unknown = [], [], [], 0
    more = None if longer is None else _Texts(longer)
    for user in wanted:
        number = number_of[user]
        start, end = int(lists.indptr[number]), int(lists.indptr[number + 1])
        rows = texts.rows(start, end)
        reason = lists.reason_of(number)
        boundary = None if lists.boundary is None else float(lists.boundary[number])
        one: dict[str, Any] = {
            "user_id": user,
            "items": rows,
            "reason": reason,
            "explanation": REASON_TEXT.get(reason or ""),
            "boundary": boundary if boundary == boundary else None,  # NaN: none
            "list_id": secrets.token_hex(12),
        }
        if longer is not None and more is not None:
            first = int(longer.indptr[number])
            last = min(int(longer.indptr[number + 1]), first + len(rows) + job.withheld)
            shown = {row["item_id"] for row in rows}
            rest = [row for row in more.rows(first, last) if row["item_id"] not in shown]
            one["withheld"] = rest[: job.withheld]
        if reasons is not None:
            for row in (*rows, *one.get("withheld", ())):
                probability, row["contributions"] = reasons.get(row["item_id"], (None, []))
                if row["probability"] is None:
                    row["probability"] = probability
        found.append(one)
        unknown += reason == "unknown_user"
        lengths.append(end - start)
        log.append(_log_row(one, job, made))
    body = orjson.dumps(
        {"lists": found, "model": job.served.name, "cutoff": _cutoff_name(job), "notes": job.notes}
    )
    return ListResult(body, log, lengths, unknown)


def _log_row(one: dict[str, Any], job: ListJob, made: float) -> dict[str, Any]:
    probabilities = [row["probability"] for row in one["items"]]
    return {
        "list_id": one["list_id"],
        "user_id": None if job.history is not None else str(one["user_id"]),
        "model": job.served.name,
        "cutoff": _cutoff_name(job),
        "made": made,
        "items": orjson.dumps([str(row["item_id"]) for row in one["items"]]).decode(),
        "probabilities": None if None in probabilities else orjson.dumps(probabilities).decode(),
        "reason": one["reason"],
        "share": job.log_share,
        "used": False,
    }


def _cutoff_name(job: ListJob) -> str:
    if job.N is not None:
        return "N"
    if isinstance(job.cutoff, Cutoff):
        return type(job.cutoff).__name__
    return job.served.cutoff_name if job.cutoff == "auto" else job.cutoff


def _reasons(job: ListJob, lists: RankedLists) -> Reasons:
    """Probability and sources of the score of each candidate, for a request with one user."""
    if lists.reason_of(0) == "unknown_user":
        return {}
    table = job.served.model.explain(
        lists.users.values[0],
        N=max(int(lists.lengths[0]) + job.withheld, 1),
        candidates=job.candidates,
        exclude=job.exclude,
        history=job.history,
        at=job.at,
    )
    return {
        item: (probability, [] if parts is None else [tuple(part.values()) for part in parts])
        for item, probability, parts in table.select("item_id", "probability", "contributions").iter_rows()
    }
