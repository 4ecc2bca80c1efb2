"""`shortlist recommend`: lists of a saved model, printed or written to a file."""

import glob
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.arguments import (
    Model,
    Spark,
    add_content,
    check_spark_flags,
    parse_group_limits,
)
from shortlist.cli.flags import NO_CUTOFF_FLAGS, CutoffFlags, flags_of
from shortlist.cli.output import (
    Json,
    count_empty,
    describe_empty,
    lengths_table,
    list_as_json,
    list_table,
    parse_words,
    print_note,
    rows_of,
    show,
    show_json,
    show_text,
)
from shortlist.data.read_options import without_options
from shortlist.errors import ConfigError, DataError, UnknownIdError, warn
from shortlist.recommend.options import RequestOptions
from shortlist.text import printable

if TYPE_CHECKING:
    import polars as pl

    from shortlist.cutoff import Cutoff, Guarantee
    from shortlist.data.ids import IdMap
    from shortlist.models.base import Recommender

BOUNDARY: Literal["boundary"] = "boundary"
WITHHELD = 5  # candidates shown below the end of the list


RequestFlags = flags_of(RequestOptions)


@Parameter(name="*")
@dataclass(frozen=True)
class RecommendFlags(RequestFlags):  # type: ignore[misc, valid-type]
    """The options of a request, as flags.

    Parameters
    ----------
    items
        File with new items and their content; the columns are those of fit --items.
    """

    items: Path | None = None

    def request(
        self, items: "IdMap", cutoff: "Cutoff | Literal['auto', 'boundary']", *, with_history: bool = True
    ) -> dict[str, Any]:
        """The options of the request."""
        values = {name: value for name, value in vars(self).items() if name != "items"}
        for name in ("candidates", "exclude"):
            values[name] = None if values[name] is None else read_ids(values[name], items, name)
        values |= {"cutoff": cutoff, "history": None, "max_per_group": None}
        if self.history is not None and with_history:
            with without_options():
                values["history"] = sl.read_interactions(self.history)
        if self.max_per_group:
            values["max_per_group"] = parse_group_limits(self.max_per_group)
        return values


DEFAULTS = RecommendFlags()


def recommend_command(
    model: Model,
    /,
    *,
    user: Annotated[tuple[str, ...] | None, Parameter(show_default=False, consume_multiple=True)] = None,
    out: Path | None = None,
    spark: Spark = None,
    options: RecommendFlags = DEFAULTS,
    cutoff_flags: CutoffFlags = NO_CUTOFF_FLAGS,
    json: Json = False,
) -> None:
    """Recommend lists from a saved model.

    The length of each list is chosen for the user, and each list has a reason
    why it ends.

    Lists may be empty: --coverage, --floor, --gain and --cost change the saved
    cutoff without training again.

    For example:
      shortlist recommend shop.shortlist --user u1 u2
      shortlist recommend shop.shortlist --out lists.parquet
      shortlist recommend shop.shortlist --history orders/ --out lists/ \\
        --spark local[2]
      shortlist recommend shop.shortlist --coverage 0.7
      shortlist recommend shop.shortlist --gain 3 --cost 1
      shortlist recommend model.shortlist --items new.csv --candidates new.txt

    Parameters
    ----------
    user
        One or more user ids; the file of the model comes first.
    out
        File for the lists, .parquet, .csv or .jsonl; with --spark a new folder.
    """
    if spark is not None:
        return recommend_on_spark(model, out, spark, options, cutoff_flags, json, user=user)
    from shortlist.data.lists import FORMATS

    if out is not None and out.suffix not in FORMATS:
        raise ConfigError(
            f"--out must end in {', '.join(FORMATS)} unless --spark writes a folder, got {out.name!r}; "
            "change the name."
        )
    fitted = sl.load_model(model)
    if options.items is not None:
        add_content(fitted, options.items, parse_group_limits(options.max_per_group))
    if user is not None and not user:
        raise ConfigError("--user needs one or more user ids, got none; leave it out for all users.")
    request = options.request(fitted.items_, pick_cutoff(fitted, fitted.cutoff_, options, cutoff_flags))
    sessions = request["history"]
    user_ids = fitted.users_ if sessions is None else sessions.users
    user_list = None if user is None else parse_words(user, user_ids)
    check_users(user_ids, user_list, served=options.fallback is not None)
    if out is not None:
        print_time(fitted, request)
        n = len(user_ids) if user_list is None else len(user_list)
        return write_recommendations(out, fitted, user_list, n, request, json)
    plan = fitted.plan(user_list, RequestOptions(**request))
    lists = plan.lists()
    if json:
        return show_json([list_as_json(ranked, fitted.history_) for ranked in lists])
    if user_list is None:
        show(lengths_table(lists))
        return show_text(describe_empty(count_empty(lists.summary()), len(lists)))
    from shortlist.cutoff.base import are_calibrated

    is_calibrated = are_calibrated(request["cutoff"], fitted.cutoff_, fitted.boundary_)
    for ranked, following in zip(lists, plan.next_candidates(lists, WITHHELD), strict=True):
        show(list_table(ranked, rows_of(following), fitted.history_, is_calibrated=is_calibrated))
    return None


def recommend_on_spark(
    model: Path,
    out: Path | None,
    master: str,
    options: RecommendFlags,
    cutoff_flags: CutoffFlags,
    json: bool,
    **others: Any,
) -> None:
    """Write lists for the users of a folder of histories to a folder."""
    from shortlist.cli.spark import open_session, read_folder, save_lists

    check_spark_flags(out, **others)
    assert out is not None
    if options.history is None:
        raise ConfigError("--spark needs --history with a folder of the histories of all users, got none.")
    fitted = sl.load_model(model)
    if options.items is not None:
        add_content(fitted, options.items, parse_group_limits(options.max_per_group))
    cutoff = pick_cutoff(fitted, fitted.cutoff_, options, cutoff_flags)
    df = read_folder(open_session(master), options.history)
    request = options.request(fitted.items_, cutoff, with_history=False)
    about = save_lists(sl.spark.recommend(df, fitted, **request), out)
    if json:
        return show_json(about)
    described = describe_empty(about["empty_lists"], about["lists"])
    return show_text(f"{about['lists']:,} lists written to {printable(out)}: {described}")


def print_time(model: "Recommender", request: dict[str, Any]) -> None:
    """Say at which time lists are made, if it is that of the last event."""
    if request["at"] is None and request["history"] is None and model.history_.time is not None:
        last = datetime.fromtimestamp(model.history_.end_time / 1e6, UTC)
        print_note(f"lists as of {last:%Y-%m-%d %H:%M}, just after the last event; --at sets another time")


def check_users(user_ids: "IdMap", users: list[Any] | None, *, served: bool) -> None:
    """Name unknown users on stderr; raise UnknownIdError if no user is known and none is served."""
    unknown = [user for user in users or () if user not in user_ids]
    if not unknown:
        return
    shown = ", ".join(repr(user)[:40] for user in unknown[:5]) + (", …" if len(unknown) > 5 else "")
    text = f"unknown user{'' if len(unknown) == 1 else 's'} {shown}"
    if len(unknown) == len(users or ()) and not served:
        examples = ", ".join(map(repr, user_ids.values.head(3).to_list()))
        raise UnknownIdError(
            f"--user needs a user of this model, got the {text}; known users are {examples}, … Or pass "
            "--fallback popular."
        )
    print_note(f"warning: {text}: {'the fallback is shown' if served else 'no list'}")


def pick_cutoff(
    model: "Recommender", saved: "Cutoff | None", options: RecommendFlags, cutoff_flags: CutoffFlags
) -> "Cutoff | Literal['auto', 'boundary']":
    """Load the cutoff that a flag names, or name the one to use; other flags adjust it."""
    given = [f"--{name}" for name in ("N", "cutoff") if getattr(options, name) is not None]
    if options.N is not None or options.cutoff == BOUNDARY:
        given += [f"--{name}" for name in cutoff_flags.given()]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} both set the length of lists; drop one of them.")
    if options.N is not None:
        return "auto"
    if options.cutoff == BOUNDARY:
        if not model.has_boundary:
            raise ConfigError(
                f"--cutoff boundary needs a model with a boundary, which {type(model).__name__} has not; "
                "drop it."
            )
        return BOUNDARY
    if options.cutoff is not None and not Path(options.cutoff).exists():
        raise ConfigError(
            f"--cutoff must be boundary or a file with a fitted cutoff, got {options.cutoff!r:.80}, which is "
            "no file; to choose a cutoff by name, run shortlist fit --cutoff."
        )
    cutoff = saved if options.cutoff is None else sl.cutoff.Cutoff.load(options.cutoff)
    chosen = cutoff if cutoff_flags == NO_CUTOFF_FLAGS else adjust_cutoff(model, cutoff, cutoff_flags)
    if chosen is None and not model.has_boundary:
        raise ConfigError(
            f"this {type(model).__name__} has no cutoff; pass --N 10 for lists of one length, or run "
            "shortlist fit with --cutoff ExpectedF1."
        )
    return "auto" if chosen is None else chosen


def adjust_cutoff(model: "Recommender", cutoff: "Cutoff | None", flags: CutoffFlags) -> "Cutoff | None":
    """The fitted cutoff with the flags of `recommend`; it uses what was learned on validation data."""
    from shortlist.cutoff import Budget, ExpectedValue, Guarantee
    from shortlist.cutoff.expected import ExpectedUtility

    if not flags.rule():
        return cutoff
    name = "no cutoff" if cutoff is None else type(cutoff).__name__
    again = " ".join(f"--{flag} {value:g}" for flag, value in flags.given().items())
    if flags.min_precision is not None:
        if isinstance(cutoff, Guarantee) and _is_guaranteed(cutoff, flags):
            return cutoff
        raise ConfigError(
            "--min_precision needs a saved guarantee of at least this precision and confidence, got "
            f"{_guarantee(cutoff) if isinstance(cutoff, Guarantee) else name}; run shortlist fit {again}."
        )
    if flags.gain is not None or flags.cost is not None:
        by_value = ExpectedValue().set_params(**flags.given())
        if not by_value.reuse_calibration(cutoff, has_probabilities=_has_probabilities(model)):
            raise ConfigError(f"--gain and --cost need probabilities, got {name}; run shortlist fit {again}.")
        if model.selection_ is not None and model.selection_.users == "buyers":
            warn(
                "--gain and --cost use probabilities of users who interacted with something. Sent to "
                "everyone, such lists may lose money; for that, fit with --users everyone --horizon 7d."
            )
        return by_value
    if flags.items_per_list is not None and isinstance(cutoff, Budget):
        return cutoff.with_price(cutoff.price_at(flags.items_per_list))
    if not isinstance(cutoff, ExpectedUtility):
        needed = "Budget" if flags.items_per_list is not None else "ExpectedF1 or ExpectedNDCG"
        raise ConfigError(
            f"--{next(iter(flags.given()))} needs a model with {needed}, got {name}; "
            f"run shortlist fit {again}."
        )
    if flags.coverage is not None:
        return cutoff.with_coverage(flags.coverage)
    assert flags.floor is not None
    return cutoff.with_floor(flags.floor)


def _is_guaranteed(cutoff: "Guarantee", flags: CutoffFlags) -> bool:
    """Whether the saved guarantee is at least as strong as the requested one."""
    precision, confidence = flags.min_precision, flags.confidence or cutoff.confidence
    return (
        precision is not None and (cutoff.min_precision or 0) >= precision and cutoff.confidence >= confidence
    )


def _guarantee(cutoff: "Guarantee") -> str:
    return f"min_precision={cutoff.min_precision} with confidence {cutoff.confidence}"


def _has_probabilities(model: "Recommender") -> bool:
    """Whether the lists of the model carry probabilities."""
    ids = model.users_.to_ids(model.history_.active_users[:1])
    return model.recommend(ids, N=1).probabilities is not None


def write_recommendations(
    out: Path,
    model: "Recommender",
    users: list[Any] | None,
    n: int,  # number of lists
    request: dict[str, Any],
    json: bool,
) -> None:
    """Write lists to a file; Parquet is written in batches, so that memory stays bounded."""
    from shortlist.auto.progress import show_progress

    if out.suffix == ".parquet":
        with show_progress() as display:
            model.recommend_to_file(
                out, users, progress=lambda done, total: display.update("lists", done, total), **request
            )
    else:
        model.recommend(users, **request).write(out)
    empty = count_empty(read_empty(out))
    if json:
        return show_json({"lists": n, "out": str(out), "empty_lists": empty})
    return show_text(f"{n:,} lists written to {printable(out)}: {describe_empty(empty, n)}")


def read_empty(path: Path) -> "pl.DataFrame":
    """The empty lists of a file: length and reason."""
    import polars as pl

    if path.suffix == ".jsonl":
        rows = pl.scan_ndjson(glob.escape(str(path)))  # scan_ndjson has no glob=False
    else:
        scan = pl.scan_parquet if path.suffix == ".parquet" else pl.scan_csv
        rows = scan(path, glob=False)
    empty: pl.DataFrame = rows.filter(pl.col("rank") == 0).select("length", "reason").collect()
    return empty


def read_ids(path: Path, items: "IdMap", flag: str) -> list[Any]:
    """Read item ids from a text file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; --{flag} needs a text file with one item id per line.")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise DataError(
            f"{path} must be UTF-8 text with one item id per line, got other bytes; convert it."
        ) from None
    return parse_words([line.strip() for line in lines if line.strip()], items)
