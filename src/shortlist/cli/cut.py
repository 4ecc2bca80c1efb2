"""`shortlist cut`: lists of the right length from the candidates of any ranker or search engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.arguments import Spark, check_spark_flags, read_lists
from shortlist.cli.flags import RARE_FLAGS, flags_of
from shortlist.cli.output import Json, print_note, show_json, show_text
from shortlist.core.files import check_writable
from shortlist.core.task_options import CutOptions
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


if TYPE_CHECKING:
    Aims = CutOptions
else:
    Aims = flags_of(CutOptions)
NO_AIMS = Aims()
CHOSEN_ONCE = ("new", "save", "report", "new_history")  # flags that a saved cutoff does not take


@Parameter(name="*")
@dataclass(frozen=True)
class CutFiles:
    """Which files are read and written.

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
    new_history: Annotated[Path | None, Parameter(group=RARE_FLAGS)] = None
    out: Path | None = None
    save: Path | None = None
    report: Path | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these flags that are set."""
        return {name: value for name in names if (value := getattr(self, name))}


NO_FILES = CutFiles()


def cut_command(
    candidates: Candidates,
    /,
    *,
    files: CutFiles = NO_FILES,
    aims: Aims = NO_AIMS,
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
    options = {name: value for name, value in vars(aims).items() if value}
    sizes = options.get("sizes")
    if spark is not None:
        check_spark_flags(files.out, **files.given("truth", *CHOSEN_ONCE), **options)
        return finish(cut_on_spark(candidates, files, spark), json)
    check_writable(files.out, files.save, files.report)
    check_files(files, [name for name in options if name != "sizes"])
    if files.cutoff is not None:
        return finish(apply_saved(candidates, files, sizes), json)
    lists = read_sized(candidates, sizes)
    options.pop("sizes", None)
    with without_options():
        result = sl.cut(
            lists,
            files.truth,
            new=lists if files.new is None else read_sized(files.new, sizes),
            history=read_truth(files.history, "history"),
            new_history=read_truth(files.new_history, "new_history"),
            **options,
        )
    return finish(write_result(result, candidates, files), json, str(result))


def check_files(files: CutFiles, aims: list[str]) -> None:
    """Raise ConfigError for flags that do not go together."""
    if (files.truth is None) == (files.cutoff is None):
        got = "neither" if files.truth is None else "both"
        raise ConfigError(
            f"cut needs --truth to choose a cutoff, or --cutoff to use one, got {got}; pass one."
        )
    unused = [*files.given(*CHOSEN_ONCE), *aims]
    if files.cutoff is not None and unused:
        raise ConfigError(f"--{unused[0]} needs --truth, got --cutoff; leave one of them out.")
    if files.cutoff is not None and files.out is None:
        raise ConfigError("--cutoff needs --out for the lists, got none; name a file.")
    if files.cutoff is None and files.out is not None and files.new is None:
        print_note("the lists are those of the candidates whose truth is known; --new names others")


def finish(about: dict[str, Any], json: bool, text: str = "") -> None:
    """Print the figures, and the files that were written."""
    if json:
        return show_json(about)
    if text:
        show_text(text)
        for name in ("out", "cutoff", "report"):
            if about.get(name):
                show_text(f"{name}: {printable(about[name])}")
    return None


def read_sized(path: Path, sizes: str | None) -> "RankedLists":
    """Read candidates, with the sizes of their items if a column names them."""
    from shortlist.auto.cut import read_sizes
    from shortlist.data.rankings import read_candidate_table

    lists = read_lists(path, "candidates")
    if sizes is None:
        return lists
    return lists.with_sizes(read_sizes(read_candidate_table(path), sizes))


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


def apply_saved(candidates: Path, files: CutFiles, sizes: str | None) -> dict[str, Any]:
    """Cut candidates with a saved cutoff, and write the lists."""
    from shortlist.cutoff.base import Cutoff

    assert files.cutoff is not None
    assert files.out is not None
    saved = Cutoff.load(files.cutoff)
    lists = saved.apply(read_sized(candidates, sizes), history=read_truth(files.history, "history"))
    write_cut(lists, files.out)
    return {
        "out": str(files.out),
        "cutoff": repr(saved),
        "lists": len(lists),
        "items": int(lists.items.size),
    }


def write_cut(lists: "RankedLists", out: Path) -> None:
    """Write lists to a file, and print how many."""
    lists.write(out)
    print_note(describe_lists(len(lists), int(lists.items.size), int((lists.lengths == 0).sum()), out))


def cut_on_spark(candidates: Path, files: CutFiles, master: str) -> dict[str, Any]:
    """Cut a folder of candidates with a saved cutoff, and write the lists to a folder."""
    from shortlist.cli.spark import open_session, read_folder, save_lists
    from shortlist.cutoff.base import Cutoff

    if files.cutoff is None:
        raise ConfigError("--spark needs --cutoff, got none; choose a cutoff with --truth and --save first.")
    assert files.out is not None
    saved, interactions = Cutoff.load(files.cutoff), read_truth(files.history, "history")
    df = read_folder(open_session(master), candidates)
    about = save_lists(sl.spark.cut(df, saved, history=interactions), files.out)
    empty = about["empty_lists"] = sum(about["empty_lists"].values())
    print_note(describe_lists(about["lists"], about["items"], empty, files.out))
    return about | {"cutoff": repr(saved)}


def describe_lists(n_lists: int, n_items: int, n_empty: int, out: Path) -> str:
    """How many items were written, in one sentence."""
    return f"{n_items:,} items in {n_lists:,} lists ({n_empty:,} empty) written to {printable(out)}"


def write_result(result: "CutResult", source: Path, files: CutFiles) -> dict[str, Any]:
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
    if files.out is not None and result.lists is not None:
        write_cut(result.lists, files.out)
        about["out"] = str(files.out)
    if files.save is not None:
        about["cutoff"] = str(result.save(files.save))
    if files.report is not None:
        from shortlist.reports.model_report import build_cut_report, write_model_report

        write_model_report(build_cut_report(source.name, result), files.report)
        about["report"] = str(files.report)
    return about
