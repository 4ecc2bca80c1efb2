"""Requests for lists, checked against the model in service and answered."""

import asyncio
import random
from typing import Any

from shortlist.data.id_map import IdMap
from shortlist.serve.bodies import parse_body
from shortlist.serve.gate import Answered, RequestError
from shortlist.serve.ids import check_ids
from shortlist.serve.lists import ListJob
from shortlist.serve.schemas import RecommendBody
from shortlist.serve.service import Service

LOOK_UP = "/v1/recommend explain"  # in the metrics: to explain a list takes longer than to make one


async def answer_lists(content: bytes, service: Service) -> Answered:
    """The JSON answer to a JSON request for lists; they are logged and counted unless they are explained."""
    body = parse_body(content, RecommendBody)
    if not service.has_cutoff(body.cutoff):
        await asyncio.to_thread(service.cutoff, body.cutoff)  # from the store
    result = await service.lists.submit(build_job(body, service))
    if body.explain:  # such a list is inspected, not shown to the user
        return Answered(result.body, LOOK_UP)
    service.metrics.count_lists(result.lengths, result.unknown)
    share = service.config.log_share
    if share > 0:
        service.writer.add_lists(
            result.log if share == 1 else [row for row in result.log if random.random() < share]
        )
    return Answered(result.body)


def build_job(body: RecommendBody, service: Service) -> ListJob:
    """Check a request against the model in service."""
    served = service.deployment.served
    model, config = served.model, service.config
    if (body.users is None) == (body.history is None):
        raise RequestError(
            422,
            "invalid_request",
            "pass either users or history",
            "use history for people the model does not know",
        )
    n_lists = len(body.users if body.users is not None else body.history or ())
    check_size(n_lists, config.max_users, "users")
    check_size(len(body.candidates or ()), config.max_candidates, "candidates")
    check_size(len(body.exclude or ()), config.max_candidates, "exclude")
    if body.explain and n_lists != 1:
        raise RequestError(422, "invalid_request", "explain works for one user", "send one request per user")
    known = model.items_
    notes: list[str] = []
    history = None
    if body.history is not None:
        history = {}
        for key, items in body.history.items():
            check_size(len(items), config.max_candidates, "history")
            kept = _known(check_ids(items, known, "history"), known, "history", notes)
            history[key] = kept
    candidates = exclude = None
    if body.candidates is not None:
        candidates = _known(check_ids(body.candidates, known, "candidates"), known, "candidates", notes)
    if body.exclude is not None:
        exclude = _known(check_ids(body.exclude, known, "exclude"), known, "exclude", notes)
    return ListJob(
        served=served,
        users=None if body.users is None else tuple(check_ids(body.users, model.users_, "users")),
        history=history,
        candidates=candidates,
        exclude=exclude,
        N=body.N,
        min_items=body.min_items,
        max_items=body.max_items,
        cutoff="auto" if body.N is not None else service.cutoff(body.cutoff),
        at=body.at,
        withheld=body.withheld,
        explain=body.explain,
        notes=tuple(notes),
        log_share=config.log_share,
    )


def _known(ids: list[Any], known: IdMap, name: str, notes: list[str]) -> list[Any]:
    """The ids that the model knows; the others are counted in a note."""
    positions, n = known.positions, len(known)  # the positions of a longer map may be among them
    kept = [one for one in ids if positions.get(one, n) < n]
    if len(kept) < len(ids):
        notes.append(f"{name}: {len(ids) - len(kept):,} of {len(ids):,} items are unknown and were ignored")
    return kept


def check_size(size: int, limit: int, name: str) -> None:
    if size > limit:
        raise RequestError(
            422, "too_many", f"{name} may have {limit:,} entries, got {size:,}", "send several requests"
        )
