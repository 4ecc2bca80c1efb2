"""Write the tables of the pages and of the README from the JSON files of the benchmarks.

python docs/tables.py             # after a benchmark; the tests fail while a page and the JSON disagree
python docs/tables.py --examples  # also update the output of the example scripts in examples/README.md
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the tests run this file by its path
import content_tables
import guarantee_tables
import performance_tables
import scale_tables

from shortlist.core.options import describe_options
from shortlist.serve.config import ServeConfig

EXAMPLES = Path(__file__).parents[1] / "examples" / "README.md"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
Rows = Iterator[tuple[str, ...]]


def results(name: str) -> dict[str, Any]:
    """Load the results of a benchmark."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


DATASETS = {"ta-feng": "Ta-Feng", "ml-100k": "MovieLens", "complete-journey": "Complete Journey"}


def cutoffs() -> Rows:
    """Cutoffs on the same ranking (benchmarks/dynamic_lists.py)."""
    found = results("dynamic_lists")
    labels = {
        "fixed N": "best fixed N on validation",
        "threshold on score": "one threshold on the score",
        "expected F1, size from probabilities": "expected F1, n from the probabilities",
        "expected F1, size from history": "expected F1, n from earlier basket sizes",
        "expected F1, size predicted, uncalibrated": "expected F1, n predicted, not calibrated",
        "expected F1, size from both, uncalibrated": "… n from the candidates and the predicted rest",
        "chosen on validation": "**expected F1 as chosen on validation**",
    }
    size = (f"{title} ({found[key]['users']:,} users)" for key, title in DATASETS.items())
    yield ("F1 over all users", *size)
    for name, label in labels.items():
        cells = []
        for key in DATASETS:
            f1, test = found[key]["cutoffs"][name]["f1"], found[key]["tests"].get(name)
            cell = f"{f1['mean']:.4f} ± {f1['sd']:.4f}"
            if test is not None:
                cell += f", {test['relative']:+.1%}, {_p(test['p'])}"
            cells.append(cell)
        yield (label, *cells)
    yield ("oracle", *(f"{found[key]['oracle']['mean']:.4f}" for key in DATASETS))
    gaps = (f"{found[key]['gap_recovered']['mean']:.1%}" for key in DATASETS)
    yield ("gap recovered from the fixed N to the oracle", *gaps)
    confident = (found[key]["most_confident_70%"] for key in DATASETS)
    cells = (f"{s['chosen on validation']['mean']:.3f} ({s['fixed N']['mean']:.3f})" for s in confident)
    yield ("most confident 70% of users (fixed N on the same users)", *cells)


MATRICES = {
    "lastfm": "Last.fm",
    "citeulike-t": "CiteULike-t",
    "ml-1m without times": "MovieLens-1M without times",
}
STRICT = {
    "ta-feng": "Ta-Feng",
    "complete-journey": "Complete Journey",
    "online-retail": "Online Retail",
    "ml-1m": "MovieLens-1M",
}
SPLITS = {"last_basket": "last basket of each user", "by_time": "strict time"}


def strict() -> Rows:
    """Fixed N and dynamic lists under strict time and by user (benchmarks/strict_time.py)."""
    found = results("strict_time")
    yield ("data", "test set", "users", "best fixed N", "dynamic", "gain (95% interval)", "p")
    for key, title in STRICT.items():
        for split, label in SPLITS.items():
            if split not in found.get(key, {}):
                continue
            run = found[key][split]
            fixed, dynamic = run["fixed"]["f1"], run["dynamic"]["f1"]
            low, high = run["low"] / fixed, run["high"] / fixed
            yield (
                title,
                label,
                f"{run['users']:,}",
                f"{fixed:.4f}",
                f"{dynamic:.4f}",
                f"{run['relative']:+.1%} ({low:+.1%} to {high:+.1%})",
                _p(run["p_holm"]),
            )


def published() -> Rows:
    """Published methods by name (benchmarks/published.py)."""
    found = results("published")
    titles = {key: title for key, title in (STRICT | DATASETS).items() if key in found}
    users = (f"{title} ({found[key]['users']:,} users)" for key, title in titles.items())
    yield ("F1 over all users", *users)
    rows = [found[key]["rows"] for key in titles]
    for name in rows[0]:
        if not all(name in named for named in rows):
            continue
        cells = []
        for row in (named[name] for named in rows):
            ours = "" if "p" not in row else f", {row['relative']:+.1%}, {_corrected(row)}"
            cells.append(f"{row['f1']:.4f}{ours}")
        yield (name, *cells)
    yield ("prior of PerK, chosen on validation", *(f"{found[key]['perk_prior']:g}" for key in titles))
    yield ("gap recovered", *(f"{found[key]['gap_recovered']:.1%}" for key in titles))
    yield ("seeds", *(str(found[key]["seeds"]) for key in titles))


def _corrected(row: dict[str, Any]) -> str:
    """The corrected p-value; with ≤ if no bootstrap sample was as far from 0."""
    p = math.ceil(1000 * row["p_holm"]) / 1000 if row["p_is_bound"] else row["p_holm"]
    return f"p {'≤' if row['p_is_bound'] else '='} " + f"{p:.3f}".replace("0.", ".", 1)


SHORT = {
    "GP-TopFreq, best fixed N": "GP-TopFreq",
    "UP-CF, best fixed N": "UP-CF",
    "TIFU-KNN, best fixed N": "TIFU-KNN",
    "TwoStage, best fixed N": "`TwoStage`, best fixed N",
    "TwoStage, PerK": "`TwoStage`, PerK",
    "TwoStage, expected F1 as chosen on validation": "**`TwoStage`, expected F1**",
}


def summary() -> Rows:
    """The table of published methods without tests, for the README."""
    found = results("published")
    titles = {key: title for key, title in (STRICT | DATASETS).items() if key in found}
    yield ("", *(f"{title} ({found[key]['users']:,} users)" for key, title in titles.items()))
    for name, title in SHORT.items():
        yield (title, *(f"{found[key]['rows'][name]['f1']:.4f}" for key in titles))


def boundary() -> Rows:
    """The joint models as they come against the best fixed N of their ranking (benchmarks/boundary.py)."""
    titles, found = STRICT | DATASETS | MATRICES, results("boundary")["rows"]
    yield ("data, model", "lists", "best fixed N", "as it comes", "change", "p", "cost of `fit`")
    for key, row in sorted(found.items(), key=lambda one: one[0].split(", ")[1]):
        data, model = key.split(", ")
        yield (
            f"{titles.get(data, data)}, `{model}`",
            f"{row['n_lists']:,}",
            f"{row['fixed_f1']:.4f}",
            f"{row['boundary_f1']:.4f}",
            f"{row['gain']:+.1%}",
            _p(row["p_holm"]),
            f"× {row['fit_cost']:.1f}",
        )


def personal() -> Rows:
    """How boundaries of two seeds agree, by the penalty (benchmarks/boundary.py --personal)."""
    titles, found = STRICT | DATASETS, results("boundary")["personal"]
    readings = [(row["lambda_t"], row["lambda_t_per"]) for row in next(iter(found.values()))]
    yield ("correlation of $t_u$, F1", *(f"$\\lambda_t$ = {value:g} per {per}" for value, per in readings))
    for key, rows in found.items():
        data, model = key.split(", ")
        cells = (f"{row['correlation']:.2f}, {row['learned_f1']:.4f}" for row in rows)
        yield (f"{titles[data]}, `{model}`", *cells)


def sequential() -> Rows:
    """The loss of training on blocks against steps drawn from all rows (benchmarks/sequential.py)."""
    titles, found = STRICT | DATASETS | MATRICES, results("sequential")["rows"]
    yield ("loss after 20 epochs", "blocks", "Algorithm 1", "change")
    for key, row in found.items():
        data, model = key.split(", ")
        change = f"{row['blocks'] / row['sequential'] - 1:+.1%}"
        yield (f"{titles[data]}, `{model}`", f"{row['blocks']:.4f}", f"{row['sequential']:.4f}", change)


def _p(value: float) -> str:
    return "p < .001" if value < 0.001 else f"p = {value:.3f}".replace("0.", ".", 1)


def false_verdicts() -> Rows:
    """Wrong verdicts of simulated experiments without a difference (benchmarks/experiments.py)."""
    yield (
        "metric",
        "at every look",
        "with a plan",
        "without adjustment",
        "z-test, looked at daily",
        "z-test, looked at once",
    )
    for row in results("experiments")["false_verdicts"]:
        names = ("sequence", "planned", "sequence_unadjusted", "z_test", "z_once")
        yield (f"`{row['metric']}`", *(f"{row[name]:.1%}" for name in names))


def service_verdicts() -> Rows:
    """Wrong verdicts of simulated experiments as the service makes them (benchmarks/experiments.py)."""
    found = results("experiments")
    both, store = [*found["tables"]["cells"], *found["store"]["cells"]], found["store"]["cells"]
    kinds = {
        "arms show the same items": (both, "lists", "same"),
        "arms show other items, bought as often": (both, "lists", "others"),
        "… and bought together": (both, "lists", "bundles"),
        "a fifth of the purchases is returned": (both, "returns", True),
        "with a plan": (both, "planned", True),
        "in an event store": (store, "planned", None),
        "… with 20 invented ids": (store, "invented", 20),
        "… with 200 invented ids": (store, "invented", 200),
        "… with a clock that was a week ahead": (store, "jump", True),
    }
    yield ("experiments without a difference", "number", "with a verdict")
    for label, (cells, name, value) in {"all": (both, "planned", None), **kinds}.items():
        some = [cell for cell in cells if value in (None, cell["case"][name])]
        runs, decided = (sum(cell[count] for cell in some) for count in ("runs", "decided"))
        yield (label, f"{runs:,}", f"{decided / runs:.1%}")


def days_until_decided() -> Rows:
    """Median days until a true lift is decided (benchmarks/experiments.py)."""
    heads = ("at every look", "with a plan", "without adjustment", "one look", "one look, without adjustment")
    yield ("metric, lift", *heads)
    for row in results("experiments")["median_days"]:
        names = ("sequence", "planned", "sequence_unadjusted", "fixed", "fixed_unadjusted")
        days = ("more than 365" if row[name] > 365 else f"{row[name]:.0f}" for name in names)
        yield (f"`{row['metric']}`, {row['lift']:+.0%}", *days)


def decided() -> Rows:
    """Share of experiments with a true lift that are decided within 60 days (benchmarks/experiments.py)."""
    yield ("metric, lift", "at every look", "with a plan", "one look, after 60 days")
    for row in results("experiments")["power"]:
        names = ("sequence", "planned", "z_once")
        yield (f"`{row['metric']}`, {row['lift']:+.1%}", *(f"{row[name]:.0%}" for name in names))


def money() -> Rows:
    """What lists earn per 1,000 users (benchmarks/money.py)."""
    shops = {key: STRICT[key] for key in ("online-retail", "complete-journey", "ta-feng")}
    cases = {"basket": "next basket", "week": "a week, everyone"}
    rules = {
        "best N for this money": "best N",
        "10 for everyone": "10 for everyone",
        "expected F1": "`ExpectedF1`",
        "expected value, fitted on buyers": "`ExpectedValue`, buyers only",
        "expected value": "**`ExpectedValue`**",
    }
    rows = results("money")["rows"]
    yield ("earned per 1,000 users", "cost", *rules.values(), "over best N (95% interval)", "p")
    for key, shop in shops.items():
        for case, label in cases.items():
            for cost in (0.1, 0.3):
                found = {
                    row["cutoff"]: row
                    for row in rows
                    if (row["data"], row["case"], row["cost"]) == (key, case, cost)
                }
                ours, cells = found["expected value"], []
                for name in rules:
                    learned = found[name]["learned"] if name in found else ""
                    note = f" ({learned})" if learned else ""
                    cells.append(f"{found[name]['earned_per_1000']:,.0f}{note}" if name in found else "")
                interval = f"{ours['difference_low']:+,.0f} to {ours['difference_high']:+,.0f}"
                change = f"{ours['difference']:+,.0f} ({interval})"
                yield (f"{shop}, {label}", f"{cost:g}", *cells, change, _p(ours["p_holm"]))


def settings() -> Rows:
    """All settings of the service, as they are declared."""
    yield "setting", "rule", "default", "meaning"
    for row in describe_options(ServeConfig):
        yield f"`{row.name}`", row.rule, f"`{row.default}`" if row.default else "", row.help


def passages() -> Rows:
    """Passages of queries of which some have no answer (benchmarks/truncation.py --passages)."""
    yield (
        "method",
        "F1",
        "over the best fixed k",
        "recall",
        "words",
        "words of a fixed k at this recall",
        "empty where no candidate is relevant",
        "empty lists that are right",
    )
    for name, row in results("passages")["methods"].items():
        gain, low, high = (f"{value:+.0%}" for value in row["gain"])
        empty = "{:.0%} ({:.0%} to {:.0%})".format(*row["empty without a relevant candidate"])
        right = row["precision of empty, by candidates"]
        yield (
            name,
            f"{row['f1']:.3f}",
            "" if name == "best fixed k" else f"{gain} ({low} to {high})",
            f"{row['recall']:.0%}",
            f"{row['tokens']:,.0f}",
            f"{row['tokens of a fixed k at this recall']:,.0f}",
            empty,
            "" if right is None else "{:.0%} ({:.0%} to {:.0%})".format(*right),
        )


TABLES: dict[str, dict[str, Callable[[], Rows]]] = {
    "experiments.md": {
        "false_verdicts": false_verdicts,
        "service_verdicts": service_verdicts,
        "days": days_until_decided,
        "decided": decided,
    },
    "results.md": {
        "cutoffs": cutoffs,
        "strict": strict,
        "published": published,
        "boundary": boundary,
        "content": lambda: content_tables.content(results("content")),
        "papers": lambda: content_tables.papers(results("papers"), _p),
        "train": lambda: performance_tables.train(results("train")),
        "recommend": lambda: performance_tables.recommend(results("recommend")),
        "lists": lambda: performance_tables.lists(results("waiting")),
        "automatic": lambda: performance_tables.automatic(results("waiting")),
        "agreement": lambda: performance_tables.agreement(results("waiting")),
        "first_minute": lambda: performance_tables.first_minute(results("compile")),
    },
    "models.md": {"personal": personal, "sequential": sequential},
    "production.md": {"settings": settings},
    "guarantees.md": {
        "next_baskets": lambda: guarantee_tables.next_baskets(results("guarantees")),
        "next_lists": lambda: guarantee_tables.next_lists(results("guarantees")),
        "drift": lambda: guarantee_tables.drift(results("guarantees")),
    },
    "rankers.md": {"passages": passages},
    "scale.md": {
        "one_machine": lambda: scale_tables.one_machine(
            *map(results, ("data", "train", "recommend", "search", "allocate_speed", "evaluate"))
        ),
        "sample_curve": lambda: scale_tables.sample_curve(results("spark")),
    },
    "evaluation.md": {"money": money},
    "../README.md": {
        "summary": summary,
        "speed": lambda: performance_tables.speed(*map(results, ("train", "recommend", "evaluate"))),
    },
}


def table(rows: Rows) -> str:
    """Format rows as a Markdown table: text and numbers, or text alone if the last column is a meaning."""
    head, *body = list(rows)
    mark = "---" if head[-1] == "meaning" else "---:"
    lines = [head, ("---", *[mark] * (len(head) - 1)), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def fill(name_of_page: str) -> str:
    """Return the page with every table rewritten between its comments."""
    page = (Path(__file__).parent / name_of_page).read_text(encoding="utf-8")
    for name, rows in TABLES[name_of_page].items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        page, n = place.subn(lambda found, rows=rows: found[1] + "\n" + table(rows()) + "\n" + found[2], page)
        if n != 1:
            raise SystemExit(f"{name_of_page}: expected one place for the table {name}, found {n}.")
    return page


def find_output(page: str, script: str) -> re.Match[str]:
    """Find the output block of a script on the page of examples."""
    found = re.search(rf"`python examples/{script}.*?```text\n(.*?)\n```", page, re.DOTALL)
    if found is None:
        raise SystemExit(f"{EXAMPLES.name} must show the output of {script}; add a text block.")
    return found


def run_scripts(page: str) -> str:
    """Return the page with the current output of the scripts."""
    for script in (
        "next_basket.py",
        "daily_papers.py",
        "push_with_cost.py",
        "weekly_offers.py",
    ):
        command = [sys.executable, str(EXAMPLES.parents[1] / "examples" / script)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()
        place = find_output(page, script)
        page = page[: place.start(1)] + output + page[place.end(1) :]
    return page


if __name__ == "__main__":
    for page_name in TABLES:
        (Path(__file__).parent / page_name).write_text(fill(page_name), encoding="utf-8")
    if "--examples" in sys.argv[1:]:
        EXAMPLES.write_text(run_scripts(EXAMPLES.read_text(encoding="utf-8")), encoding="utf-8")
