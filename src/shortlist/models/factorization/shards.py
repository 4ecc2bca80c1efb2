"""Shards: a factor model as a folder of files, each with the users of one worker and all items."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.ragged import starts
from shortlist.core.serialization import save_artifact
from shortlist.cutoff.basket_size import BasketSize
from shortlist.data.data_source import DataSource
from shortlist.data.history import History, Totals
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.user_slices import UserSlices, without_rows
from shortlist.errors import ModelFileError
from shortlist.kernels.mf import Parameters
from shortlist.models.factorization.engine import FactorModel
from shortlist.models.factorization.parameters import freeze
from shortlist.models.factorization.trainer import BY_USER
from shortlist.models.factorization.training import TrainingState

NO_USERS = IdMap(pl.Series([], dtype=pl.Int64))
NAME = re.compile(r"shard-(\d{5})-of-(\d{5})\.shortlist")


@dataclass(frozen=True, eq=False)
class Shard:
    """What the files of all workers have in common."""

    model: FactorModel
    items: IdMap
    item_names: pl.Series | None
    source: DataSource | None
    totals: Totals  # of all users
    mean: dict[str, Any]  # the parameters of the mean user
    run: TrainingState
    side: Any  # what scores need of the rows of all users
    next_size: BasketSize | None

    def save(self, path: Path, users: UserSlices, parameters: Parameters) -> None:
        """Write the model of some users; their rows go to the file part by part."""
        model, rows = self.model, users.store(self.items, self.item_names, self.source, self.totals)
        empty = without_rows(NO_USERS, self.items)
        state = model._build_state(empty, freeze(parameters), self.mean, self.run, self.side, self.next_size)
        save_artifact(path, model._artifact(model._with_fingerprint(state), rows))


def shard_paths(folder: Path, n: int) -> list[Path]:
    """The files of n shards."""
    return [folder / f"shard-{number:05}-of-{n:05}.shortlist" for number in range(n)]


def remove_shards(folder: Path) -> None:
    """Remove the files of shards."""
    for path in folder.iterdir():
        if NAME.fullmatch(path.name):
            path.unlink(missing_ok=True)


def find_shards(folder: Path) -> list[Path]:
    """The files of all shards of a folder."""
    found = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
    match = NAME.fullmatch(found[0].name) if found else None
    expected = shard_paths(folder, 0 if match is None else int(match[2]))
    if not found or found != expected:
        missing = next((path.name for path in expected if path not in found), "shard-00000-of-…")
        raise ModelFileError(
            f"{folder} must hold all shards of one model, but {missing} is missing or others are there too; "
            "run fit_to_folder again."
        )
    return found


def join_shards(models: list[Any], folder: Path) -> Any:
    """One model with the users of all shards; the same, bit for bit, as if it had been fitted whole."""
    first, states = models[0], [model._fitted_state() for model in models]
    for model, state in zip(models, states, strict=True):
        alike = type(model) is type(first) and model.get_params() == first.get_params()
        if not alike or state.history.items != states[0].history.items:
            raise ModelFileError(f"{folder} must hold shards of one model; load them one by one.")
    users = {name: np.concatenate([getattr(state.parameters, name) for state in states]) for name in BY_USER}
    history = join_users([state.history.merged for state in states])
    parameters = freeze(states[0].parameters._replace(**users))
    state = replace(
        states[0], history=History.of(history), parameters=parameters, side=first.side_data(history)
    )
    whole = type(first)(**first.get_params())
    whole._state = whole._with_fingerprint(state)
    return whole


def join_users(parts: list[Interactions]) -> Interactions:
    """The rows of several Interactions over the same items; their users follow each other."""

    def stack(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    def offsets(name: str) -> Any:
        return starts(np.concatenate([np.diff(getattr(part, name)) for part in parts]))

    for one, other in pairwise(parts):
        if one.users.values.dtype != other.users.values.dtype:
            raise ModelFileError("the users of all shards must have ids of one type; fit the model again.")
    return replace(
        parts[0],
        users=IdMap(pl.concat([part.users.values for part in parts])),
        indptr=offsets("indptr"),
        item=stack("item"),
        baskets=offsets("baskets"),
        user_baskets=offsets("user_baskets"),
        time=stack("time"),
        weight=stack("weight"),
        duplicates=sum(part.duplicates for part in parts),
    )
