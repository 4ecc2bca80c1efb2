"""`shortlist cut`: lists of the right length from the candidates of any ranker or search engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.arguments import Spark, check_spark_flags, read_lists
from shortlist.cli.output import Json, print_note, show_json, show_text
from shortlist.core.files import check_writable
from shortlist.data.read_options import without_options
from shortlist.errors import ConfigError
from shortlist.text import printable

if TYPE_CHECKING:
    from shortlist.auto.cut import CutResult
    from shortlist.data.interactions import Interactions
    from shortlist.data.lists import RankedLists

Candidates = Annotated[
    Path,
    Parameter(
        help="Candidates with user (or query), item (or document) and score or rank: .parquet, .csv, .jsonl, "
        "a TREC run (.run, .trec, .txt), or hits of a search engine by query (.json); with --spark a folder."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class CutFlags:
    """Which files are read and written, and what is maximized.

    Parameters
    ----------
    truth
        What happened after the ranking: interactions, or qrels of TREC.
    new
        Candidates to cut, if not the same.
    cutoff
        Cutoff written by --save, instead of --truth.
    history
        Interactions known when the candidates were ranked.
    new_history
        Interactions known when --new was ranked; default: --history.
    metric
        Metric to maximize: f1, ndcg or value; default: value with --gain and --cost, else f1.
    gain
        What a shown item earns if the user takes it.
    cost
        What a shown item costs if the user does not take it.
    users
        Who counts, also without a relevant item: everyone.
    keep_order
        Leave the order of the ranker.
    sizes
        Column of the candidates with the size of each item, such as its tokens.
    max_size
        Limit of the sizes of the items of a list.
    min_relevant
        Lists in which any candidate is relevant with a lower probability stay empty.
    n_candidates
        Candidates considered per user; default: the longest list, at most 300.
    out
        File for the lists: .parquet, .csv or .jsonl; with --spark a folder.
    save
        File for the fitted cutoff.
    report
        HTML file for the report.
    """

    truth: Path | None = None
    new: Path | None = None
    cutoff: Path | None = None
    history: Path | None = None
    new_history: Path | None = None
    metric: Literal["f1", "ndcg", "value"] | None = None
    gain: float | None = None
    cost: float | None = None
    users: Literal["everyone"] | None = None
    keep_order: bool = False
    sizes: str | None = None
    max_size: float | None = None
    min_relevant: float = 0.0
    n_candidates: int | None = None
    out: Path | None = None
    save: Path | None = None
    report: Path | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these flags that are set."""
        return {name: value for name in names if (value := getattr(self, name))}

    def check(self) -> None:
        """Raise ConfigError for flags that do not go together."""
        if (self.truth is None) == (self.cutoff is None):
            got = "neither" if self.truth is None else "both"
            raise ConfigError(
                f"cut needs --truth to choose a cutoff, or --cutoff to use one, got {got}; pass one."
            )
        unused = self.given("new", "save", "report", "new_history", *AIMS)
        if self.cutoff is not None and unused:
            raise ConfigError(f"--{next(iter(unused))} needs --truth, got --cutoff; leave one of them out.")
        if self.cutoff is not None and self.out is None:
            raise ConfigError("--cutoff needs --out for the lists, got none; name a file.")
        if self.cutoff is None and self.out is not None and self.new is None:
            print_note("the lists are those of the candidates whose truth is known; --new names others")


AIMS = ("metric", "gain", "cost", "users", "keep_order", "max_size", "min_relevant")  # of a choice
NO_FLAGS = CutFlags()


def cut_command(
    candidates: Candidates,
    /,
    *,
    flags: CutFlags = NO_FLAGS,
    spark: Spark = None,
    json: Json = False,
) -> None:
    """Choose where the lists of any ranker or search engine end.

    With --truth, a cutoff is chosen and tested on users it was not fitted
    on. The lists of --new are written to --out. With --cutoff, a saved rule is
    used as it is.

    For example:
      shortlist cut scores.parquet --truth next.parquet --save cut.shortlist
      shortlist cut tomorrow.parquet --cutoff cut.shortlist --out lists.parquet
      shortlist cut scores/ --cutoff cut.shortlist --out lists/ --spark local[2]
    """
    if spark is not None:
        others = flags.given("truth", "new", "save", "report", "new_history", "n_candidates")
        check_spark_flags(flags.out, **others)
        about = cut_on_spark(candidates, flags, spark)
        return show_json(about) if json else None
    check_writable(flags.out, flags.save, flags.report)
    flags.check()
    if flags.cutoff is not None:
        about = apply_saved(candidates, flags)
        return show_json(about) if json else None
    lists = read_sized(candidates, flags)
    with without_options():
        result = sl.cut(
            lists,
            flags.truth,
            new=lists if flags.new is None else read_sized(flags.new, flags),
            history=read_truth(flags.history, "history"),
            new_history=read_truth(flags.new_history, "new_history"),
            n_candidates=flags.n_candidates,
            **flags.given(*AIMS),
        )
    about = write_result(result, candidates, flags)
    if json:
        return show_json(about)
    show_text(str(result))
    for name in ("out", "cutoff", "report"):
        if about.get(name):
            show_text(f"{name}: {printable(about[name])}")
    return None


def read_sized(path: Path, flags: CutFlags) -> "RankedLists":
    """Read candidates, with the sizes of their items if a column names them."""
    from shortlist.auto.cut import read_sizes
    from shortlist.data.rankings import read_candidate_table

    lists = read_lists(path, "candidates")
    if flags.sizes is None:
        return lists
    return lists.with_sizes(read_sizes(read_candidate_table(path), flags.sizes))


def read_truth(path: Path | None, name: str) -> "Interactions | None":
    """Read interactions or judgments and print what was recognized."""
    from shortlist.data.rankings import read_outcomes

    if path is None:
        return None
    with without_options():
        data = read_outcomes(path)
    print_note(
        f"{name} {path}: {data.n_rows:,} rows, {data.active_users.size:,} users, {data.n_items:,} items"
    )
    return data


def apply_saved(candidates: Path, flags: CutFlags) -> dict[str, Any]:
    """Cut candidates with a saved cutoff, and write the lists."""
    from shortlist.cutoff.base import Cutoff

    assert flags.cutoff is not None
    assert flags.out is not None
    saved = Cutoff.load(flags.cutoff)
    lists = saved.apply(read_sized(candidates, flags), history=read_truth(flags.history, "history"))
    write_cut(lists, flags.out)
    return {
        "out": str(flags.out),
        "cutoff": repr(saved),
        "lists": len(lists),
        "items": int(lists.items.size),
    }


def write_cut(lists: "RankedLists", out: Path) -> None:
    """Write lists to a file, and print how many."""
    lists.write(out)
    print_note(describe_lists(len(lists), int(lists.items.size), int((lists.lengths == 0).sum()), out))


def cut_on_spark(candidates: Path, flags: CutFlags, master: str) -> dict[str, Any]:
    """Cut a folder of candidates with a saved cutoff, and write the lists to a folder."""
    from shortlist.cli.spark import open_session, read_folder, save_lists
    from shortlist.cutoff.base import Cutoff

    if flags.cutoff is None:
        raise ConfigError("--spark needs --cutoff, got none; choose a cutoff with --truth and --save first.")
    assert flags.out is not None
    saved, interactions = Cutoff.load(flags.cutoff), read_truth(flags.history, "history")
    df = read_folder(open_session(master), candidates)
    about = save_lists(sl.spark.cut(df, saved, history=interactions), flags.out)
    empty = about["empty_lists"] = sum(about["empty_lists"].values())
    print_note(describe_lists(about["lists"], about["items"], empty, flags.out))
    return about | {"cutoff": repr(saved)}


def describe_lists(n_lists: int, n_items: int, n_empty: int, out: Path) -> str:
    """How many items were written, in one sentence."""
    return f"{n_items:,} items in {n_lists:,} lists ({n_empty:,} empty) written to {printable(out)}"


def write_result(result: "CutResult", source: Path, flags: CutFlags) -> dict[str, Any]:
    """Write the files that were named; return the figures of the result in plain values."""
    low, high = result.gain_interval
    about: dict[str, Any] = {
        "stopping_rule": result.name,
        "metric": result.metric,
        "score": result.report.mean(result.metric),
        "score_of_fixed_n": result.comparison.reports["best fixed N"][0].mean(result.metric),
        "gain": result.gain,
        "gain_low": low,
        "gain_high": high,
        "users": result.report.n_users,
        "notes": list(result.notes),
    }
    if flags.out is not None and result.lists is not None:
        write_cut(result.lists, flags.out)
        about["out"] = str(flags.out)
    if flags.save is not None:
        about["cutoff"] = str(result.save(flags.save))
    if flags.report is not None:
        from shortlist.reports.model_report import build_cut_report, write_model_report

        write_model_report(build_cut_report(source.name, result), flags.report)
        about["report"] = str(flags.report)
    return about
