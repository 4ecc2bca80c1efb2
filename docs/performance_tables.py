"""Tables of speed in results.md, from the JSON files of the benchmarks; see tables.py."""

from collections.abc import Iterator
from typing import Any

Found = dict[str, Any]
Rows = Iterator[tuple[str, ...]]


def train(found: Found) -> Rows:
    """Training speed (benchmarks/train.py)."""
    yield (
        "",
        "million updates per processor second",
        "vs. implicit",
        "extra memory",
        "AUC",
    )
    for shape in ("dense", "sparse"):
        data = found.get(shape)
        if data is None:
            continue
        size = f"{data['interactions'] / 1e6:.1f} million rows, {data['items']:,} items"
        yield (f"**{size}**", "", "", "", "")
        for name, run in data.items():
            if isinstance(run, dict) and "updates_per_second" in run:
                yield (
                    name,
                    f"{run['updates_per_processor_second'] / 1e6:.1f}",
                    f"× {run['processor_ratio_to_implicit']:.1f}",
                    f"{run['grown_mib']:,} MiB",
                    f"{run['auc']:.3f}",
                )


def recommend(found: Found) -> Rows:
    """Retrieval speed (benchmarks/recommend.py)."""
    labels = {
        "top_20_als": "top 20, ALS factors",
        "top_20_bpr": "top 20, BPR factors",
        "top_20_normal": "top 20, random normal factors",
        "dynamic_negatives_10": "above the boundary, `negatives=10`",
        "dynamic_negatives_100": "above the boundary, `negatives=100`",
        "dynamic_max_100": "above the boundary, `max_items=100`",
    }
    yield ("", "items per list", "µs per user, one core", "vs. implicit", "vs. plain product")
    for key, size in (("items_27k", "27,000 items"), ("items_1m", "1,000,000 items")):
        yield (f"**{size}**", "", "", "", "")
        for name, label in labels.items():
            case = found[key].get(name)
            if case is None:
                continue
            theirs = case.get("one_thread_cpu_ratio_to_implicit")
            product = case["one_thread_cpu_ratio_to_bare_product"]
            yield (
                label,
                f"{case.get('mean_length', 20):,.0f}",
                f"{case['one_thread_cpu_us_per_user']:,.0f}",
                "" if theirs is None else f"× {theirs:.1f}",
                f"× {product:.2f}" if product < 1 else f"× {product:.1f}",
            )


def lists(found: Found) -> Rows:
    """Lists of TwoStage for many users at one time (benchmarks/waiting.py)."""
    titles = {"0.5": "generated, 0.5 million rows", "online-retail": "Online Retail", "ta-feng": "Ta-Feng"}
    yield ("data", "users", "users per processor second")
    for key, title in titles.items():
        run = found["lists"][key]
        yield (title, f"{run['users']:,}", f"{run['users_per_processor_second']:,.0f}")


TITLES = {
    "0.1": "generated, 0.1 million purchases",
    "1": "generated, 1 million purchases",
    "10": "generated, 10 million purchases",
    "online-retail": "Online Retail",
    "complete-journey": "Complete Journey",
    "ml-1m": "MovieLens-1M",
    "ml-1m-plain": "MovieLens-1M without times, a matrix of a million pairs",
    "lastfm": "Last.fm",
    "citeulike-t": "CiteULike-t",
}


def automatic(found: Found) -> Rows:
    """`sl.fit` from data to a model with its cutoff (benchmarks/waiting.py)."""
    yield ("data", "processor seconds", "model", "F1 on the test set")
    for key, title in TITLES.items():
        if key in found["fit"]:
            run = found["fit"][key]
            yield (title, f"{run['seconds']:.0f}", run["model"], f"{run['test_f1']:.4f}")


def agreement(found: Found) -> Rows:
    """The model of `sl.fit` against the best of all models on the test set (benchmarks/waiting.py)."""
    yield ("data", "chosen", "best", "mean share of the best F1", "lowest")
    for key, title in TITLES.items():
        if key in found["agreement"]:
            seeds = found["agreement"][key]["seeds"]
            shares = [seed["share"] for seed in seeds]
            names = (", ".join(dict.fromkeys(seed[which] for seed in seeds)) for which in ("model", "best"))
            yield (title, *names, f"{sum(shares) / len(shares):.1%}", f"{min(shares):.1%}")


def first_minute(found: Found) -> Rows:
    """Processor seconds of the first and the second run of a command (benchmarks/compile.py)."""
    titles = {"rows": "`shortlist fit`, 100 rows", "sample": "`shortlist fit sample`"}
    titles["service"] = "load a model and make a list"
    yield ("command", "first", "second")
    startup = found["startup"]
    yield ("`import shortlist`", "", f"{startup['import shortlist'] - startup['python']:.2f}")
    helps = [seconds for name, seconds in startup.items() if name.endswith(" --help")]
    yield ("`shortlist --help`", "", f"{helps[0]:.2f}")
    yield ("`--help` of a command, the slowest", "", f"{max(helps):.2f}")
    for key, title in titles.items():
        yield (title, f"{found[key]['seconds']:.0f}", f"{found[key]['second']:.1f}")


def speed(training: Found, lists: Found, evaluation: Found) -> Rows:
    """What the README says about speed: ratios of processor time to another library in the same run."""
    yield ("task", "compared with", "times as fast, per processor second")
    rows = [size["interactions"] / 1e6 for size in training["sizes"]]
    ratios = [ratio for size in training["sizes"] for ratio in size["processor_ratios"]]
    task = f"train `BPRMF`, {min(rows):.0f} to {max(rows):.0f} million rows, 64 factors"
    yield (task, "implicit, BPR", f"{min(ratios):.0f} to {max(ratios):.0f}")
    ratio = lists["items_27k"]["top_20_als"]["one_thread_cpu_ratio_to_implicit"]
    yield ("exact top 20 of 27,000 items, ALS factors", "implicit", f"{ratio:.1f}")
    ratio = evaluation["ratios"]["ranx on arrays / shortlist on objects, processor time"]
    yield (f"evaluate {evaluation['lists'] / 1e6:.0f} million lists", "ranx", f"{ratio:.0f}")
