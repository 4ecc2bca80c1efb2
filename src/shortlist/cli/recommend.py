"""`shortlist recommend`: lists of a saved model, printed or written to a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.display import Row, lengths_table, list_as_json, list_table, parse_ids
from shortlist.cli.screen import Json, show, show_json, show_text
from shortlist.cli.source import Model
from shortlist.errors import ConfigError, DataError
from shortlist.text import printable

if TYPE_CHECKING:
    from shortlist.cutoff.base import Cutoff
    from shortlist.models.base import Recommender

WITHHELD = 5  # candidates shown below the end of the list


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """Which items may be on a list, and how long it may be."""

    N: Annotated[int | None, Parameter(help="The same length for all users.")] = None
    boundary: Annotated[
        bool, Parameter(help="Use the learned boundary instead of the saved cutoff.", show_default=False)
    ] = False
    cutoff: Annotated[Path | None, Parameter(help="File with another fitted cutoff.")] = None
    min_items: Annotated[int, Parameter(help="Fill shorter lists with the next candidates.")] = 0
    max_items: Annotated[int | None, Parameter(help="Maximum length of a list.")] = None
    candidates: Annotated[
        Path | None, Parameter(help="Recommend only these items: a text file with one item id per line.")
    ] = None
    seen: Annotated[
        Literal["auto", "keep", "drop"], Parameter(help="Whether items from the history may be recommended.")
    ] = "auto"
    at: Annotated[
        str | None, Parameter(help="Time of the recommendation, such as 2024-05-01; default: the last event.")
    ] = None
    fallback: Annotated[
        Literal["none", "popular"], Parameter(help="What to recommend instead of an empty list.")
    ] = "none"


DEFAULTS = Options()


def recommend(
    model: Model,
    /,
    *,
    user: Annotated[
        tuple[str, ...],
        Parameter(
            help="User id; repeat the flag for more users.", show_default=False, consume_multiple=False
        ),
    ] = (),
    out: Annotated[
        Path | None, Parameter(help="Write the lists as .parquet, .csv or .jsonl; all users without --user.")
    ] = None,
    options: Options = DEFAULTS,
    json: Json = False,
) -> None:
    """Recommend lists from a saved model.

    The length of each list is chosen for the user, and each list has a reason why it ends.

    For example:
      shortlist recommend shop.shortlist --user u1
      shortlist recommend shop.shortlist --out lists.parquet
    """
    fitted = sl.load_model(model)
    users = parse_ids(user, fitted.users_) or None
    which: dict[str, Any] = {
        "cutoff": choose_cutoff(options),
        "candidates": None if options.candidates is None else read_ids(options.candidates, fitted),
        "filter_seen": None if options.seen == "auto" else options.seen == "drop",
        "at": options.at,
    }
    request = which | {
        "N": options.N,
        "min_items": options.min_items,
        "max_items": options.max_items,
        "fallback": None if options.fallback == "none" else options.fallback,
    }
    if out is not None:
        return write_lists(out, fitted, users, request, json)
    lists = fitted.recommend(users, **request)
    if json:
        return show_json([list_as_json(one, fitted.history_) for one in lists])
    if users is None:
        return show(lengths_table(lists))
    data = fitted.history_
    for one in lists:
        rows: list[Row] = []
        if one.user_id in fitted.users_:
            explained = fitted.explain(one.user_id, N=len(one) + WITHHELD, n_contributions=0, **which)
            rows = explained.select("item_id", "score", "probability").rows()
        show(list_table(one, rows, data, max_withheld=WITHHELD))
    return None


def choose_cutoff(options: Options) -> "Cutoff | Literal['auto', 'boundary']":
    """Load the cutoff given by a flag, or name the one to use."""
    if options.cutoff is not None:
        if options.boundary:
            raise ConfigError("--boundary and --cutoff exclude each other; drop one of them.")
        return sl.cutoff.Cutoff.load(options.cutoff)
    return "boundary" if options.boundary else "auto"


def write_lists(
    out: Path, model: "Recommender", users: list[Any] | None, request: dict[str, Any], json: bool
) -> None:
    """Write lists to a file; Parquet is written in batches, so that memory stays bounded."""
    from shortlist.tuning.progress import show_progress

    if out.suffix == ".parquet":
        with show_progress() as display:
            model.recommend_to_file(
                out, users, progress=lambda done, total: display.update("lists", done, total), **request
            )
    else:
        model.recommend(users, **request).write(out)
    n = len(model.users_) if users is None else len(users)
    if json:
        return show_json({"lists": n, "out": str(out)})
    return show_text(f"{n:,} lists written to {printable(out)}")


def read_ids(path: Path, model: "Recommender") -> list[Any]:
    """Read item ids from a text file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; --candidates needs a text file with one item id per line.")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise DataError(
            f"{path} must be UTF-8 text with one item id per line, got other bytes; convert it."
        ) from None
    return parse_ids([line.strip() for line in lines if line.strip()], model.items_)
