"""`shortlist cut`: lists of the right length from the candidates of any ranker or search engine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.screen import Json, guard_reading, print_note, show_json, show_text
from shortlist.cli.source import Spark, check_spark_flags, read_lists
from shortlist.core.files import check_writable
from shortlist.errors import ConfigError
from shortlist.text import printable

if TYPE_CHECKING:
    from shortlist.auto.cut import CutResult
    from shortlist.data.interactions import Interactions

Candidates = Annotated[
    Path,
    Parameter(
        help="Candidates with user (or query), item (or document) and score or rank: .parquet, .csv, .jsonl, "
        "a TREC run (.run, .trec, .txt), or hits of a search engine by query (.json); with --spark a folder."
    ),
]


def cut_command(
    candidates: Candidates,
    /,
    *,
    truth: Path | None = None,
    new: Path | None = None,
    cutoff: Path | None = None,
    history: Path | None = None,
    new_history: Path | None = None,
    metric: Literal["f1", "ndcg"] = "f1",
    n_candidates: int | None = None,
    out: Path | None = None,
    save: Path | None = None,
    report: Path | None = None,
    spark: Spark = None,
    json: Json = False,
) -> None:
    """Choose where the lists of any ranker or search engine end.

    With --truth, a stopping rule is chosen and tested on users it was not fitted
    on. The lists of --new are written to --out. With --cutoff, a saved rule is
    used as it is.

    For example:
      shortlist cut scores.parquet --truth next.parquet --save cut.shortlist
      shortlist cut tomorrow.parquet --cutoff cut.shortlist --out lists.parquet
      shortlist cut scores/ --cutoff cut.shortlist --out lists/ --spark local[2]

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
        Metric to maximize.
    n_candidates
        Candidates considered per user; default: the longest list, at most 300.
    out
        File for the lists: .parquet, .csv or .jsonl; with --spark a folder.
    save
        File for the fitted cutoff.
    report
        HTML file for the report.
    """
    if spark is not None:
        check_spark_flags(
            out,
            truth=truth,
            new=new,
            save=save,
            report=report,
            new_history=new_history,
            n_candidates=n_candidates,
        )
        about = cut_on_spark(candidates, cutoff, history, out, spark)
        return show_json(about) if json else None
    check_writable(out, save, report)
    check_flags(truth, cutoff, new=new, save=save, report=report, new_history=new_history, out=out)
    if cutoff is not None:
        about = apply_saved(candidates, cutoff, history, out)
        return show_json(about) if json else None
    result = choose(candidates, truth, new, history, new_history, metric, n_candidates)
    about = write_result(result, candidates, out, save, report)
    if json:
        return show_json(about)
    show_text(str(result))
    for name in ("out", "cutoff", "report"):
        if about.get(name):
            show_text(f"{name}: {printable(about[name])}")
    return None


def check_flags(truth: Path | None, cutoff: Path | None, **others: Path | None) -> None:
    """Raise ConfigError for flags that do not go together."""
    if (truth is None) == (cutoff is None):
        got = "neither" if truth is None else "both"
        raise ConfigError(
            f"cut needs --truth to choose a cutoff, or --cutoff to use one, got {got}; pass one."
        )
    if cutoff is not None:
        given = [f"--{name}" for name in ("new", "save", "report", "new_history") if others[name] is not None]
        if given:
            raise ConfigError(f"{given[0]} needs --truth, got --cutoff; leave one of them out.")
        if others["out"] is None:
            raise ConfigError("--cutoff needs --out for the lists, got none; name a file.")
    elif others["out"] is not None and others["new"] is None:
        print_note("the lists are those of the candidates whose truth is known; --new names others")


def choose(
    candidates: Path,
    truth: Path | None,
    new: Path | None,
    history: Path | None,
    new_history: Path | None,
    metric: str,
    n_candidates: int | None,
) -> "CutResult":
    """Read the files, print what they hold, and choose the cutoff."""
    lists = read_lists(candidates, "candidates")
    return sl.cut(
        lists,
        read_truth(truth, "truth"),
        new=lists if new is None else read_lists(new, "candidates"),
        history=read_truth(history, "history"),
        new_history=read_truth(new_history, "new_history"),
        metric=metric,
        n_candidates=n_candidates,
    )


def read_truth(path: Path | None, name: str) -> "Interactions | None":
    """Read interactions or judgments and print what was recognized."""
    from shortlist.data.lists import read_outcomes

    if path is None:
        return None
    with guard_reading(path):
        data = read_outcomes(path)
    print_note(
        f"{name} {path}: {data.n_rows:,} rows, {data.active_users.size:,} users, {data.n_items:,} items"
    )
    return data


def apply_saved(candidates: Path, cutoff: Path, history: Path | None, out: Path | None) -> dict[str, Any]:
    """Cut candidates with a saved cutoff, and write the lists."""
    from shortlist.cutoff.base import Cutoff

    saved = Cutoff.load(cutoff)
    lists = saved.apply(read_lists(candidates, "candidates"), history=read_truth(history, "history"))
    assert out is not None
    lists.write(out)
    n_lists, n_items, empty = len(lists), int(lists.items.size), int((lists.lengths == 0).sum())
    print_note(describe_lists(n_lists, n_items, empty, out))
    return {"out": str(out), "cutoff": repr(saved), "lists": n_lists, "items": n_items}


def cut_on_spark(
    candidates: Path, cutoff: Path | None, history: Path | None, out: Path | None, master: str
) -> dict[str, Any]:
    """Cut a folder of candidates with a saved cutoff, and write the lists to a folder."""
    from shortlist.cutoff.base import Cutoff

    if cutoff is None:
        raise ConfigError("--spark needs --cutoff, got none; choose a cutoff with --truth and --save first.")
    assert out is not None
    saved, interactions = Cutoff.load(cutoff), read_truth(history, "history")
    df = sl.spark.read_folder(sl.spark.open_session(master), candidates)
    about = sl.spark.save_lists(sl.spark.cut(df, saved, history=interactions), out)
    empty = about["empty_lists"] = sum(about["empty_lists"].values())
    print_note(describe_lists(about["lists"], about["items"], empty, out))
    return about | {"cutoff": repr(saved)}


def describe_lists(n_lists: int, n_items: int, n_empty: int, out: Path) -> str:
    """How many items were written, in one sentence."""
    return f"{n_items:,} items in {n_lists:,} lists ({n_empty:,} empty) written to {printable(out)}"


def write_result(
    result: "CutResult", source: Path, out: Path | None, save: Path | None, report: Path | None
) -> dict[str, Any]:
    """Write the files that were named; return the figures of the result in plain values."""
    low, high = result.gain_interval
    about: dict[str, Any] = {
        "stopping_rule": result.name,
        "metric": result.metric,
        "score": result.report.mean(result.metric),
        "gain": result.gain,
        "gain_low": low,
        "gain_high": high,
        "users": result.report.n_users,
        "notes": list(result.notes),
    }
    if out is not None and result.lists is not None:
        result.lists.write(out)
        lists = result.lists
        n_empty = int((lists.lengths == 0).sum())
        print_note(describe_lists(len(lists), int(lists.items.size), n_empty, out))
        about["out"] = str(out)
    if save is not None:
        about["cutoff"] = str(result.save(save))
    if report is not None:
        from shortlist.reports.model_page import write_model_report
        from shortlist.reports.model_report import build_cut_report

        write_model_report(build_cut_report(source.name, result), report)
        about["report"] = str(report)
    return about
