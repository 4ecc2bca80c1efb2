"""The bodies of requests and answers, which are also the schema in /docs, and how they are checked."""

import typing
from collections.abc import Iterable
from dataclasses import MISSING
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)

from shortlist.core.options import (
    Form,
    Help,
    annotations_of,
    find_note,
    list_options,
    nearest_name,
    strict_type,
)
from shortlist.data.ids import IdMap
from shortlist.errors import DataError, ShortlistError
from shortlist.recommend.options import RequestOptions
from shortlist.serve.options import ExperimentOptions

MAX_WEIGHT = 1e6  # of an event; far below what float32 sums can hold

WholeNumber = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Id = Annotated[
    str | WholeNumber,
    Field(description="An id, in the type that the model uses.", examples=["u42"]),
]
Fraction = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Body(BaseModel):
    """A request body: unknown fields are refused, so that a typing error is never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Answer(BaseModel):
    """An answer: a field that is not declared is a defect of the service, not an addition."""

    model_config = ConfigDict(extra="forbid")


def body_of(declaration: type, *names: str) -> Any:
    """A body of the options that are offered over HTTP; or of some of them, each of which may be left out."""
    fields: dict[str, Any] = {}
    annotations = annotations_of(declaration)
    for name, option in list_options(declaration, "http").items():
        if names and name not in names:
            continue
        form, note = find_note(annotations[name], Form), find_note(annotations[name], Help)
        kind = strict_type(annotations[name] if form is None or form.http is None else form.http)
        default: Any = {} if option.default is MISSING else option.default
        kind, default = (kind | None, None) if names else (kind, default)
        text, example = ("", None) if note is None else (note.text, note.example)
        examples = None if example is None else [example]
        fields[name] = kind, Field(default, description=text, examples=examples)
    return create_model("Options", __base__=Body, **fields)


class RecommendBody(body_of(RequestOptions)):  # type: ignore[misc]
    """Who needs lists, and what may be on them."""

    users: list[Id] | None = Field(
        None, description="Known users; an unknown user gets an empty list.", examples=[["u1", "u2"]]
    )
    explain: bool = Field(
        False, description="Add the sources of each score. For one user only; the list is not logged."
    )
    withheld: Annotated[int, Field(ge=0, le=50)] = Field(
        0, description="Also return this many candidates below the end of each list."
    )


class ListItem(Answer):
    """One item of a list."""

    item_id: str | int
    name: str | None = None
    score: float
    probability: float | None = Field(None, description="Calibrated on what users did; null without that.")
    contributions: list[tuple[str, float]] | None = None


class ListAnswer(Answer):
    """One list."""

    user_id: str | int
    items: list[ListItem]
    reason: str | None
    explanation: str | None = Field(description="The reason in words.")
    boundary: float | None
    list_id: str = Field(description="Send it with events that the list led to.")
    arm: str | None = Field(None, description="The experiment and the arm of the user, such as spring/ten.")
    withheld: list[ListItem] | None = None


class RecommendAnswer(Answer):
    """Lists in the order of the request."""

    lists: list[ListAnswer]
    model: str
    cutoff: str
    notes: list[str] = Field(description="What was ignored, such as unknown items of a session.")


class EventBody(Body):
    """One interaction."""

    user_id: Id
    item_id: Id
    time: str | None = Field(
        None, description="ISO 8601; default: now. Events of a user at the same time form a basket."
    )
    event_id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="An event with a known id is stored once. Default: derived from the content."
    )
    weight: Annotated[float, Field(ge=-MAX_WEIGHT, le=MAX_WEIGHT)] | None = Field(
        None,
        description="Such as a quantity, at most a million; negative for a return, which is subtracted from "
        "the latest earlier purchases of the user and item. Without weights in the data of the model, a "
        "return takes one purchase away.",
    )
    list_id: Annotated[str, Field(max_length=64)] | None = None


def _keep_problem(event: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """The event, or what is wrong with it: a wrong event does not stop the others."""
    try:
        return EventBody.model_validate_json(event) if isinstance(event, bytes) else validate(event)
    except ValidationError as error:
        return error


def _split_lines(body: Any) -> Any:
    """The body of a request with one JSON object per line."""
    return (
        {"events": [line for line in body.split(b"\n") if line.strip()]} if isinstance(body, bytes) else body
    )


class EventsBody(Body):
    """Up to 10,000 events; application/x-ndjson with one event per line is accepted too.

    Wrong events are rejected one by one, and the others are stored.
    """

    events: list[Annotated[EventBody, WrapValidator(_keep_problem)]]


EventsInput = Annotated[EventsBody, BeforeValidator(_split_lines)]


class Rejection(Answer):
    """An event that was not stored."""

    index: int
    reason: str


class EventsAnswer(Answer):
    """What happened to each event; stored events are durable."""

    accepted: int
    duplicates: int
    rejected: list[Rejection]
    new_items: list[str] = Field(
        description="Items that the model does not know, at most ten; check the ids."
    )


class ScoredItem(Body):
    """A candidate of any ranker."""

    item_id: Id
    score: float
    probability: Fraction | None = None


class ScoredList(Body):
    """The candidates of one user, in any order."""

    user_id: Id
    items: list[ScoredItem]


def _let_others_run(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate a list by a call from Python, where a thread that reads a large body makes way for others."""
    return validate(value)


ScoredLists = list[Annotated[ScoredList, WrapValidator(_let_others_run)]]


class CutBody(Body):
    """Scores of any ranker, to be cut."""

    lists: ScoredLists
    cutoff: str = Field(
        description="The name of a cutoff that `shortlist cut --save` wrote into the model folder.",
        max_length=200,
    )


class CutItem(Answer):
    """One item of a list after the cut."""

    item_id: str | int
    score: float
    probability: float | None


class CutList(Answer):
    """A list after the cut."""

    user_id: str | int
    items: list[CutItem]
    reason: str | None
    explanation: str | None = Field(description="The reason in words.")
    withheld: int


class CutAnswer(Answer):
    """Lists after the cut, in the order of the request."""

    lists: list[CutList]


ARM_OPTIONS = ("N", "cutoff", "min_items", "max_items")  # of a request, that an arm may set


class ArmOptions(body_of(RequestOptions, *ARM_OPTIONS)):  # type: ignore[misc]
    """Options of a request that an arm sets."""


class ArmBody(Body):
    """One way to make lists."""

    name: Name
    share: Fraction = Field(description="Share of the users; all shares add up to 1.")
    model: Name | None = Field(None, description="A name from GET /v1/model; default: the model in service.")
    options: ArmOptions = ArmOptions()


class ExperimentBody(body_of(ExperimentOptions)):  # type: ignore[misc]
    """An experiment; the first arm is the one that the others are compared with."""

    name: Name = Field(examples=["spring"])
    arms: Annotated[list[ArmBody], Field(min_length=2, max_length=10)]


class StopBody(Body):
    """Which experiment to stop, and the arm to put into service."""

    name: Name
    ship: Name | None = Field(None, description="The arm that everybody gets from now on.")


class ArmRow(Answer):
    """An arm and how many users got a list of it."""

    name: str
    share: float
    description: str
    can_ship: bool = Field(description="Whether it is a model that can be put into service as it is.")
    users: int
    complete: int = Field(description="Users whose window has passed.")
    shown: float | None = Field(description="Items shown per such user.")
    hits: float | None = Field(description="Items chosen per such user after they were shown.")


class ExperimentAnswer(Answer):
    """The latest experiment with its comparison; null if there was none."""

    name: str | None
    started: float | None = None
    ended: float | None = None
    metric: str | None = None
    window_days: float | None = None
    arms: list[ArmRow] = []
    report: dict[str, Any] | None = Field(None, description="Null until windows of all arms have passed.")
    summary: str
    can_change: bool


class ModelBody(Body):
    """Which model to serve."""

    name: Name = Field(description="A name from GET /v1/model.")
    activation: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        None, description="Go back to this activation of the model."
    )


class ActivationRow(Answer):
    """When a model was activated, and why."""

    number: int
    model: str
    activated: float
    note: str


class ModelAnswer(Answer):
    """The model in service."""

    name: str
    class_: str = Field(alias="class")
    cutoff: str
    cutoff_description: str | None
    has_boundary: bool = Field(description='Whether requests may ask for the cutoff "boundary".')
    n_users: int
    n_items: int
    loaded: float
    can_change: bool = Field(description="Whether a token can change the service: it has a token file.")
    available: list[str]
    examples: list[str | int] = Field(description="A few users, to begin with.")
    activations: list[ActivationRow]
    error: str | None
    report: str | None = Field(description="How the model and its cutoff were chosen.")
    version: str


class UserEvent(Answer):
    """One event of a user."""

    item_id: str | int
    name: str | None
    time: str | None = Field(description="ISO 8601, UTC; null if the data has no times.")


class UserAnswer(Answer):
    """What the model knows about a user; events are newest first."""

    user_id: str | int
    n_events: int
    n_baskets: int
    events: list[UserEvent]


class ErasureAnswer(Answer):
    """What was deleted; models forget the user at once, and their files with the next refit."""

    n_events: int
    n_lists: int = Field(description="Logged lists.")


class HealthAnswer(Answer):
    """Whether the process works."""

    status: Literal["ok"]


class ReadyAnswer(Answer):
    """Whether lists can be served."""

    status: Literal["ready"]
    model: str = Field(description="The model that this worker serves.")


class CheckRow(Answer):
    """One check: ok, warning, bad or unknown."""

    name: str
    state: str
    value: str
    sentence: str
    action: str


class StatusAnswer(Answer):
    """The last hour of all workers."""

    now: float
    model: dict[str, Any]
    minutes: list[dict[str, Any]]
    lengths: dict[str, dict[str, float]]
    checks: list[CheckRow]


class ErrorAnswer(Answer):
    """Every error has this form."""

    error: str
    rule: str
    hint: str
    rejected: list[Rejection] | None = Field(None, description="Only of events that were all rejected.")


class RequestError(ShortlistError, ValueError):
    """A request that is refused with a status, a rule and a hint."""

    def __init__(
        self, status: int, error: str, rule: str, hint: str, rejected: list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(rule)
        self.status, self.error, self.rule, self.hint, self.rejected = status, error, rule, hint, rejected


M = TypeVar("M", bound=BaseModel)
Place = tuple[int | str, ...]

# how pydantic names the types of a union at the end of a place
VARIANTS = ("str", "int", "float", "bool", "constrained-int", "constrained-float", "constrained-str")
WORDS = {
    "Field required": "is missing",
    "Input should be a valid dictionary": "must be an object",
    "Input should be a valid array": "must be a list",
    "Input should be a valid list": "must be a list",
    "Input should be a valid string": "must be a text",
    "Input should be a valid integer": "must be an integer",
    "Input should be a valid number": "must be a number",
    "Input should be a valid boolean": "must be true or false",
    "JSON decode error": "must be JSON",
}


def parse_body(content: bytes, model: type[M]) -> M:
    """The validated body of a request."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise invalid_body(error, model) from None


def invalid_body(
    error: ValidationError | RequestValidationError, model: type[BaseModel] | None = None
) -> RequestError:
    """The first problem of a body, without its values."""
    return RequestError(422, "invalid_request", *describe_problem(error, model))


def describe_problem(
    error: ValidationError | RequestValidationError, model: type[BaseModel] | None, body: str = "the body"
) -> tuple[str, str]:
    """(rule, hint) of the first problem; an unknown field comes first, because it may be a missing one."""
    problems = [
        (_field_place(problem["loc"], error), problem["type"], problem["msg"]) for problem in error.errors()
    ]
    for place, kind, _ in problems:
        if kind == "extra_forbidden":
            return _unknown_field(place, model)
    first = problems[0][0]
    rules = dict.fromkeys(_rule(message) for place, _, message in problems if place == first)
    words = " or ".join(rules).replace(" or must be ", " or ")
    name = ".".join(map(str, first))[:100] or body
    return f"{name} {words}"[:300], _example(first, model)


def _field_place(place: Place, error: ValidationError | RequestValidationError) -> Place:
    """Where the field is in the body, without the types of a union."""
    if isinstance(error, RequestValidationError):
        place = (
            () if len(place) == 2 and isinstance(place[1], int) else place[1:]
        )  # ("body", byte) of bad JSON
    return place[:-1] if len(place) > 1 and place[-1] in VARIANTS else place


def _rule(message: str) -> str:
    """What pydantic says about a value, as the end of a sentence about it."""
    return WORDS.get(message) or message.replace("Input should", "must").removeprefix("Value error, ")


def _unknown_field(place: Place, model: type[BaseModel] | None) -> tuple[str, str]:
    """Name an unknown field and the declared one that is spelled most like it."""
    name, owner = str(place[-1])[:60], _model_at(place[:-1], model)
    declared = [] if owner is None else list(owner.model_fields)
    near = nearest_name(name, declared)
    fields = f"the fields are {', '.join(declared)}" if declared else "see /docs"
    return f"unknown field {name!a}", f"did you mean {near!r}?" if near else fields


def _model_at(place: Iterable[int | str], model: type[BaseModel] | None) -> type[BaseModel] | None:
    """The model of the object at a place of a body."""
    for name in place:
        if isinstance(name, str) and model is not None and name in model.model_fields:
            model = _model_in(model.model_fields[name].annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as list[ScoredItem] is about."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    return next(filter(None, map(_model_in, typing.get_args(annotation))), None)


def _example(place: Place, model: type[BaseModel] | None) -> str:
    """An example of the field at a place, if its schema has one."""
    field = None if model is None or not place else model.model_fields.get(str(place[0]))
    if field is None or not field.examples:
        return "see /docs"
    return f"for example {orjson.dumps({str(place[0]): field.examples[0]}).decode()}"


MAX_ID = 256  # characters


def check_id(value: Any, ids: IdMap, name: str) -> Any:
    """The id in the type of the model.

    A model with integer ids also accepts an integer that is written as a text, because it can mean only one
    id. A model with text ids accepts no integer, because 7 may mean "7" or "007".
    """
    kind = type(value)
    if ids.kind == "integer":
        if kind is str and len(value) <= 20 and _is_plain_integer(value):
            value = int(value)
        if type(value) is int and -(2**63) <= value < 2**63:
            return value
        raise DataError(f"{name} must be an integer, as in the model, got {_shown(value)}; check the id.")
    if kind is str and 0 < len(value) <= MAX_ID and (value.isprintable() or value in ids):
        return value
    raise DataError(
        f"{name} must be a text of 1 to {MAX_ID} printable characters, as in the model, got {_shown(value)}; "
        "check the id."
    )


def parse_ids(values: Iterable[Any], ids: IdMap, name: str) -> list[Any]:
    """Several ids in the type of the model."""
    return [check_id(value, ids, name) for value in values]


def _is_plain_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0") and text != "-0"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "…"
