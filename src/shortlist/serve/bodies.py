"""JSON bodies of requests, validated."""

import difflib
import typing
from collections.abc import Iterable
from typing import Any, TypeVar

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from shortlist.serve.gate import RequestError

M = TypeVar("M", bound=BaseModel)
Place = tuple[int | str, ...]

VARIANTS = ("str", "int", "float")  # how pydantic names the types of a union at the end of a place
WORDS = {
    "Field required": "is missing",
    "Input should be a valid dictionary": "must be an object",
    "Input should be a valid array": "must be a list",
    "Input should be a valid list": "must be a list",
    "Input should be a valid string": "must be a text",
    "Input should be a valid integer": "must be an integer",
    "Input should be a valid number": "must be a number",
    "Input should be a valid boolean": "must be true or false",
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
    problems = error.errors()
    for one in problems:
        if one["type"] == "extra_forbidden":
            return _unknown_field(one["loc"], model)
    place = _without_variant(problems[0]["loc"])
    rules = dict.fromkeys(_rule(one["msg"]) for one in problems if _without_variant(one["loc"]) == place)
    words = " or ".join(rules).replace(" or must be ", " or ")
    name = ".".join(str(part) for part in place)[:100] or body
    return f"{name} {words}"[:300], _example(place, model)


def _rule(message: str) -> str:
    """What pydantic says about a value, as the end of a sentence about it."""
    return WORDS.get(message) or message.replace("Input should", "must")


def _without_variant(place: Place) -> Place:
    return place[:-1] if len(place) > 1 and place[-1] in VARIANTS else place


def _unknown_field(place: Place, model: type[BaseModel] | None) -> tuple[str, str]:
    """Name an unknown field and the known one that is spelled most like it."""
    name, owner = str(place[-1])[:60], _model_at(place[:-1], model)
    known = [] if owner is None else list(owner.model_fields)
    by_case = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    fields = f"the fields are {', '.join(known)}" if known else "see /docs"
    return f"unknown field {name!a}", f"did you mean {by_case[close[0]]!r}?" if close else fields


def _model_at(place: Iterable[int | str], model: type[BaseModel] | None) -> type[BaseModel] | None:
    """The model of the object at a place of a body."""
    for part in place:
        if isinstance(part, str) and model is not None and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
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
