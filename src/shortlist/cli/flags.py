"""Flags of declared options: their types, defaults and help are those of the declaration.

This module is imported for every `--help`, so it loads neither models nor cutoffs. `--help` shows the usual
flags; `--help-all` also those whose help is declared as rare.
"""

from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, make_dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from cyclopts import Group, Parameter

from shortlist.core.options import (
    Form,
    Rare,
    annotations_of,
    find_default,
    find_note,
    help_texts,
    list_options,
    split_annotation,
)
from shortlist.core.task_options import EmptyListOptions
from shortlist.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

    from shortlist.core.metrics import Money


class Shown:
    """Whether help shows the rare flags, too."""

    everything = False


def show_rare(console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
    """Show the panel of the rare flags, or how many there are."""
    from cyclopts.help import DefaultFormatter

    if Shown.everything:
        DefaultFormatter()(console, options, panel)
    else:
        console.print(f"{len(panel.entries)} more flags: --help-all")


RARE_FLAGS = Group("Rarely needed", help_formatter=show_rare, sort_key=9)


def flags_of(declaration: type, *, is_settings: bool = False, **parameter: Any) -> Any:
    """A dataclass of the options that are offered as flags; settings have lower sources than flags."""
    flags = [
        flag_of(declaration, name, is_optional=is_settings) for name in list_options(declaration, "flag")
    ]
    return join_flags(flags, **parameter)


def flag_of(declaration: type, name: str, *, is_optional: bool = False) -> Any:
    """Name, type and default of the flag of an option, as a field of a dataclass; optional: None if unset."""
    annotation, default = annotations_of(declaration)[name], find_default(declaration, name)
    kind, text = plain_type(annotation), help_texts(declaration).get(name, "")
    form = find_note(annotation, Form)
    if form is not None and form.flag is not None:
        kind, default = plain_type(form.flag), () if form.flag == tuple[str, ...] else None
        text = form.help or text
    if is_optional:
        kind, default = kind | None, None
    settings: dict[str, Any] = {"help": text}
    if find_note(annotation, Rare) is not None:
        settings["group"] = RARE_FLAGS
    if kind == bool | None:
        settings["negative"] = f"--no_{name}"
    if kind == tuple[str, ...]:
        settings |= {"consume_multiple": True, "show_default": False}
    typed: Any = Annotated[kind, Parameter(**settings)]
    return (name, typed) if default is MISSING else (name, typed, default)


def join_flags(flags: Iterable[Any], **parameter: Any) -> Any:
    """A dataclass of flags, for the parser."""
    # the parser shows no fields of a class of the module "types"
    made = make_dataclass("Flags", flags, frozen=True, namespace={"__module__": __name__})
    return Parameter(name="*", **parameter)(made)


def plain_type(annotation: Any) -> Any:
    """The type without constraints, which the parser does not know."""
    kind = split_annotation(annotation)[0]
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, map(plain_type, get_args(kind)))
    return kind


# ---------------------------------------------------------------------- which lists stay empty
EmptyListFlags = flags_of(EmptyListOptions, is_settings=True)


TOGETHER = (("coverage",), ("floor",), ("gain", "cost"), ("items_per_list",), ("min_precision", "confidence"))


@Parameter(name="*", group=Group("When a list stays empty", sort_key=7))
@dataclass(frozen=True)
class CutoffFlags(EmptyListFlags):  # type: ignore[misc, valid-type]
    """Which users get an empty list: the flags of all cutoffs."""

    def given(self) -> dict[str, float]:
        """The flags that were set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def money(self) -> "Money | None":
        """What a shown item earns or costs; a missing flag has the default of ExpectedValue."""
        from shortlist.core.metrics import Money
        from shortlist.cutoff import ExpectedValue

        if self.gain is None and self.cost is None:
            return None
        default = ExpectedValue()
        gain, cost = default.gain if self.gain is None else self.gain, default.cost
        return Money.of(gain, cost if self.cost is None else self.cost)

    def rule(self) -> tuple[str, ...]:
        """The cutoffs that have the flags; empty without flags. Raises ConfigError for a contradiction."""
        from shortlist.cutoff import Cutoff

        given = self.given()
        groups = [names for names in ([n for n in group if n in given] for group in TOGETHER) if names]
        if len(groups) > 1:
            flags = " and ".join(f"--{names[0]}" for names in groups)
            raise ConfigError(f"{flags} exclude each other; drop one of them.")
        if self.confidence is not None and self.min_precision is None:
            raise ConfigError(
                "--confidence needs the precision to guarantee, got none; add --min_precision 0.2."
            )
        if not groups:
            return ()
        return tuple(name for name, kind in Cutoff.classes().items() if groups[0][0] in kind.flags)


NO_CUTOFF_FLAGS = CutoffFlags()
