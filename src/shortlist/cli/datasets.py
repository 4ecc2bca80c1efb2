"""`shortlist datasets`: what can be loaded by name, and whether it is here already."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from shortlist.cli.screen import Json, say, show_json, show_table, show_text

if TYPE_CHECKING:
    from shortlist.data.catalogue import Dataset

datasets = App(
    name="datasets",
    help="Published datasets by name: list, fetch, show.\n\nFor example:\n  shortlist datasets show sample",
)
Name = Annotated[str, Parameter(help="As in `shortlist datasets list`.")]

Force = Annotated[
    bool, Parameter(help="Download again even if the cached copy is sound.", show_default=False)
]


@datasets.command(name="list")
def list_all(*, json: Json = False) -> None:
    """Every dataset that can be loaded by name.

    For example:
      shortlist datasets list
    """
    from shortlist.data.datasets import list_datasets

    known = [facts(dataset) for dataset in list_datasets()]
    if json:
        return show_json(known)
    rows = [(one["name"], one["title"], one["counts"], one["cached"]) for one in known]
    return show_table(("name", "what", "size", "here already"), rows)


@datasets.command
def fetch(name: Name, /, *, force: Force = False, json: Json = False) -> None:
    """Download a dataset into the user's cache and verify it; what is there already is not fetched again.

    For example:
      shortlist datasets fetch ml-100k
    """
    from shortlist.data.datasets import fetch as fetch_dataset
    from shortlist.data.datasets import find_dataset

    if find_dataset(name).is_generated:
        place = None
        say(f"{name} is generated on the spot; there is nothing to fetch.")
    else:
        place = str(fetch_dataset(name, progress=say, force=force))
    if json:
        show_json({"name": name, "folder": place})
    elif place:
        show_text(f"{name} is ready in {place}")


@datasets.command
def show(name: Name, /, *, json: Json = False) -> None:
    """What a dataset is, under which terms, and what is in it; fetches it if need be.

    For example:
      shortlist datasets show sample
    """
    from shortlist.data.datasets import find_dataset, load_dataset

    about = facts(find_dataset(name))
    data = load_dataset(name, progress=say)
    found = {
        "rows": data.n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "baskets": data.n_baskets,
        "fingerprint": data.fingerprint,
    }
    if json:
        return show_json(about | found)
    show_table(("", name), [(key, cell) for key, cell in about.items() if cell != ""])
    return show_table(("", "loaded"), list(found.items()))


def facts(dataset: "Dataset") -> dict[str, Any]:
    """What is known without fetching."""
    from shortlist.data.datasets import is_cached

    return {
        "name": dataset.name,
        "title": dataset.title,
        "home": dataset.home,
        "terms": dataset.terms,
        "counts": dataset.counts,
        "preset": dataset.preset,
        "cached": is_cached(dataset.name),
    }
