"""`shortlist inspect`: what a saved model is, for people."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from shortlist.cli.fit import summary
from shortlist.cli.lists import lengths_drawn
from shortlist.cli.screen import Json, show, show_json, show_table

if TYPE_CHECKING:
    from shortlist.data.ranked_lists import RankedLists
    from shortlist.models import Recommender

USERS = 2_000  # whose lists are counted; more would say the same and take longer
Model = Annotated[Path, Parameter(help="File written by `shortlist fit` or `model.save`.")]


def inspect(model: Model, /, *, json: Json = False) -> None:
    """Show what a model learned from, its parameters, its boundaries, how long its lists get, its checksum.

    For example:
      shortlist inspect shop
    """
    import shortlist as sl
    from shortlist.core.serialization import read_header

    found = sl.load_model(model)
    lists = some_lists(found)
    about = summary(found, model) | {
        "boundary": spread(found),
        "lengths": {} if lists is None else counted(lists),
        "sha256": read_header(model)["sha256"],
    }
    if json:
        return show_json(about)
    plain = [(key, value) for key, value in about.items() if not isinstance(value, dict | None)]
    show_table(("", str(model)), plain)
    for key in ("params", "boundary"):
        if about[key]:
            show_table((key, ""), [(name, str(value)) for name, value in about[key].items()])
        if key == "boundary" and lists is not None:
            show(lengths_drawn(lists))
    if getattr(found, "selection_", None) is not None:
        show(found.selection_)
    return None


def some_lists(model: "Recommender") -> "RankedLists | None":
    """Lists of the first users, as the model ends them; None for one that only ranks."""
    users = model.history_.active_users[:USERS]
    if model.cutoff_ is None and not model.has_boundary:
        return None
    return model.recommend(model.users_.to_ids(users))


def counted(lists: "RankedLists") -> dict[str, int]:
    """How many lists have which length."""
    import numpy as np

    found, counts = np.unique(lists.lengths, return_counts=True)
    return {str(length): int(count) for length, count in zip(found, counts, strict=True)}


def spread(model: "Recommender") -> dict[str, float]:
    """Quantiles of t_u over the users with a past; nothing for a model that only ranks."""
    import numpy as np

    bounds = model.boundaries(model.users_.to_ids(model.history_.active_users))
    if bounds is None:
        return {}
    quantiles: Any = np.quantile(bounds, (0, 0.05, 0.5, 0.95, 1))
    names = ("lowest", "5%", "median", "95%", "highest")
    return {name: round(float(value), 4) for name, value in zip(names, quantiles, strict=True)}
