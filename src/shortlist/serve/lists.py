"""Lists over HTTP: requests checked, computed in batches, and answered as JSON; cuts of other lists."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import orjson
import polars as pl
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.core.threads import limit_threads
from shortlist.cutoff.base import Cutoff, are_calibrated
from shortlist.data.ids import IdMap
from shortlist.data.lists import REASON_TEXT, RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.recommend.options import CutoffChoice, RequestOptions
from shortlist.recommend.request import length_limit
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import CutoffFiles, Deployment, ServedModel
from shortlist.serve.experiments import Arm, Experiments, LiveExperiment, Participants
from shortlist.serve.metrics import Metrics
from shortlist.serve.middleware import COUNTED_AS, LARGE_BODY, LATE_BODY, send_json
from shortlist.serve.schemas import CutBody, RecommendBody, RequestError, ScoredList, parse_body, parse_ids
from shortlist.serve.store import ListRow, StoreWriter

if TYPE_CHECKING:
    from shortlist.serve.service import Service

OPTIONS = tuple(option.name for option in fields(RequestOptions))
SMALL_USERS = 4
NO_COUNTS: Mapping[str, int] = {}
NO_KNOWN_ITEM = "the session has no item that the model knows"

Explained = dict[Any, list[Any]]  # contributions by item id


class ListJob(NamedTuple):
    """A request for lists of one model."""

    served: ServedModel
    body: RecommendBody
    users: list[Any] | None  # in the type of the model; None: those of the history
    cutoff: CutoffChoice
    made: float  # time of the store
    arm: str | None  # "experiment/arm"; "experiment/" for users who take no part
    n_before: Mapping[str, int]  # events of the users of an arm before the experiment
    config: ServeConfig

    @property
    def n_lists(self) -> int:
        """How many lists it asks for."""
        return len(self.users if self.users is not None else self.body.history or ())

    @property
    def group(self) -> tuple[Any, ...]:
        """Equal for requests that differ in their users alone."""
        options = self.body.model_dump_json(exclude={"users"})
        return id(self.served), id(self.cutoff), self.n_lists, options


def is_small(body: RecommendBody) -> bool:
    """Whether a request asks for little, as most do; such requests are computed together."""
    is_plain = body.history is None and body.candidates is None and body.exclude is None
    return is_plain and len(body.users or ()) <= SMALL_USERS and not body.explain and not body.withheld


def build_job(
    body: RecommendBody,
    served: ServedModel,
    cutoff: CutoffChoice,
    config: ServeConfig,
    made: float,
    *,
    arm: str | None = None,
    n_before: Mapping[str, int] = NO_COUNTS,
) -> ListJob:
    """Check who gets lists, against the model in service."""
    if (body.users is None) == (body.history is None):
        raise RequestError(
            422,
            "invalid_request",
            "pass either users or history",
            "use history for people the model does not know",
        )
    users = None if body.users is None else parse_ids(body.users, served.model.users_, "users")
    job = ListJob(served, body, users, cutoff, made, arm, n_before, config)
    if body.explain and job.n_lists != 1:
        raise RequestError(422, "invalid_request", "explain works for one user", "send one request per user")
    check_count(job.n_lists, config.max_users, "users")
    return job


def _read_options(job: ListJob, notes: list[str]) -> RequestOptions:
    """The options of a request in the types of the model; notes tell what is ignored."""
    body, config, items = job.body, job.config, job.served.model.items_

    def parse_items(ids: list[Any] | None, name: str) -> list[Any] | None:
        if ids is None:
            return None
        check_count(len(ids), config.max_candidates, name)
        return _keep_known(parse_ids(ids, items, name), items, name, notes)

    options: dict[str, Any] = {
        **{name: getattr(body, name) for name in OPTIONS},
        "cutoff": "auto" if body.N is not None else job.cutoff,
        "history": body.history
        and {key: parse_items(items, "history") for key, items in body.history.items()},
        "candidates": parse_items(body.candidates, "candidates"),
        "exclude": parse_items(body.exclude, "exclude"),
    }
    return RequestOptions(**options)


def _bound_length(job: ListJob, options: RequestOptions) -> int | None:
    """Refuse a request for more items than one answer may have; the limit of one that has none itself."""
    max_items = job.config.max_items
    most = max_items // max(job.n_lists, 1) - job.body.withheld
    limit = length_limit(options)
    if max(limit or 0, options.min_items) > most or most < 1:
        raise _too_many_items(max_items)
    return most if limit is None and most < len(job.served.model.items_) else None


def _too_many_items(max_items: int) -> RequestError:
    return RequestError(
        422,
        "too_many",
        f"users × items per list may be {max_items:,} in one request",
        "ask for fewer users, or pass a smaller max_items",
    )


def _keep_known(ids: list[Any], items: IdMap, name: str, notes: list[str]) -> list[Any]:
    """The ids that the model knows; the others are counted in a note."""
    positions, n = items.positions, len(items)  # the positions of a longer map may be among them
    known = [item for item in ids if positions.get(item, n) < n]
    if len(known) < len(ids):
        notes.append(f"{name}: {len(ids) - len(known):,} of {len(ids):,} items are unknown and were ignored")
    return known


def check_count(count: int, limit: int, name: str) -> None:
    """Raise RequestError if a request has too many entries of one kind."""
    if count > limit:
        raise RequestError(
            422, "too_many", f"{name} may have {limit:,} entries, got {count:,}", "send several requests"
        )


class ListResult(NamedTuple):
    """What answers a request, the rows of the log, and what the counters need."""

    answer: dict[str, Any]
    log: list[ListRow]
    lengths: list[int]
    unknown: int


def answer_jobs(jobs: Sequence[ListJob]) -> "list[ListResult | Exception]":
    """Answer small requests; those with equal options share one call of the model."""
    groups: dict[Any, list[int]] = {}
    for number, job in enumerate(jobs):
        groups.setdefault(job.group, []).append(number)
    answers: dict[int, ListResult | Exception] = {}
    for numbers in groups.values():
        group = [jobs[number] for number in numbers]
        try:
            results: Iterable[ListResult | Exception] = answer_group(group)
        except Exception as error:  # only the requests of this group fail
            results = [error] * len(group)
        answers.update(zip(numbers, results, strict=True))
    return [answers[number] for number in range(len(jobs))]


def answer_group(jobs: Sequence[ListJob]) -> list[ListResult]:
    """Answer a request, or several that differ in their users alone."""
    first, users, notes = jobs[0], None, list[str]()
    options = _read_options(first, notes)
    longest = _bound_length(first, options)
    if longest is not None:
        options = replace(options, max_items=longest + 1)  # so that it shows if there are more
    if first.users is not None:
        users = list(dict.fromkeys(user for job in jobs for user in job.users or ()))
    plan = first.served.model.plan(users, options)
    lists = plan.lists()
    if longest is not None and lists.lengths.max(initial=0) > longest:
        raise _too_many_items(first.config.max_items)
    explained = _explain(first, options, lists) if first.body.explain else None
    is_calibrated = are_calibrated(options.cutoff, first.served.model.cutoff_, first.served.model.boundary_)
    answers = _list_answers(lists, explained, is_calibrated=is_calibrated, is_session=users is None)
    if first.body.withheld:
        candidates = plan.next_candidates(lists, first.body.withheld)
        more = _list_answers(candidates, explained, is_calibrated=is_calibrated)
        for user, answer in answers.items():
            answer["withheld"] = more[user]["items"]
    names = {"model": first.served.name, "cutoff": _cutoff_name(first.served, options), "notes": notes}
    return [_answer(job, answers, names) for job in jobs]


def _list_answers(
    lists: RankedLists, explained: Explained | None, *, is_calibrated: bool, is_session: bool = False
) -> dict[Any, dict[str, Any]]:
    """What an answer says about each list, by user."""
    ids, names, n = lists.item_ids.values, lists.item_names, lists.items.size
    probabilities = [None] * n
    if is_calibrated and lists.probabilities is not None:
        probabilities = lists.probabilities.tolist()
    columns = zip(lists.items.tolist(), lists.scores.tolist(), probabilities, strict=True)
    items: list[dict[str, Any]] = [
        {"item_id": ids[at], "name": None if names is None else names[at], "score": score, "probability": p}
        for at, score, p in columns
    ]
    if explained is not None:
        for item in items:
            item["contributions"] = explained.get(item["item_id"], [])
    starts = lists.indptr.tolist()
    boundaries = [None] * len(lists) if lists.boundary is None else lists.boundary.tolist()
    answers = {}
    for number, user in enumerate(lists.users.values.to_list()):
        reason = lists.reason_of(number)
        is_unknown_session = is_session and reason == "unknown_user"  # it has no user who could be unknown
        answers[user] = {
            "user_id": user,
            "items": items[starts[number] : starts[number + 1]],
            "reason": reason,
            "explanation": NO_KNOWN_ITEM if is_unknown_session else REASON_TEXT.get(reason or ""),
            "boundary": boundaries[number],
        }
    return answers


def _answer(job: ListJob, lists: dict[Any, dict[str, Any]], names: dict[str, Any]) -> ListResult:
    """The lists that one request needs; those that are only explained are neither logged nor counted."""
    answers = [
        {**lists[user], "list_id": _list_id(job.made)} for user in (lists if job.users is None else job.users)
    ]
    if job.n_before:
        for answer in answers:
            answer["arm"] = job.arm
    shown = [] if job.body.explain else answers
    share = 1.0 if job.arm else job.config.log_share
    logged = shown if share == 1 else [answer for answer in shown if random.random() < share]
    return ListResult(
        answer={"lists": answers, **names},
        log=[_log_row(job, answer, names["cutoff"], share) for answer in logged],
        lengths=[len(answer["items"]) for answer in shown],
        unknown=sum(answer["reason"] == "unknown_user" for answer in shown),
    )


def _list_id(seconds: float) -> str:
    """24 hexadecimal digits that cannot be guessed, and that grow with the time.

    Ids in the order of time are added at the end of an index, random ones all over it.
    """
    return f"{int(seconds):08x}{secrets.token_hex(8)}"


def _log_row(job: ListJob, answer: dict[str, Any], cutoff: str, share: float) -> ListRow:
    """The row of the log about a list."""
    user, items = answer["user_id"], answer["items"]
    probabilities = [item["probability"] for item in items]
    is_session = job.users is None
    return ListRow(
        list_id=answer["list_id"],
        user_id=None if is_session else str(user),
        model=job.served.name,
        cutoff=cutoff,
        made=job.made,
        items=_text([str(item["item_id"]) for item in items]),
        probabilities=None if None in probabilities else _text(probabilities),
        reason=answer["reason"],
        share=share,
        arm=job.arm,
        n_before=job.n_before.get(str(user)),
    )


def _text(values: list[Any]) -> str:
    return orjson.dumps(values).decode()


def join_answers(results: Sequence[ListResult], users: Sequence[Any]) -> dict[str, Any]:
    """One answer from those of several arms, with the lists in the order of the request."""
    answers = [result.answer for result in results]
    lists = {str(shown["user_id"]): shown for answer in answers for shown in answer["lists"]}
    return {
        "lists": [lists[str(user)] for user in users],
        "model": ", ".join(dict.fromkeys(answer["model"] for answer in answers)),
        "cutoff": ", ".join(dict.fromkeys(answer["cutoff"] for answer in answers)),
        "notes": list(dict.fromkeys(note for answer in answers for note in answer["notes"])),
    }


def _cutoff_name(served: ServedModel, options: RequestOptions) -> str:
    if options.N is not None:
        return "N"
    if isinstance(options.cutoff, Cutoff):
        return type(options.cutoff).__name__
    return served.cutoff_name if options.cutoff == "auto" else str(options.cutoff)


def _explain(job: ListJob, options: RequestOptions, lists: RankedLists) -> Explained:
    """The sources of the score of each candidate, for a request with one user."""
    user, model = lists.users.values[0], job.served.model
    if lists.reason_of(0) == "unknown_user" or (options.history is None and user not in model.users_):
        return {}
    request: Any = {name: getattr(options, name) for name in OPTIONS}
    table = model.explain(user, **request, n_withheld=job.body.withheld)
    return {
        item: [] if sources is None else [tuple(source.values()) for source in sources]
        for item, sources in table.select("item_id", "contributions").iter_rows()
    }


QUICK_SECONDS = 0.02
Result = TypeVar("Result")
Job = TypeVar("Job")


class BatchRunner(Generic[Job, Result]):
    """Computes what is waiting in one batch: a list of `DKBPRMF` takes a tenth of the time among 64 others.

    Quick batches are computed in the event loop, because to wake a thread takes longer than a list.
    """

    def __init__(self, run: Callable[[Sequence[Job]], Sequence[Result | Exception]]) -> None:
        self._run = run
        self._waiting: list[tuple[Job, asyncio.Future[Result]]] = []
        self._seconds = float("inf")  # that the latest batch took
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recommend")

    def submit(self, job: Job) -> "asyncio.Future[Result]":
        """The result of a job; must be called in the event loop."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return future

    def close(self) -> None:
        """Finish the batch that is being computed."""
        self._thread.shutdown()

    async def _work(self) -> None:
        """Compute batches until nothing waits; requests whose time is up are left out."""
        while batch := [(job, future) for job, future in self._waiting if not future.done()]:
            self._waiting = []
            jobs = [job for job, _ in batch]
            if self._seconds < QUICK_SECONDS:
                results = self._compute(jobs)
            else:
                loop = asyncio.get_running_loop()
                results = await loop.run_in_executor(self._thread, self._compute, jobs)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
            await asyncio.sleep(0)  # requests that have arrived meanwhile are read

    def _compute(self, jobs: list[Job]) -> Sequence[Result | Exception]:
        started = time.perf_counter()
        try:
            with limit_threads(1):
                return self._run(jobs)
        except Exception as error:  # the callers must be answered
            return [error] * len(jobs)
        finally:
            self._seconds = time.perf_counter() - started


class ListMaker:
    """Makes the lists of one worker: of the model in service, or of the arms of an experiment."""

    def __init__(
        self,
        config: ServeConfig,
        deployment: Deployment,
        experiments: Experiments,
        cutoffs: CutoffFiles,
        writer: StoreWriter,
        metrics: Metrics,
    ) -> None:
        self._config, self._deployment, self._experiments = config, deployment, experiments
        self._cutoffs, self._writer, self._metrics = cutoffs, writer, metrics
        self._batches: BatchRunner[ListJob, ListResult] = BatchRunner(answer_jobs)
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large-lists")

    def close(self) -> None:
        """Finish what has begun."""
        self._batches.close()
        self._large.shutdown()

    async def answer(self, body: RecommendBody) -> dict[str, Any]:
        """The answer to a request; in an experiment, each user gets the lists of the user's arm."""
        experiment, participants = self._experiments.running, self._experiments.participants
        if experiment and participants and takes_part(body) and self._has_models(experiment):
            results, answer = await self._answer_arms(experiment, participants, body)
        else:
            results = [await self._make(body, self._deployment.served)]
            answer = results[0].answer
        for result in results:
            if result.lengths:  # lists that are explained are inspected, not shown
                of_arm = bool(result.log and result.log[0].n_before)
                self._metrics.count_lists(result.lengths, result.unknown, of_arm=of_arm)
        self._writer.add_lists([row for result in results for row in result.log])
        return answer

    async def _make(
        self,
        body: RecommendBody,
        served: ServedModel,
        arm: str | None = None,
        n_before: Mapping[str, int] = NO_COUNTS,
    ) -> ListResult:
        """The lists of a request: a small one is computed with others, a large one in a thread, in turn."""
        loaded = self._cutoffs.loaded.get(body.cutoff)
        cutoff = await asyncio.to_thread(self._cutoffs.read, body.cutoff) if loaded is None else loaded
        at = self._deployment.store.now()
        build = partial(build_job, body, served, cutoff, self._config, at, arm=arm, n_before=n_before)
        if is_small(body):
            return await self._batches.submit(build())
        run = asyncio.get_running_loop().run_in_executor
        return (await run(self._large, lambda: answer_group([build()])))[0]

    def _has_models(self, experiment: LiveExperiment) -> bool:
        """Whether the models of all arms are loaded; otherwise no user takes part on this server."""
        return all(self._deployment.model_of(arm.version) is not None for arm in experiment.arms)

    async def _answer_arms(
        self, experiment: LiveExperiment, participants: Participants, body: RecommendBody
    ) -> tuple[list[ListResult], dict[str, Any]]:
        """The results of each arm, and the answer with the lists of all users in the order of the request."""
        users = body.users or []
        n_before = dict(zip(map(str, users), participants.count(list(map(str, users))), strict=True))
        by_arm: dict[Arm | None, list[Any]] = {}
        for user in users:
            arm = experiment.assign(str(user)) if n_before[str(user)] else None
            by_arm.setdefault(arm, []).append(user)
        results = []
        for arm, some in by_arm.items():
            options = {} if arm is None else arm.request_options
            served = None if arm is None else self._deployment.model_of(arm.version)
            results.append(
                await self._make(
                    body.model_copy(update={"users": some} | options),
                    served or self._deployment.served,
                    f"{experiment.name}/{'' if arm is None else arm.name}",
                    NO_COUNTS if arm is None else n_before,
                )
            )
        return results, results[0].answer if len(results) == 1 else join_answers(results, users)


def takes_part(body: RecommendBody) -> bool:
    """Whether a request is for users, and leaves the length of their lists to an experiment."""
    lengths = (body.N, body.max_items, body.min_items, body.cutoff, body.history)
    return lengths == (None, None, 0, "auto", None) and bool(body.users) and not body.explain


# ---------------------------------------------------------------------- over ASGI
LOOK_UP = "/v1/recommend explain"  # in the metrics: to explain a list takes longer than to make one


def answer_beside(app: ASGIApp, service: "Service") -> ASGIApp:
    """Answer requests for lists beside an application whose layers take longer than most lists.

    The middleware has checked the headers and read the whole body.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") != "/v1/recommend":
            await app(scope, receive, send)
            return
        content = (await receive())["body"]
        if len(content) <= LARGE_BODY:
            body = parse_body(content, RecommendBody)
        else:
            run = asyncio.get_running_loop().run_in_executor
            body = await run(service.large_bodies, parse_body, content, RecommendBody)
        if body.explain:
            scope[COUNTED_AS] = LOOK_UP
        lists = service.lists.answer(body)
        await send_json(send, orjson.dumps(await (lists if is_small(body) else unless_gone(lists, receive))))

    return answer


async def unless_gone(answer: Coroutine[Any, Any, Any], receive: Receive) -> Any:
    """An answer, unless the caller hangs up before it is computed; then it is given up."""
    running = asyncio.ensure_future(answer)
    hung_up = asyncio.ensure_future(receive())  # the body was received, so what follows is the end
    try:
        await asyncio.wait([running, hung_up], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise RequestError(LATE_BODY, "disconnected", "the caller has gone", "send the request again")
        return running.result()
    finally:
        hung_up.cancel()
        running.cancel()


# ---------------------------------------------------------------------- cuts of other rankers' lists
def parse_lists(scored: Sequence[ScoredList]) -> RankedLists:
    """Lists in order of the scores; equal scores stay in the order of the request."""
    if len({type(ranking.user_id) for ranking in scored}) > 1:
        raise DataError("user_id must be an integer everywhere or a text everywhere; use one type.")
    if len({type(item.item_id) for ranking in scored for item in ranking.items}) > 1:
        raise DataError("item_id must be an integer everywhere or a text everywhere; use one type.")
    if len({ranking.user_id for ranking in scored}) < len(scored):
        raise DataError("a user may have one list per request; send several requests.")
    rows: list[tuple[Any, Any, float, float | None, int]] = []
    for ranking in scored:
        if len({item.item_id for item in ranking.items}) < len(ranking.items):
            raise DataError("a list must hold an item once; remove the repetitions.")
        ranked = sorted(ranking.items, key=lambda item: -item.score)
        rows += [
            (ranking.user_id, item.item_id, item.score, item.probability, rank)
            for rank, item in enumerate(ranked, 1)
        ]
        if not ranked:
            rows.append((ranking.user_id, None, 0.0, None, 0))
    columns = ["user_id", "item_id", "score", "probability", "rank"]
    frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    if frame["probability"].null_count():
        frame = frame.drop("probability")
    return RankedLists.from_frame(frame)


def cut_lists(body: CutBody, cutoff: Cutoff | str) -> dict[str, Any]:
    """Cut each list; the lists are answered in the order of the request."""
    if isinstance(cutoff, str):
        raise ConfigError("cutoff must be the name of a file; `shortlist cut --save` writes one.")
    if not body.lists:
        return {"lists": []}
    cut = cutoff.apply(parse_lists(body.lists))
    answers = []
    for ranking in body.lists:
        shown = cut[ranking.user_id]
        probabilities = [None] * len(shown) if shown.probabilities is None else shown.probabilities.tolist()
        answers.append(
            {
                "user_id": ranking.user_id,
                "items": [
                    {"item_id": item, "score": score, "probability": probability}
                    for item, score, probability in zip(
                        shown.items, shown.scores.tolist(), probabilities, strict=True
                    )
                ],
                "reason": shown.reason,
                "explanation": REASON_TEXT.get(shown.reason or ""),
                "withheld": len(ranking.items) - len(shown),
            }
        )
    return {"lists": answers}
