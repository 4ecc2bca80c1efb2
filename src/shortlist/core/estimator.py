"""Base class of cutoffs, calibrations and size models: parameters, cloning, saving and loading."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.serialization import Arrays, Artifact, load_artifact, save_artifact
from shortlist.errors import ConfigError, ModelFileError, NotFittedError

Array = npt.NDArray[Any]


@dataclass(kw_only=True, eq=False)
class Estimator:
    """The dataclass fields are the parameters; attributes that end in `_` hold what `fit` learned."""

    kind: ClassVar[str] = "estimator"
    registry: ClassVar[dict[str, type["Estimator"]]] = {}  # by name, to restore saved objects

    def __init_subclass__(cls) -> None:
        Estimator.registry[cls.__name__] = cls

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep
            Ignored; accepted for compatibility with scikit-learn.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; the object becomes unfitted.

        Parameters
        ----------
        **params
            New values by parameter name.
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                near = get_close_matches(name, known, 1)
                advice = f"did you mean {near[0]!r}?" if near else f"its parameters are {', '.join(known)}."
                raise ConfigError(f"{type(self).__name__} has no parameter {name!r}; {advice}")
        for name, value in params.items():
            setattr(self, name, value)
        for name in self.fitted():
            delattr(self, name)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy with the same parameters."""
        return type(self)(**self.get_params())

    def fitted(self) -> dict[str, Any]:
        """Return what `fit` learned, by attribute name; empty before `fit`."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def need(self, name: str) -> Any:
        """Return a fitted attribute, or raise NotFittedError.

        Parameters
        ----------
        name
            The name of the attribute.
        """
        if name not in vars(self):
            raise NotFittedError(
                f"{type(self).__name__} was used before it was fitted; call fit(scores, truth) first."
            )
        return vars(self)[name]

    def save(self, path: str | Path) -> Path:
        """Save to one safetensors file, without pickle.

        Parameters
        ----------
        path
            The file to write.
        """
        arrays: dict[str, Array] = {}
        series: dict[str, pl.Series] = {}
        packed = pack(self, "", arrays, series)
        notes = {"fitted": packed["fitted"]}
        return save_artifact(
            path, Artifact(self.kind, packed["class"], packed["params"], arrays, series, notes)
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load what `save` wrote; every byte is verified.

        Parameters
        ----------
        path
            A file written by `save`.
        """
        artifact = load_artifact(path, cls.kind)
        packed = {
            "class": artifact.name,
            "params": artifact.params,
            "fitted": artifact.notes.get("fitted"),
        }
        try:
            loaded = unpack(packed, artifact.arrays, artifact.series)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"{path} holds a {cls.kind} this version cannot load ({error!r}); fit and save it again."
            ) from None
        if not isinstance(loaded, cls):
            raise ModelFileError(
                f"{path} holds a {artifact.name}, not a {cls.__name__}; use {artifact.name}.load."
            )
        return loaded


def pack(value: Any, name: str, arrays: dict[str, Array], series: dict[str, pl.Series]) -> Any:
    """Convert a value to JSON; arrays and series move to `arrays` and `series` under their dotted names."""
    if isinstance(value, Estimator):
        prefix = f"{name}." if name else ""
        params, fitted = (
            {key: pack(one, prefix + key, arrays, series) for key, one in part.items()}
            for part in (value.get_params(), value.fitted())
        )
        return {"class": type(value).__name__, "params": params, "fitted": fitted}
    if isinstance(value, pl.Series):
        series[name] = value
        return {"series": name}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    return value


def unpack(packed: Any, arrays: Arrays, series: Mapping[str, pl.Series]) -> Any:
    """The inverse of `pack`."""
    if isinstance(packed, list):
        return tuple(packed)
    if not isinstance(packed, dict):
        return packed
    if "array" in packed:
        return arrays[packed["array"]]
    if "series" in packed:
        return series[packed["series"]]
    if "float" in packed:
        return float(packed["float"])
    estimator = Estimator.registry[packed["class"]](
        **{name: unpack(value, arrays, series) for name, value in packed["params"].items()}
    )
    for name, value in packed["fitted"].items():
        setattr(estimator, name, unpack(value, arrays, series))
    return estimator


def check_number(minimum: float, **values: Any) -> None:
    """Raise ConfigError for a value that is not a finite number of at least `minimum`."""
    for name, value in values.items():
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not minimum <= value < np.inf:
            raise ConfigError(f"{name} must be a number of at least {minimum}, got {value!r}.")


def check_whole(minimum: int, **values: Any) -> None:
    """Raise ConfigError for a value that is not a whole number of at least `minimum`."""
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < minimum:
            raise ConfigError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")


def check_fraction(**values: Any) -> None:
    """Raise ConfigError for a value that is not in (0, 1]."""
    for name, value in values.items():
        check_number(0, **{name: value})
        if not 0 < value <= 1:
            raise ConfigError(f"{name} must be above 0 and at most 1, got {value!r}.")
