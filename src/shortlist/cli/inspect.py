"""`shortlist inspect`: show what a saved model contains, or the parameters of a model by name."""

from typing import TYPE_CHECKING, Any

import shortlist as sl
from shortlist.cli.arguments import Model
from shortlist.cli.output import (
    Json,
    lengths_table,
    sample_lists,
    show,
    show_json,
    show_table,
    summarize_model,
)
from shortlist.core.options import describe_options

if TYPE_CHECKING:
    from shortlist.models.base import Recommender


def inspect_command(model: Model, /, *, json: Json = False) -> None:
    """Show what a saved model contains.

    Prints the size of the data, parameters, boundaries, list lengths and the
    checksum. The name of a model instead of a file lists the hyperparameters
    for --set.

    For example:
      shortlist inspect shop.shortlist
      shortlist inspect BPRMF
    """
    import numpy as np

    from shortlist.core.codec import read_header
    from shortlist.models.base import model_names

    if str(model) in model_names() and not model.exists():
        return inspect_class(str(model), json)
    fitted = sl.load_model(model)
    lists = sample_lists(fitted)
    lengths = {}
    if lists is not None:
        values, counts = np.unique(lists.lengths, return_counts=True)
        lengths = {str(value): int(count) for value, count in zip(values, counts, strict=True)}
    about = summarize_model(fitted, model) | {
        "boundary": boundary_quantiles(fitted),
        "lengths": lengths,
        "sha256": read_header(model)["sha256"],
    }
    if json:
        return show_json(about)
    show_facts(about, "params", "boundary")
    if lists is not None:
        show(lengths_table(lists))
    if fitted.selection_ is not None:
        show(fitted.selection_)
    return None


def inspect_class(name: str, json: bool) -> None:
    """Show the parameters of a model: their defaults and what they mean."""
    from shortlist.models.base import find_model_class

    model = find_model_class(name)
    rows = describe_options(model)
    if json:
        return show_json({row.name: row._asdict() for row in rows})
    return show_table((f"parameter of {name}", "rule", "default", "meaning"), rows)


def show_facts(about: dict[str, Any], *tables: str) -> None:
    """Print single values in one table, and each of these dictionaries in one of its own."""
    plain = [(key, value) for key, value in about.items() if not isinstance(value, dict | None)]
    show_table(("", str(about["model"])), plain)
    for key in tables:
        if about[key]:
            show_table((key, ""), [(name, str(value)) for name, value in about[key].items()])


def boundary_quantiles(model: "Recommender") -> dict[str, float]:
    """Quantiles of the learned boundaries of all users with a history; empty if there are none."""
    import numpy as np

    if not model.has_boundary:
        return {}
    learned = model.boundaries(model.users_.to_ids(model.history_.active_users))
    assert learned is not None
    quantiles = np.quantile(learned, (0, 0.05, 0.5, 0.95, 1))
    names = ("lowest", "5%", "median", "95%", "highest")
    return {name: round(float(value), 4) for name, value in zip(names, quantiles, strict=True)}
