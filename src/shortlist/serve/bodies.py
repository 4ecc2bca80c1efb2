"""JSON bodies of requests, validated."""

from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from shortlist.serve.gate import RequestError

M = TypeVar("M", bound=BaseModel)


def parse_body(content: bytes, model: type[M]) -> M:
    """The validated body of a request."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise invalid_body(error) from None


def invalid_body(error: ValidationError | RequestValidationError) -> RequestError:
    """The first problem of a body, without its values."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the body"
    return RequestError(422, "invalid_request", f"{place[:100]}: {first['msg'][:200]}", "see /docs")
