"""What cutoffs, calibrations and size models have in common: parameters, a copy, and a state that can be saved."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.ids import Ids
from shortlist.errors import ConfigError, ModelFileError, NotFittedError

Array = npt.NDArray[Any]


@dataclass(kw_only=True, eq=False)
class Component:
    """Parameters are the dataclass fields; what `fit` learned are the attributes that end in `_`."""

    _kinds: ClassVar[dict[str, type["Component"]]] = {}

    def __init_subclass__(cls) -> None:
        Component._kinds[cls.__name__] = cls

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; what was learned before is forgotten."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{type(self).__name__} has no parameter {name!r}; its parameters are {', '.join(known)}."
                )
        for name, value in params.items():
            setattr(self, name, value)
        for name in self.fitted():
            delattr(self, name)
        return self

    def clone(self) -> Self:
        """An unfitted copy with the same parameters."""
        return type(self)(**self.get_params())

    def fitted(self) -> dict[str, Any]:
        """What `fit` learned, by name; empty before."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def need(self, name: str) -> Any:
        """A fitted attribute; its absence means that nobody has called `fit`."""
        if name not in vars(self):
            raise NotFittedError(
                f"{type(self).__name__} was used before it was fitted; call fit(scores, truth) first."
            )
        return vars(self)[name]

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(a JSON document, named arrays): everything `from_state` needs, nothing that must be unpickled."""
        arrays: dict[str, Array] = {}
        return _pack(self, "", arrays), arrays

    @classmethod
    def from_state(cls, document: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """The component that `state` described."""
        made = _unpack(document, arrays)
        if not isinstance(made, cls):
            raise ModelFileError(
                f"the saved state must be a {cls.__name__}, got a {type(made).__name__}; load it with that class."
            )
        return made


def _pack(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """A value as JSON; arrays, ids and text models go into `arrays` under their dotted name."""
    if isinstance(value, Component):
        inside = f"{name}." if name else ""
        return {
            "class": type(value).__name__,
            "params": {key: _pack(one, inside + key, arrays) for key, one in value.get_params().items()},
            "fitted": {key: _pack(one, inside + key, arrays) for key, one in value.fitted().items()},
        }
    if isinstance(value, Ids):
        return _pack_ids(value, name, arrays)
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, np.generic):
        return _pack(value.item(), name, arrays)
    return value


def _pack_ids(ids: Ids, name: str, arrays: dict[str, Array]) -> dict[str, str]:
    if ids.values.dtype != pl.String:
        arrays[name] = ids.values.cast(pl.Int64).to_numpy()
        return {"integers": name}
    texts = [text.encode() for text in ids.values.to_list()]
    arrays[f"{name}.text"] = np.frombuffer(b"".join(texts), np.uint8)
    arrays[f"{name}.lengths"] = np.array([len(text) for text in texts], np.int64)
    return {"strings": name}


def _unpack(document: Any, arrays: dict[str, Array]) -> Any:
    if not isinstance(document, dict):
        return document
    try:
        if "array" in document:
            return arrays[document["array"]]
        if "float" in document:
            return float(document["float"])
        if "integers" in document:
            return Ids(pl.Series(arrays[document["integers"]]))
        if "strings" in document:
            return _unpack_strings(arrays, document["strings"])
        kind = Component._kinds[document["class"]]
        made = kind(**{name: _unpack(value, arrays) for name, value in document["params"].items()})
        for name, value in document["fitted"].items():
            setattr(made, name, _unpack(value, arrays))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"the saved cutoff is damaged or of another version ({error}); fit it again."
        ) from None
    return made


def _unpack_strings(arrays: dict[str, Array], name: str) -> Ids:
    text, ends = arrays[f"{name}.text"].tobytes(), np.cumsum(arrays[f"{name}.lengths"])
    starts = np.append(0, ends[:-1])
    return Ids(
        pl.Series(
            [text[start:end].decode() for start, end in zip(starts, ends, strict=True)], dtype=pl.String
        )
    )
