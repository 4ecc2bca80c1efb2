"""`shortlist demo`: the main job on real data, in a minute."""

from typing import TYPE_CHECKING

import shortlist as sl
from shortlist.cli.screen import Json, say, show_json, show_text
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions


def demo(*, json: Json = False) -> None:
    """Load MovieLens (or the built-in sample where it cannot be had), split it, and say what was found.

    For example:
      shortlist demo
    """
    name, data = movies_or_groceries()
    split = sl.split.last_basket(data)
    if json:
        return show_json({"dataset": name, "rows": data.n_rows, "users": data.n_users, "items": data.n_items})
    show_text(f"{name}: {data}\n{split}")
    return None


def movies_or_groceries() -> "tuple[str, Interactions]":
    """MovieLens-100K, or the generated sample and a word about why."""
    try:
        return "ml-100k", sl.load("ml-100k", progress=say)
    except DataError as error:
        say(f"{error} The demo goes on with the built-in sample.")
        return "sample", sl.load("sample")
