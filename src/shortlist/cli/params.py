"""Hyperparameters as flags, generated from the dataclass fields and docstrings of the models."""

import inspect
import re
from dataclasses import asdict, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Group, Parameter

from shortlist.auto.tune import read_tuned
from shortlist.cli.source import HYPERPARAMETERS, PARAMETERS
from shortlist.errors import ConfigError
from shortlist.models.base import MODEL_MODULES, find_model_class

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions

CLASSES = [find_model_class(name) for name in MODEL_MODULES if name != "PrecomputedScores"]
ValidationName = Literal["last-basket", "by-time"]
VALIDATIONS: dict[str, Literal["last_basket", "by_time"]] = {
    "last-basket": "last_basket",
    "by-time": "by_time",
}
FACTOR_MODELS = ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM")
PANELS = (FACTOR_MODELS, ("HRM", "DKHRM"), ("DKBPRMF", "DKHRM"), ("TwoStage",))  # of the help, in this order
CONFIG_HELP = "TOML file with a model and its parameters, as written by tune; flags take precedence."


def describe_parameters(cls: type) -> dict[str, str]:
    """First sentence of every parameter in a NumPy-style docstring."""
    _, _, section = (inspect.getdoc(cls) or "").partition("Parameters\n----------\n")
    found = {}
    for names, text in re.findall(r"^(\w[\w, ]*)\n((?:    .*\n?)+)", section, re.MULTILINE):
        sentence = re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]
        found.update(dict.fromkeys(names.split(", "), sentence))
    return found


def find_panel(owners: set[str]) -> tuple[str, ...]:
    """The models in whose panel of the help a parameter of `owners` stands; () for the first panel."""
    inside = [panel for panel in PANELS if owners.issuperset(panel)]
    return inside[0] if inside and owners <= {*FACTOR_MODELS, "TwoStage", "EASE", "UPCF"} else ()


def _build_flags() -> list[tuple[str, Any, None]]:
    """One optional flag per parameter of any model, with every meaning that models give it."""
    types: dict[str, Any] = {}
    texts: dict[str, dict[str, list[str]]] = {}  # of each parameter: meaning, and the models that give it
    owners: dict[str, set[str]] = {}
    for cls in CLASSES:
        hints, described = get_type_hints(cls), describe_parameters(cls)
        for field in fields(cls):
            types.setdefault(field.name, hints[field.name])
            owners.setdefault(field.name, set()).add(cls.__name__)
        for name, text in described.items():
            if not text.startswith("As in"):
                texts.setdefault(name, {}).setdefault(text, []).append(cls.__name__)
    groups: dict[tuple[str, ...], Group] = {(): PARAMETERS}
    for number, panel in enumerate(PANELS):
        groups[panel] = Group(f"{HYPERPARAMETERS} of {', '.join(panel)}", sort_key=8.1 + number / 10)
    flags = []
    for name, hint in types.items():
        panel = find_panel(owners[name])
        first, *others = texts.get(name, {"": []})
        elsewhere = {model: text for text in others for model in texts[name][text]}
        rest = [cls.__name__ for cls in CLASSES if cls.__name__ in owners[name] - {*panel, *elsewhere}]
        also = f" {'Also for' if panel else 'For'} {', '.join(rest)}." if rest else ""
        different = "".join(f" {', '.join(texts[name][text])}: {text}" for text in others)
        about = Parameter(help=first + also + different, group=groups[panel])
        flags.append((name, Annotated[hint | None, about], None))
    return flags


if TYPE_CHECKING:
    Params = Any
    ModelName = str
else:
    ModelName = Literal[tuple(cls.__name__ for cls in CLASSES)]
    config = ("config", Annotated[Path | None, Parameter(help=CONFIG_HELP)], None)
    Params = Parameter(name="*", group=PARAMETERS)(
        make_dataclass("Params", [config, *_build_flags()], namespace={"__module__": __name__}, frozen=True)
    )

DEFAULTS: Params = Params()


def given(params: Params) -> dict[str, Any]:
    """The hyperparameters that were set, by name."""
    return {name: value for name, value in asdict(params).items() if name != "config" and value is not None}


def choose_model(name: str | None, params: Params, data: "Interactions") -> tuple[str, dict[str, Any]]:
    """(name, parameters): flags and environment first, then the file, then the default for the data."""
    chosen, settings = name_model(name, params)
    default = "DKHRM" if data.n_baskets > data.active_users.size else "DKBPRMF"  # HRM needs baskets
    return chosen or default, settings


def name_model(name: str | None, params: Params) -> tuple[str | None, dict[str, Any]]:
    """(name, parameters): flags and environment first, then the file; None if no model is named."""
    from_file, tuned = None, dict[str, Any]()
    if params.config is not None:
        from_file, tuned = read_tuned(params.config)
        if name not in (None, from_file):
            raise ConfigError(
                f"{params.config} has parameters of {from_file}, got model {name}; drop --model or --config."
            )
    return name or from_file, tuned | given(params)
