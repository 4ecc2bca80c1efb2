"""`shortlist datasets`: published datasets by name."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from shortlist.cli.screen import Json, print_note, show_json, show_table, show_text

if TYPE_CHECKING:
    from shortlist.data.datasets import Dataset

datasets_command = App(name="datasets")  # its help is the summary in `app.COMMANDS`
Name = Annotated[str, Parameter(help="A name from `shortlist datasets list`.")]
Force = Annotated[bool, Parameter(help="Download again even if a valid copy is cached.", show_default=False)]


@datasets_command.command(name="list")
def list_all(*, json: Json = False) -> None:
    """List the datasets that can be loaded by name.

    For example:
      shortlist datasets list
    """
    from shortlist.data.datasets import list_datasets

    datasets = [describe(dataset) for dataset in list_datasets()]
    if json:
        return show_json(datasets)
    rows = [(about["name"], about["title"], about["counts"], about["cached"]) for about in datasets]
    return show_table(("name", "title", "size", "cached"), rows)


@datasets_command.command(name="fetch")
def fetch_dataset(name: Name, /, *, force: Force = False, json: Json = False) -> None:
    """Download a dataset into the user's cache and verify it, unless it is cached already.

    For example:
      shortlist datasets fetch ml-100k
    """
    from shortlist.data.datasets import fetch, find_dataset

    if find_dataset(name).is_generated:
        folder = None
        print_note(f"{name} is generated; there is nothing to fetch.")
    else:
        folder = str(fetch(name, progress=print_note, force=force))
    if json:
        show_json({"name": name, "folder": folder})
    elif folder:
        show_text(f"{name} is in {folder}")


@datasets_command.command(name="show")
def show_dataset(name: Name, /, *, json: Json = False) -> None:
    """Show the source, terms of use and size of a dataset; it is downloaded if necessary.

    For example:
      shortlist datasets show sample
    """
    from shortlist.data.datasets import find_dataset, load_dataset

    about = describe(find_dataset(name))
    data = load_dataset(name, progress=print_note)
    counts = {
        "rows": data.n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "baskets": data.n_baskets,
        "fingerprint": data.fingerprint,
    }
    if json:
        return show_json(about | counts)
    show_table(("", name), [(key, value) for key, value in about.items() if value != ""])
    return show_table(("", "loaded"), list(counts.items()))


def describe(dataset: "Dataset") -> dict[str, Any]:
    """Facts about a dataset that need no download."""
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
