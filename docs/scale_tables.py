"""Tables of scale.md: measurements on a cluster, and the model of its cost applied to larger ones."""

from collections.abc import Iterator
from typing import Any

Rows = Iterator[tuple[str, ...]]
MIB = 2**20
STEP = 57e-9  # seconds of a core per row and epoch, 64 factors
BLOCK_ROWS, ROWS_PER_USER, ITEMS, FACTORS = 10_000_000, 100, 1_000_000, 64
CORES, BYTES_PER_SECOND = 16, 1.1e9  # of a node: cores, network
PROCESS = 410  # MiB of a worker that has hardly any rows: Python, Ray, packages and compiled code


def speed(found: dict[str, Any]) -> Rows:
    """Threads and workers (benchmarks/scale.py --part speed)."""
    runs, shares = found["speed"]["runs"], found["speed"]["share_of_threads"]
    yield (
        "",
        "million updates per second",
        "share of as many threads",
        "by processor time",
        "MB per epoch",
    )
    for run in runs:
        share = shares.get(run["run"])
        yield (
            run["run"],
            f"{run['million_updates_per_second']:.1f}",
            "" if share is None else f"{share['wall']:.0%}",
            "" if share is None else f"{share['processor']:.0%}",
            f"{run['bytes_per_epoch'] / 1e6:.2f}",
        )


def worker_mib(rows: int, workers: int, users: int, items: int, factors: int, each: int) -> float:
    """Memory of a worker by the formula, with `each` bytes per row."""
    own = each * rows / workers + 8 * (factors + 1) * users / workers + 2 * items * 4 * (factors + 1)
    return PROCESS + own / MIB


def files(found: dict[str, Any]) -> Rows:
    """Training from files (benchmarks/scale_files.py)."""
    yield (
        "rows",
        "driver",
        "worker",
        "formula",
        "task that divides",
        "all at once",
        "seconds",
        "processor seconds",
    )
    for run in found["runs"]:
        rows = run["rows"]
        sizes = rows, 2, rows // ROWS_PER_USER, run["items"], run["factors"]
        low, high = worker_mib(*sizes, 12), worker_mib(*sizes, 20)
        names = ("driver_cpu_seconds", "worker_cpu_seconds", "task_cpu_seconds")
        cpu = f"{sum(run[name] for name in names):,.0f}" if all(name in run for name in names) else "unknown"
        yield (
            f"{rows / 1e6:,.0f} million",
            f"{run['driver_peak_mib']:,.0f} MiB",
            f"{max(run['worker_peak_mib']):,.0f} MiB",
            f"{low:,.0f} to {high:,.0f}",
            f"{run['task_peak_mib']:,.0f} MiB",
            f"{run['resident_mib_of_all_at_once']:,.0f} MiB",
            f"{run['seconds_in_all']:,.0f}",
            cpu,
        )


def clusters(found: dict[str, Any]) -> Rows:
    """The model of cost, computed for clusters that were not measured."""
    known = max((run for run in found["runs"] if "task_cpu_seconds" in run), key=lambda run: run["rows"])
    per_row = known["task_cpu_seconds"] / known["rows"]
    yield (
        "interactions",
        "nodes",
        "blocks",
        "computation per epoch",
        "network per epoch and node",
        "memory and store per node",
        "driver",
        "dividing the files, processors",
    )
    for rows in (1e9, 10e9):
        for nodes in (16, 64):
            blocks = int(rows // BLOCK_ROWS)
            turns = -(-blocks // (nodes * CORES))
            item_bytes = ITEMS * 4 * (FACTORS + 1)
            users = rows / ROWS_PER_USER
            copies = 8 * (FACTORS + 1) * users / nodes
            memory = 20 * rows / nodes + 2 * copies + 2 * item_bytes
            driver = 0.4e9 + 12 * users + 2 * item_bytes
            yield (
                f"{rows / 1e9:.0f} billion",
                f"{nodes}",
                f"{blocks:,}",
                f"{turns * BLOCK_ROWS * STEP:.2g} s",
                f"{item_bytes / 1e9:.2f} GB, {item_bytes / BYTES_PER_SECOND:.2f} s",
                f"{memory / 1e9:.1f} GB",
                f"{driver / 1e9:.1f} GB",
                f"{rows * per_row / (nodes * CORES) / 60:.1f} min",
            )


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


def spark_cost(found: dict[str, Any]) -> Rows:
    """Spark beside one process and beside Spark's own method (benchmarks/spark.py --part speed)."""
    cut, lists = found["speed"]["cut"], found["speed"]["recommend"]
    yield (
        "",
        "rows or users",
        "processor seconds: Java",
        "Python",
        "all",
        "per processor second",
        "one process",
    )
    for label, runs, name, unit in (
        ("read the candidates only", cut, "read", "rows"),
        ("`sl.spark.cut`", cut, "cut", "rows"),
        ("`sl.spark.cut`, table in buckets by user", cut, "cut of a table in buckets", "rows"),
        ("`recommendForAllUsers` of Spark", lists, "recommendForAllUsers", "users"),
        ("`sl.spark.recommend`, same factors", lists, "sl.spark.recommend", "users"),
    ):
        run, seconds = runs[name], runs[name]["processor_seconds"]
        alone = runs["one process"]["processor_seconds"]
        yield (
            label,
            f"{run[unit]:,} {unit}",
            f"{seconds['java']:,.0f}",
            f"{seconds['python'] + seconds['driver']:,.0f}",
            f"{seconds['all']:,.0f}",
            f"{run[f'{unit}_per_processor_second']:,}",
            "" if name == "read" else f"{alone:,.1f} ({seconds['all'] / alone:.1f} ×)",
        )


def beyond(*found: dict[str, Any]) -> Rows:
    """The cost of 100 billion rows and 1 billion users, and how each figure is known."""
    speed, turns, files, recommend, spark = found
    rows, users, nodes, epochs, candidates, price = 100e9, 1e9, 256, 30, 50, 0.05
    per_row = 1 / spark["speed"]["cut"]["cut"]["rows_per_processor_second"]
    cores, item_bytes = nodes * CORES, ITEMS * 4 * (FACTORS + 1)
    first = speed["speed"]["runs"][0]
    step = first["cpu_seconds_per_epoch"] / speed["speed"]["rows"]
    blocks = rows / BLOCK_ROWS
    turn = turns["overhead"]["milliseconds_per_turn"] / 1000
    epoch = -(-blocks // cores) * BLOCK_ROWS * step + blocks * turn
    divided = max((run for run in files["runs"] if "task_cpu_seconds" in run), key=lambda run: run["rows"])
    dividing = divided["task_cpu_seconds"] / divided["rows"]
    per_user = recommend["items_1m"]["top_20_als"]["one_thread_cpu_us_per_user"] / 1e6
    memory = 20 * rows / nodes + 16 * (FACTORS + 1) * users / nodes + 2 * item_bytes
    traffic = 8 * 24 * rows
    hours = epochs * epoch * cores / 3600
    yield "", "value", "known by", "how"
    yield "cluster", f"{nodes} nodes × {CORES} cores, 1.1 GB/s", "assumed", ""
    yield "data", f"{ITEMS / 1e6:.0f} million items, {FACTORS} factors, {epochs} epochs", "assumed", ""
    yield "one row, one epoch", f"{step * 1e9:.0f} ns of a core", "measured", "13 million rows, one thread"
    yield "one turn", f"{turn * 1e3:.1f} ms", "measured", "2 workers on one machine"
    yield "blocks = turns per epoch", f"{blocks:,.0f}", "computed", "one per 10 million rows"
    yield (
        "one epoch",
        f"{epoch:,.0f} s",
        "computed",
        f"{-(-blocks // cores):.0f} blocks per core in turn, + turns",
    )
    yield "training", f"{epochs * epoch / 60:,.0f} min, {hours:,.0f} core hours", "computed", "without faults"
    yield "network per node and epoch", f"{item_bytes / 1e9:.2f} GB", "computed", "every item once"
    yield "memory and store per node", f"{memory / 1e9:.0f} GB", "computed", "20 bytes per row"
    yield "driver", f"{44 * users / 1e9:.0f} GB", "computed", "44 bytes per user: the first limit"
    yield (
        "dividing the files",
        f"{rows * dividing / cores / 60:.1f} min",
        "computed",
        f"{dividing * 1e6:.1f} µs per row measured",
    )
    yield (
        "traffic of the file system",
        f"{traffic / 1e12:.0f} TB",
        "computed",
        "3 writes, 5 reads of 24 bytes",
    )
    yield "its time at 50 GB/s", f"{traffic / 50e9 / 60:.0f} min", "assumed", "a fast parallel file system"
    listed = users * per_user
    yield (
        "top 20 of 1 million items",
        f"{listed / 3600:.1f} core hours",
        "computed",
        f"{per_user * 1e6:.0f} µs per user measured, in shards on Ray",
    )
    cut = users * candidates * per_row
    yield (
        f"cut {candidates} candidates each on Spark",
        f"{cut / 3600:.0f} core hours, {cut / cores / 60:.1f} min",
        "computed",
        f"{per_row * 1e6:.2f} µs of a core per row measured, with the shuffle",
    )
    total = hours + (listed + cut + rows * dividing) / 3600
    yield (
        "price",
        f"{total * price:,.0f} dollars",
        "assumed",
        f"{price} dollars per core hour, all cores busy",
    )
