"""`shortlist recommend`: lists of a saved model, for some users on the screen or for all in a file."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.inspect import Model
from shortlist.cli.lists import as_json, drawn, lengths_drawn, outside_ids
from shortlist.cli.progress import counted
from shortlist.cli.screen import Json, show, show_json, show_text
from shortlist.cli.training import Seen, keeps_seen
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.ranked_lists import RankedLists
    from shortlist.models import Recommender

WITHHELD = 5  # items shown below the line


@Parameter(name="*")
@dataclass(frozen=True)
class Wishes:
    """What may be on a list and how long it may be."""

    N: Annotated[int | None, Parameter(help="Plain top-N.")] = None
    boundary: Annotated[
        bool, Parameter(help="The learned boundary decides, not the saved cutoff.", show_default=False)
    ] = False
    cutoff: Annotated[Path | None, Parameter(help="Folder of another fitted cutoff.")] = None
    min_items: Annotated[int, Parameter(help="Fill shorter lists up with the next best.")] = 0
    max_items: Annotated[int | None, Parameter(help="The longest list allowed.")] = None
    candidates: Annotated[
        Path | None, Parameter(help="Only these items: a text file with one item id per line.")
    ] = None
    seen: Annotated[Seen, Parameter(help="Whether items taken before may be shown again.")] = "auto"
    fallback: Annotated[
        Literal["none", "popular"], Parameter(help="What to show instead of an empty list.")
    ] = "none"


DEFAULTS = Wishes()


def recommend(
    model: Model,
    /,
    *,
    user: Annotated[
        tuple[str, ...],
        Parameter(help="User id; repeat for several.", show_default=False, consume_multiple=False),
    ] = (),
    out: Annotated[
        Path | None, Parameter(help="Write the lists as .parquet, .csv or .jsonl; everybody's if no --user.")
    ] = None,
    wishes: Wishes = DEFAULTS,
    json: Json = False,
) -> None:
    """Lists that stop by themselves, each with the reason why it ends.

    For example:
      shortlist recommend shop --user u1
      shortlist recommend shop --out lists.parquet
    """
    from shortlist.cutoff import Cutoff

    found = sl.load_model(model)
    users = outside_ids(user, found.users_) or None
    asked: dict[str, Any] = {
        "N": wishes.N,
        "cutoff": Cutoff.load(wishes.cutoff) if wishes.cutoff else "boundary" if wishes.boundary else "auto",
        "candidates": None if wishes.candidates is None else listed(wishes.candidates, found),
        "filter_seen": not keeps_seen(wishes.seen, found.history_),
        "min_items": wishes.min_items,
        "max_items": wishes.max_items,
        "fallback": None if wishes.fallback == "none" else wishes.fallback,
    }
    if out is not None:
        return written(out, found, users, asked, json)
    lists = found.recommend(users, **asked)
    if json:
        return show_json([as_json(one, found.history_) for one in lists])
    if users is None:
        return show(lengths_drawn(lists))
    ranked = ranking(found, users, lists, asked)
    return show(
        *(drawn(one, ranked.at(at), found.history_, withheld=WITHHELD) for at, one in enumerate(lists)),
    )


def ranking(
    model: "Recommender", users: list[Any], lists: "RankedLists", asked: dict[str, Any]
) -> "RankedLists":
    """What the lists were cut from, with the probabilities that cut them."""
    several = {name: asked[name] for name in ("candidates", "filter_seen")}
    decider = (
        asked["cutoff"] if not isinstance(asked["cutoff"], str) else None if asked["N"] else model.cutoff_
    )
    depth = int(lists.lengths.max(initial=0)) + WITHHELD
    ranked = model.recommend(
        users, N=depth if decider is None else max(depth, decider.candidates_needed()), **several
    )
    if decider is None or not hasattr(decider, "calibration_"):
        return ranked
    chances = decider.calibration_.probabilities(ranked, history=model.history_)
    return replace(ranked, probabilities=chances) if chances.size == ranked.items.size else ranked


def written(
    out: Path, model: "Recommender", users: list[Any] | None, asked: dict[str, Any], json: bool
) -> None:
    """Lists in a file; Parquet is streamed, so that memory does not grow with the number of users."""
    if out.suffix == ".parquet":
        with counted("lists") as progress:
            model.recommend_to_file(out, users, progress=progress, **asked)
    else:
        model.recommend(users, **asked).write(out)
    n = len(model.users_) if users is None else len(users)
    if json:
        return show_json({"lists": n, "out": str(out)})
    return show_text(f"{n:,} lists in {out}")


def listed(path: Path, model: "Recommender") -> list[Any]:
    """Item ids from a text file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file of candidates; write one item id per line into it.")
    try:
        names = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: candidates must be UTF-8 text, one item id per line; got other bytes."
        ) from None
    return outside_ids([name.strip() for name in names if name.strip()], model.items_)
