"""Tables of scale.md: what one core does."""

from collections.abc import Iterator
from typing import Any

Rows = Iterator[tuple[str, ...]]


def one_machine(*found: dict[str, Any]) -> Rows:
    """What one core does (benchmarks/data, train, recommend, search, allocate_speed, evaluate)."""
    read, train, recommend, search, allocate, evaluate = found
    rows = read["generated parquet"]["programs"]["shortlist"]
    trained = train["dense"]["shortlist BPRMF"]
    users = recommend["items_1m"]["top_20_als"]["one_thread_cpu_us_per_user"]
    cut, offers = search["many"], allocate["runs"][0]
    yield "", "measured with", "processor seconds", "per processor hour"
    for name, size, seconds, n, unit in (
        (
            "read Parquet",
            f"{rows['stored'] / 1e6:.0f} million rows",
            rows["cpu_seconds"],
            rows["stored"],
            "rows",
        ),
        (
            "one epoch of BPRMF, 64 factors",
            f"{train['dense']['interactions'] / 1e6:.0f} million rows",
            trained["processor_seconds"] / train["dense"]["epochs"],
            train["dense"]["interactions"],
            "rows",
        ),
        (
            "exact top 20 of 1 million items, ALS",
            f"{recommend['items_1m']['n_users']:,} users",
            users * recommend["items_1m"]["n_users"] / 1e6,
            recommend["items_1m"]["n_users"],
            "users",
        ),
        (
            "cut lists, UtilityRegression",
            f"{cut['lists'] / 1e6:.0f} million × {cut['candidates']}",
            cut["UtilityRegression"],
            cut["lists"],
            "lists",
        ),
        (
            "allocate a total",
            f"{offers['users'] / 1e6:.0f} million × {offers['candidates'] // offers['users']}",
            offers["processor_seconds"],
            offers["users"],
            "users",
        ),
        (
            "evaluate lists",
            f"{evaluate['lists'] / 1e6:.0f} million × {evaluate['length']}",
            evaluate["shortlist"]["cpu_seconds"],
            evaluate["lists"],
            "lists",
        ),
    ):
        yield name, size, f"{seconds:.2g}", f"{n / seconds * 3600 / 1e9:.2g} billion {unit}"


def sample_curve(found: dict[str, Any]) -> Rows:
    """F1 for users outside the sample, by its size (benchmarks/spark.py --part curve)."""
    yield "", "1,000 users", "8,000 users", "most users", "last doubling"
    for run in found["curve"]["runs"]:
        scores = run["f1"]
        most, (before, last) = list(scores)[-1], list(scores.values())[-2:]
        name = f"`{run['model']}`, {'with' if run['dates'] else 'without'} dates"
        cells = f"{scores['1000']:.4f}", f"{scores['8000']:.4f}", f"{last:.4f} ({int(most):,})"
        yield name, *cells, f"{last / before - 1:+.1%}"
