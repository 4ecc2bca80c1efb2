"""Hyper-parameters as flags, spelled as in Python; what is not given stays as the model has it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import ArgumentCollection, Group, Parameter

from shortlist.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts import App

    from shortlist.data.interactions import Interactions
    from shortlist.models import Recommender

Name = Literal[
    "DKHRM",
    "DKBPRMF",
    "HRM",
    "BPRMF",
    "LogMF",
    "CRRMF",
    "TwoStage",
    "TIFUKNN",
    "EASE",
    "PersonalFrequency",
    "Popularity",
]
PARAMETERS = Group(
    "Hyper-parameters, where the model's own are not wanted",
    help="Also from the environment, as SHORTLIST_N_FACTORS=64; flags win over it, and it over --config.",
    sort_key=8,
)


def whole_numbers(app: "App", commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse 1.5 where a whole number is wanted; the parser would round it."""
    for argument in arguments:
        kinds = {argument.hint, *get_args(argument.hint)}
        for token in argument.tokens if int in kinds and float not in kinds else ():
            try:
                whole = float(token.value).is_integer()
            except ValueError:  # a word, or what the parser refuses better
                continue
            if not whole:
                raise ConfigError(f"{argument.name} must be a whole number, got {token.value}; pass one.")


@Parameter(name="*", group=PARAMETERS)
@dataclass(frozen=True)
class Params:
    """None means the model's default."""

    config: Annotated[
        Path | None, Parameter(help="TOML file of a model and its parameters, as tune writes; flags win.")
    ] = None
    n_factors: Annotated[int | None, Parameter(help="Length of the vectors.")] = None
    n_epochs: Annotated[int | None, Parameter(help="Passes over the data, at most.")] = None
    lr: Annotated[float | None, Parameter(help="Step size.")] = None
    reg: Annotated[float | None, Parameter(help="L2 on all vectors.")] = None
    alpha: Annotated[float | None, Parameter(help="Share of classification: 0 ranks, 1 classifies.")] = None
    t: Annotated[float | None, Parameter(help="Where every boundary starts.")] = None
    lambda_t: Annotated[float | None, Parameter(help="How strongly boundaries are drawn to t.")] = None
    negatives: Annotated[
        float | Literal["uniform"] | None, Parameter(help="Per positive: the strictness of the boundary.")
    ] = None
    seed: Annotated[int | None, Parameter(help="Same seed, same bits.")] = None
    n_threads: Annotated[int | None, Parameter(help="0 takes every core.")] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(
            help="Any other parameter, as NAME=VALUE; repeat at will.",
            show_default=False,
            consume_multiple=False,
        ),
    ] = ()

    def given(self) -> dict[str, Any]:
        """What was said, by name."""
        said = {name: value for name, value in asdict(self).items() if name not in ("set", "config")}
        named = {name: value for name, value in said.items() if value is not None}
        return named | dict(map(assignment, self.set))

    def only(self, *names: str) -> bool:
        """Whether nothing was said but these."""
        return self.config is None and set(self.given()) <= set(names)


DEFAULTS = Params()


def assignment(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where VALUE is a number, true, false, null, or else a word."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set takes NAME=VALUE, got {text!r}; write --set window=2.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def chosen_model(name: Name | None, params: Params, data: "Interactions") -> tuple[str, dict[str, Any]]:
    """(name, parameters): flags, environment, file, what suits the data, in this order."""
    filed, tuned = None, dict[str, Any]()
    if params.config is not None:
        from shortlist.tuning.tune import read_tuned

        filed, tuned = read_tuned(params.config)
        if name not in (None, filed):
            raise ConfigError(f"{params.config} holds parameters of {filed}, got model {name}; name one.")
    # HRM needs to know what came before what
    suited = "DKHRM" if data.n_baskets > data.active_users.size else "DKBPRMF"
    return name or filed or suited, tuned | params.given()


def model_of(name: Name | None, params: Params, data: "Interactions") -> "Recommender":
    """The model by name, or from the file, or the one that suits the data."""
    from shortlist.tuning.validation import build_model

    return build_model(*chosen_model(name, params, data))
