"""Wishes: what was asked for, checked before any work is done."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from shortlist.cutoff.base import Cutoff
from shortlist.errors import ConfigError

FALLBACK_ITEMS = 10  # of a fallback list where nothing else limits it

Fallback = str | Callable[[Any], Iterable[Any]]

# what users of implicit call things
ALIASES = {
    "userid": "users",
    "filter_already_liked_items": "filter_seen",
    "items": "candidates",
    "filter_items": "exclude",
}


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How long lists may be, and what to do with empty ones."""

    N: int | None = None
    cutoff: Cutoff | None = None
    filter_seen: bool | None = None  # None: unless people take items again
    min_items: int = 0
    max_items: int | None = None
    fallback: Fallback = "none"

    def __post_init__(self) -> None:
        for name, least in (("N", 1), ("max_items", 1), ("min_items", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or int(value) != value or value < least):
                raise ConfigError(
                    f"{name} must be a whole number of at least {least}, got {value!r}; correct it."
                )
        if self.N is not None and self.cutoff is not None:
            raise ConfigError("N and cutoff both decide the length, got both; pass one of them.")
        if self.limit is not None and self.min_items > self.limit:
            raise ConfigError(
                f"min_items must not exceed N and max_items, got {self.min_items} and {self.limit}; "
                "lower the one or raise the other."
            )
        if not (callable(self.fallback) or self.fallback in ("none", "popular")):
            raise ConfigError(
                f"fallback must be none, popular or a callable from user_id, got {self.fallback!r}; choose."
            )

    @property
    def limit(self) -> int | None:
        """The most items a list may have."""
        given = [n for n in (self.N, self.max_items) if n is not None]
        return min(given) if given else None

    @property
    def fallback_limit(self) -> int:
        """The most items a fallback list may have."""
        return self.limit or max(self.min_items, FALLBACK_ITEMS)


def renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments under our names, where they were given under those of implicit."""
    ours = dict(arguments)
    for alias, name in ALIASES.items():
        if alias in ours:
            if name in ours:
                raise ConfigError(f"{alias} is another word for {name}, got both; pass one of them.")
            ours[name] = ours.pop(alias)
    return ours
