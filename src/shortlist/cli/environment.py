"""Parameters from the environment: SHORTLIST_N_FACTORS=64 is --n_factors 64; flags win over it."""

import difflib
import os
from typing import TYPE_CHECKING

from cyclopts import ArgumentCollection
from cyclopts.config import Env

from shortlist.cli.params import PARAMETERS
from shortlist.cli.screen import say
from shortlist.cli.source import COLUMNS

if TYPE_CHECKING:
    from cyclopts import App

PREFIX = "SHORTLIST_"
ALIKE = 0.85  # so like a parameter's name that it must be a slip; other names are not ours to judge


def environment(app: "App", commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in the model, hyper-parameters and columns that no flag has named, never where files go."""
    ours = {group.name for group in (PARAMETERS, COLUMNS)}
    fillable = ArgumentCollection(  # type: ignore[no-untyped-call]
        one
        for one in arguments
        if one.name == "--model" or (one.name != "--set" and _groups(one.parameter.group) & ours)
    )
    Env(PREFIX, command=False)(app, commands, fillable)
    known = [PREFIX + one.name.lstrip("-").upper() for one in fillable if one.name.startswith("--")]
    for name in sorted(os.environ):
        near = difflib.get_close_matches(name, known, 1, ALIKE) if name.startswith(PREFIX) else []
        if near and name not in known:
            say(f"{name} is no parameter and is left alone; did you mean {near[0]}?")


def _groups(groups: object) -> set[str]:
    found = groups if isinstance(groups, tuple) else (groups,)
    return {str(getattr(group, "name", group)) for group in found}
