"""`shortlist inspect`: what a saved model is, for people."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from shortlist.cli.fit import summary
from shortlist.cli.screen import Json, show_json, show_table

if TYPE_CHECKING:
    from shortlist.models import Recommender

Model = Annotated[Path, Parameter(help="Folder written by `shortlist fit` or `model.save`.")]


def inspect(model: Model, /, *, json: Json = False) -> None:
    """Show what a model was trained on, its parameters, how far its boundaries spread, and its checksums.

    For example:
      shortlist inspect shop
    """
    import shortlist as sl
    from shortlist.data.store import read_header

    found = sl.load_model(model)
    about = summary(found, model) | {"boundary": spread(found), "sha256": read_header(model)["sha256"]}
    if json:
        return show_json(about)
    plain = [(key, value) for key, value in about.items() if not isinstance(value, dict)]
    show_table(("", str(model)), plain)
    for key in ("params", "boundary", "sha256"):
        if about[key]:
            show_table((key, ""), [(name, str(value)) for name, value in about[key].items()])
    return None


def spread(model: "Recommender") -> dict[str, float]:
    """Quantiles of t_u over the users with a past; nothing for a model that only ranks."""
    import numpy as np

    bounds = model.boundaries(model.past.active_users)
    if bounds is None:
        return {}
    quantiles: Any = np.quantile(bounds, (0, 0.05, 0.5, 0.95, 1))
    names = ("lowest", "5%", "median", "95%", "highest")
    return {name: round(float(value), 4) for name, value in zip(names, quantiles, strict=True)}
