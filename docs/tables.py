"""The tables of performance.md and story.md, from the JSON that the benchmarks keep.

python docs/tables.py    # after a benchmark; the tests fail while page and JSON disagree
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).with_name("examples.md")
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
Rows = Iterator[tuple[str, ...]]


def results(name: str) -> dict[str, Any]:
    """What a benchmark found."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def train() -> Rows:
    """Contestants of benchmarks/train.py."""
    found = results("train")
    yield (
        "",
        "million updates a second",
        "… a processor second",
        "against implicit",
        "memory grown by",
        "AUC",
    )
    for shape in ("dense", "sparse"):
        data = found.get(shape)
        if data is None:
            continue
        size = f"{data['interactions'] / 1e6:.1f} million rows, {data['items']:,} items"
        yield (f"**{size}**", "", "", "", "", "")
        for name, run in data.items():
            if isinstance(run, dict) and "updates_per_second" in run:
                yield (
                    name,
                    f"{run['updates_per_second'] / 1e6:.1f}",
                    f"{run['updates_per_processor_second'] / 1e6:.1f}",
                    f"× {run['processor_ratio_to_implicit']:.1f}",
                    f"{run['grown_mib']:,} MiB",
                    f"{run['auc']:.3f}",
                )


def growth() -> Rows:
    """Cost of a row as the data grows."""
    found = results("train")
    yield ("rows", "nanoseconds a row and epoch")
    for point in found["growth"]:
        yield (f"{point['rows'] / 1e6:.1f} million", f"{point['ns_per_interaction']:.0f}")


def recommend() -> Rows:
    """Cases of benchmarks/recommend.py."""
    found = results("recommend")
    words = {
        "top_20_als": "top 20, ALS factors",
        "top_20_bpr": "top 20, BPR factors",
        "dynamic_negatives_10": "above the boundary, `negatives=10`",
        "dynamic_negatives_100": "above the boundary, `negatives=100`",
        "dynamic_max_100": "above the boundary, `max_items=100`",
    }
    yield ("", "items a list", "µs of one core a user", "against implicit", "against the bare product")
    for key, size in (("items_27k", "27,000 items"), ("items_1m", "1,000,000 items")):
        yield (f"**{size}**", "", "", "", "")
        for name, word in words.items():
            case = found[key].get(name)
            if case is None:
                continue
            theirs = case.get("one_thread_cpu_ratio_to_implicit")
            yield (
                word,
                f"{case.get('mean_length', 20):,.0f}",
                f"{case['one_thread_cpu_us_per_user']:,.0f}",
                "" if theirs is None else f"× {theirs:.1f}",
                f"× {case['one_thread_cpu_ratio_to_bare_product']:.1f}",
            )


def single() -> Rows:
    """One user at a time."""
    found = results("recommend")
    yield ("one user, index prepared", "27,000 items", "1,000,000 items")
    for name, word in (
        ("one_user_top_20", "top 20"),
        ("one_user_dynamic", "above the boundary"),
        ("one_user_dynamic_max_100", "… `max_items=100`"),
    ):
        cases = [found[key].get(name) for key in ("items_27k", "items_1m")]
        yield (word, *("" if case is None else f"{case['median_ms']:.1f} ms" for case in cases))


def rest() -> Rows:
    """What else was measured."""
    training, lists = results("train"), results("recommend")
    memory, index = lists["repeat_decay"], lists["items_27k"]["top_20_als"]["index_seconds"]
    yield ("what", "measured")
    first = f"{training['cold_start_seconds']:.0f} s"
    yield ("compiling what `BPRMF`, `DKBPRMF`, `HRM` and `DKHRM` need, once", first)
    yield ("updates of `HRM` a second", f"{training['hrm_updates_per_second'] / 1e6:.1f} million")
    yield ("building the index over 27,000 items, on a busy machine", f"{index:.0f} s")
    trees = lists["trees"]
    each, ratio = trees["ns_per_row_and_tree"]["ours"], trees["ratio_to_lightgbm"]
    yield (
        "a candidate through one tree of `TwoStage`, on one core",
        f"{each:.0f} ns, {ratio:.1f} times as fast as LightGBM",
    )
    for size in ("few", "many"):
        users, peak = memory[f"users_{size}"], memory[f"mb_{size}"]
        yield (f"peak memory while streaming lists of {users:,} users", f"{peak:,.0f} MB")


TRIALS = {"ta-feng": "Ta-Feng", "ml-100k": "MovieLens", "complete-journey": "Complete Journey"}


def deciders() -> Rows:
    """Where the same ranking is cut, by benchmarks/win.py."""
    found = results("win")
    words = {
        "fixed N": "the best fixed N of validation",
        "threshold on score": "one threshold on the score",
        "expected F1, size from probabilities": "expected F1, n from the probabilities",
        "expected F1, size from history": "expected F1, n from past basket sizes",
        "expected F1, size foretold, uncalibrated": "expected F1, n foretold, not calibrated",
        "expected F1, size from both, uncalibrated": "… n from the candidates and the foretold rest",
        "chosen on validation": "**expected F1 as chosen on validation**",
    }
    size = (f"{title} ({found[key]['users']:,} users)" for key, title in TRIALS.items())
    yield ("F1 over all users", *size)
    for name, word in words.items():
        cells = []
        for key in TRIALS:
            f1, test = found[key]["deciders"][name]["f1"], found[key]["tests"].get(name)
            cell = f"{f1['mean']:.4f} ± {f1['sd']:.4f}"
            if test is not None:
                cell += f", {test['relative']:+.1%}, {_p(test['p'])}"
            cells.append(cell)
        yield (word, *cells)
    yield ("the best cut in hindsight", *(f"{found[key]['oracle']['mean']:.4f}" for key in TRIALS))
    gaps = (f"{found[key]['gap_recovered']['mean']:.1%}" for key in TRIALS)
    yield ("share of the way there from the fixed N", *gaps)
    sure = (found[key]["surest_70%"] for key in TRIALS)
    cells = (f"{s['chosen on validation']['mean']:.3f} ({s['fixed N']['mean']:.3f})" for s in sure)
    yield ("the surest 70% of users (fixed N on the same users)", *cells)


def earlier() -> Rows:
    """The same at earlier moments, where there are more lists."""
    found = [results("win")[key]["earlier_moments"] for key in TRIALS]
    yield ("F1 at earlier moments", *TRIALS.values())
    yield ("lists (users)", *(f"{run['lists']:,} ({run['users']:,})" for run in found))
    yield ("fixed N", *(f"{run['fixed N']:.4f}" for run in found))
    for size, word in (("history", "foretold"), ("both", "from the candidates and the foretold rest")):
        runs = [run[f"expected F1, size from {size}"] for run in found]
        gains = [run["f1"] / whole["fixed N"] - 1 for run, whole in zip(runs, found, strict=True)]
        cells = (
            f"{run['f1']:.4f}, {gain:+.1%}, {_p(run['p'])}" for run, gain in zip(runs, gains, strict=True)
        )
        yield (f"expected F1, n {word}, not calibrated", *cells)


def _p(value: float) -> str:
    return "p < .001" if value < 0.001 else f"p = {value:.3f}".replace("0.", ".", 1)


def _by_set(part: str, first: str) -> Rows:
    found = results("win")
    yield (first, *TRIALS.values())
    runs = [found[key][part] for key in TRIALS]
    for name in runs[0]:
        yield (name, *(f"{run[name]['fixed N']:.4f} / {run[name]['dynamic']:.4f}" for run in runs))


def ablation() -> Rows:
    """What a group of features brings."""
    return _by_set("ablation_at_earlier_moments", "without")


def curve() -> Rows:
    """What more examples bring."""
    return _by_set("learning_curve_on_validation", "share of the examples")


def gap() -> Rows:
    """How much of the way to the best cut anything could go."""
    found = results("win")
    yield ("share of the way on validation", *TRIALS.values())
    for name, word in (
        ("size foretold", "as it stands"),
        ("size told", "told the true size of the next basket"),
        ("in worlds of its own", "in worlds drawn from its own probabilities"),
    ):
        yield (word, *(f"{found[key]['gap_on_validation'][name]:.1%}" for key in TRIALS))


TABLES: dict[str, dict[str, Callable[[], Rows]]] = {
    "performance.md": {
        "train": train,
        "growth": growth,
        "recommend": recommend,
        "single": single,
        "rest": rest,
    },
    "story.md": {"deciders": deciders, "earlier": earlier, "ablation": ablation, "curve": curve, "gap": gap},
}


def table(rows: Rows) -> str:
    """Markdown; the first column is text, the others are numbers."""
    head, *body = list(rows)
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def filled(name_of_page: str) -> str:
    """The page with every table written anew between its marks."""
    page = Path(__file__).with_name(name_of_page).read_text(encoding="utf-8")
    for name, rows in TABLES[name_of_page].items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        page, n = mark.subn(lambda found, rows=rows: found[1] + "\n" + table(rows()) + "\n" + found[2], page)
        if n != 1:
            raise SystemExit(
                f"{name_of_page} must have one place for the table {name}, got {n}; mend the marks."
            )
    return page


def shown(page: str, script: str) -> re.Match[str]:
    """What the page says that a script prints."""
    found = re.search(rf"`python examples/{script}.*?```text\n(.*?)\n```", page, re.DOTALL)
    if found is None:
        raise SystemExit(f"{EXAMPLES.name} must show what {script} prints; add a text block.")
    return found


def printed(page: str) -> str:
    """The page with what the scripts print now."""
    for script in ("next_basket.py", "daily_papers.py", "push_with_cost.py"):
        command = [sys.executable, str(EXAMPLES.parents[1] / "examples" / script)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()
        place = shown(page, script)
        page = page[: place.start(1)] + output + page[place.end(1) :]
    return page


if __name__ == "__main__":
    for page_name in TABLES:
        Path(__file__).with_name(page_name).write_text(filled(page_name), encoding="utf-8")
    if "--examples" in sys.argv[1:]:
        EXAMPLES.write_text(printed(EXAMPLES.read_text(encoding="utf-8")), encoding="utf-8")
