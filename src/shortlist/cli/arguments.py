"""Arguments that several commands share: data and its columns, a saved model, hyperparameters, Spark."""

import os
import tomllib
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

import shortlist as sl
from shortlist.cli.flags import RARE_FLAGS, flags_of
from shortlist.cli.output import print_note
from shortlist.data.read_options import ReadOptions, name_flags, without_options
from shortlist.errors import ConfigError, DataError, DataWarning, ShortlistError
from shortlist.text import redact_uri

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shortlist.data.columns import DataSource
    from shortlist.data.interactions import Interactions
    from shortlist.data.items import Items
    from shortlist.data.lists import RankedLists
    from shortlist.models.base import Recommender


Source = Annotated[
    str,
    Parameter(help="CSV, TSV, Parquet or JSON Lines file, folder, database URI, or name of a dataset."),
]
Model = Annotated[Path, Parameter(help="File written by `shortlist fit` or `model.save`.")]
ServedModel = Annotated[Path, Parameter(help="The model file that `shortlist serve` was started with.")]
Store = Annotated[
    str | None, Parameter(help="Event store of the service; default: the file beside the model.")
]
COLUMNS = Group("How to read the data, if it is not recognized", sort_key=6)
PARAMETERS = Group(
    "Hyperparameters, if not the model's defaults",
    help="Environment variables such as SHORTLIST_N_FACTORS=64 work too. --set takes precedence over the "
    "environment, and the environment over --config. `shortlist inspect BPRMF` lists those of a model.",
    sort_key=8,
)
PREFIX = "SHORTLIST_"  # of environment variables


if TYPE_CHECKING:
    Reading = ReadOptions
else:
    Reading = flags_of(ReadOptions, group=COLUMNS)
BY_NAME = Reading()
ValidationName = Literal["last-basket", "by-time"]
VALIDATIONS: dict[str, Literal["last_basket", "by_time"]] = {
    "last-basket": "last_basket",
    "by-time": "by_time",
}


@Parameter(name="*", group=PARAMETERS)
@dataclass(frozen=True)
class Params:
    """The hyperparameters of a model.

    Parameters
    ----------
    set
        One or more parameters as NAME=VALUE, such as --set n_factors=64 lr=0.1.
    seed
        The same seed gives the same model, bit for bit.
    config
        TOML file with a model and its parameters, such as those of an earlier search.
    """

    set: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = ()
    seed: Annotated[int | None, Parameter(group=RARE_FLAGS)] = None
    config: Annotated[Path | None, Parameter(group=RARE_FLAGS)] = None

    def given(self) -> dict[str, Any]:
        """The parameters that were set by flags or in the environment, by name."""
        flags = {} if self.seed is None else {"seed": self.seed}
        return read_environment() | dict(map(parse_setting, self.set)) | flags


DEFAULTS = Params()


def parse_setting(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; the value is written as in TOML, and strings need no quotes."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigError(f"--set must be NAME=VALUE, got {text[:60]!r}; write --set n_factors=64.")
    return name.strip().replace("-", "_"), parse_value(value.strip())


def parse_group_limits(given: tuple[str, ...]) -> dict[str, Any] | None:
    """Field → number, from texts FIELD=NUMBER."""
    limits: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        if not name or not equals or name in limits:
            raise ConfigError(
                f"--max-per-group must be FIELD=NUMBER, each field once, got {text[:60]!r}; write "
                "--max-per-group category=2."
            )
        limits[name] = parse_value(value.strip())
    return limits or None


def parse_value(text: str) -> Any:
    """A value as in TOML: a number, a list, true or false; none; anything else is a string."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_environment() -> dict[str, Any]:
    """Hyperparameters from variables such as SHORTLIST_N_FACTORS."""
    names = parameter_names()
    return {name: parse_value(text) for name, text in list_variables().items() if name in names}


def list_variables() -> dict[str, str]:
    """Values of the variables that begin with the prefix, by the rest of their name, in lower case."""
    names = sorted(name for name in os.environ if name.startswith(PREFIX))
    return {name.removeprefix(PREFIX).lower(): os.environ[name] for name in names}


def parameter_names() -> set[str]:
    """The hyperparameters of all models; models are imported only if a variable could name one."""
    from dataclasses import fields

    from shortlist.models.base import find_model_class

    models = sl.MODEL_MODULES if list_variables() else ()
    return {field.name for model in models for field in fields(find_model_class(model))}


def choose_model(name: str | None, params: Params, data: "Interactions") -> tuple[str, dict[str, Any]]:
    """(name, parameters): flags and environment first, then the file, then the default for the data."""
    chosen, settings = name_model(name, params)
    default = "DKHRM" if data.n_baskets > data.active_users.size else "DKBPRMF"  # HRM needs baskets
    return chosen or default, settings


def name_model(name: str | None, params: Params) -> tuple[str | None, dict[str, Any]]:
    """(name, parameters): flags and environment first, then the file; None if no model is named."""
    from_file, settings = None, dict[str, Any]()
    if params.config is not None:
        from_file, settings = read_settings(params.config)
        if name not in (None, from_file):
            raise ConfigError(
                f"{params.config} has parameters of {from_file}, got model {name}; drop --model or --config."
            )
    return name or from_file, settings | params.given()


def read_settings(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a model's name and parameters from a TOML file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no parameter file at {path}; check the path.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path} is not TOML ({error}); correct it.") from None
    unknown = sorted(set(content) - {"model", "params"})
    if unknown:
        raise DataError(f"{path} may contain model and [params], got {unknown[0]!r} too; remove it.")
    model, settings = content.get("model"), content.get("params", {})
    if not isinstance(model, str) or not isinstance(settings, dict):
        raise DataError(
            f'{path} must contain model = "…" and a table [params], got {list(content)}; add them.'
        )
    return model, settings


def read_source(
    source: str, reading: Reading | None = None, *, training: bool = True, quiet: bool = False
) -> "Interactions":
    """Read interactions and print what was found, unless `quiet`; a plain word is the name of a dataset.

    Without `reading`, the command has no flags for it.
    """
    with warnings.catch_warnings(), advise_flags(reading):
        warnings.simplefilter("ignore", DataWarning)  # printed below
        if _is_dataset(source):
            if reading is not None and reading.min_rating is not None:
                raise ConfigError(
                    "min_rating needs a file with ratings, got the name of a dataset, which has no weights; "
                    "leave it out."
                )
            data = sl.load_dataset(source, progress=print_note)
        else:
            data = sl.read_interactions(source, training=training, **vars(reading or BY_NAME))
    if quiet:
        return data
    merged = f"; {data.duplicates:,} duplicate rows merged" if data.duplicates else ""
    label = redact_uri(source)
    print_note(f"{label}: {data.n_rows:,} rows, {data.n_users:,} users, {data.n_items:,} items{merged}")
    if training:
        from shortlist.data.profile import count_data

        counts = count_data(data)
        days = f", {counts['first day']} to {counts['last day']}" if "first day" in counts else ""
        print_note(
            f"{data.n_baskets:,} baskets of {data.mean_basket_size:.1f} items, {counts['repeats']:.0%} of "
            f"the rows are repeats{days}"
        )
    if data.source is not None:
        _print_source(data.source, () if reading is None else vars(reading))
    if data.weight is not None and training:
        print_note(
            "weights (ratings, quantities, …) count if the model takes --set weighting=linear, log or cap"
        )
    return data


def _is_dataset(source: str) -> bool:
    """Whether a source is a plain word, and no file."""
    return not Path(source).exists() and not any(character in source for character in "./\\:*")


@contextmanager
def advise_flags(reading: object | None) -> "Iterator[None]":
    """Let errors advise the flags of a command instead of options of `read_interactions`."""
    if reading is None:
        with without_options():
            yield
        return
    try:
        yield
    except ShortlistError as error:
        raise type(error)(name_flags(str(error), vars(reading)), parameter=error.parameter) from None


def _print_source(source: "DataSource", flags: "Collection[str]" = ()) -> None:
    """Print which columns were used, notes and doubts; advice that needs other flags is left out."""
    print_note(source.describe())
    for note in source.notes:
        print_note(f"{'warning' if note in source.doubts else 'note'}: {name_flags(note, flags)}")


def read_content(path: Path, groups: "Iterable[str] | None" = None) -> "Items":
    """Read the content of items, with the columns of `groups` as categories; print which are used."""
    with without_options():
        items = sl.read_items(path, categories=None if groups is None else list(groups))
    print_note(f"{path}: {items}")
    for note in items.source.notes:
        print_note(f"note: {name_flags(note, ())}")
    return items


def add_content(model: "Recommender", path: Path, groups: "Mapping[str, Any] | None" = None) -> None:
    """Add the items of a file to a model; a model that uses no content only gets the groups of items."""
    from shortlist.data.items import read_item_table
    from shortlist.models.content import ContentRecommender

    if not isinstance(model, ContentRecommender) or not model.has_content:
        if groups is not None:
            model.set_groups(read_content(path, groups), list(groups))
            return
        raise ConfigError(
            f"--items needs a model fitted with --items, got a {type(model).__name__} without; fit it "
            "again with shortlist fit --items."
        )
    table, label = read_item_table(path)
    before = len(model.items_)
    try:
        model.add_items(table)
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None
    print_note(f"{label}: {table.height:,} items, {len(model.items_) - before:,} of them new")


def read_lists(path: Path, what: str = "items") -> "RankedLists":
    """Read a file of lists or candidates and print its columns; flags for columns are not about it."""
    from shortlist.data.lists import describe_columns
    from shortlist.data.rankings import read_candidate_table

    frame = read_candidate_table(path)
    try:
        lists = sl.RankedLists.from_frame(frame)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    columns = describe_columns(frame.columns)
    print_note(f"{path}: {len(lists):,} lists, {lists.items.size:,} {what}; {columns}")
    return lists


def write_rows(data: "Interactions", path: Path) -> None:
    """Write interactions as .parquet or .csv, so that `read_source` can read them."""
    from shortlist.core.files import atomic_write

    if path.suffix not in (".parquet", ".csv"):
        raise DataError(
            f"held-out rows must be written as .parquet or .csv, got {path.name!r}; change the file name."
        )
    frame = data.to_frame()
    with atomic_write(path) as temporary:
        if path.suffix == ".parquet":
            frame.write_parquet(temporary)
        else:
            frame.write_csv(temporary)


Spark = Annotated[
    str | None,
    Parameter(
        help="Run on Spark, with folders of Parquet files: local[2], or the address of a master such as "
        "spark://host:7077 or yarn.",
        group=RARE_FLAGS,
        show_default=False,
    ),
]


def check_spark_flags(out: Path | None, **others: Any) -> None:
    """Raise ConfigError unless --out is a folder and no flag is given that Spark does not take."""
    if out is None or out.suffix:
        raise ConfigError("--spark needs --out with a folder, such as --out lists/.")
    check_no_flags(**others)


def check_no_flags(**others: Any) -> None:
    """Raise ConfigError if a flag is given that Spark does not take."""
    given = [f"--{name}" for name, value in others.items() if value]
    if given:
        raise ConfigError(f"--spark does not work with {given[0]}; leave one of them out.")
