"""From runs to tables: means over seeds; tests pair users, each with the mean over seeds."""

from typing import Any

import numpy as np

from shortlist.evaluation import holm, paired_test
from shortlist.paper import paper
from shortlist.paper.result_cache import unpacked
from shortlist.paper.runs import FIXED, LENGTHS, ORACLE, OWN
from shortlist.types import Doubles

Runs = dict[str, list[dict[str, Any]]]  # by model, one per seed
FIGURES = ("f1", "ndcg", "cover", "length", "f1_covered", "ndcg_covered", "precision")
RESAMPLES = 5000
COLUMN_RESAMPLES = 2000
BOTH = ("f1", "ndcg")
PAIRS = (
    ("LogMF", "BPRMF"),
    ("CRRMF", "BPRMF"),
    ("CRRMF", "LogMF"),
    ("HRM", "BPRMF"),
    ("HRM", "LogMF"),
    ("HRM", "CRRMF"),
)


def findings(dataset: str, by_model: Runs) -> dict[str, Any]:
    """Everything but the sweeps."""
    return {
        "table1": table1(dataset, by_model),
        "figure2": {model: _curve(runs, "f1") for model, runs in by_model.items()},
        "fair": fair(by_model),
        "pairs": pairs(by_model),
        "matched": matched_rivals(by_model),
        "deciders": deciders(by_model),
        "risk": {model: risk(runs) for model, runs in by_model.items()},
        "spread": {model: spread(runs) for model, runs in by_model.items()},
    }


def headline(model: str) -> str:
    """What the paper reads off a model: its boundary, or the best N."""
    return OWN if model in paper.ORIGINAL else FIXED


# ---------------------------------------------------------------------- Table 1
def table1(dataset: str, by_model: Runs) -> dict[str, Any]:
    """The paper's columns: covered users only, NDCG over min(K, |test|)."""
    printed = paper.TABLE.get(dataset, {})
    table: dict[str, Any] = {}
    for model in paper.MODELS:
        runs, name = by_model[model], headline(model)
        table[model] = {
            "f1": mean(runs, name, "f1_covered"),
            "cover": mean(runs, name, "cover"),
            "ndcg": mean(runs, name, "ndcg_covered"),
            "f1_sd": _sd(runs, name, "f1_covered"),
            "ndcg_sd": _sd(runs, name, "ndcg_covered"),
            "length": mean(runs, name, "length"),
            "N": None if name == OWN else [run["N"]["f1"] for run in runs],
            "N_ndcg": None if name == OWN else [run["N"]["ndcg_paper"] for run in runs],
            "paper": printed[model]._asdict() if model in printed else None,
        }
    for model, original in paper.ORIGINAL.items():
        for metric, column in (("f1", "f1"), ("ndcg", "ndcg_paper")):
            p = covered_test(by_model[model], by_model[original], column)
            better = table[model][metric] > table[original][metric]
            table[model][f"{metric}_p"] = p
            table[model][f"{metric}_mark"] = ("+" if better else "-") if p <= 0.05 else ""
            table[model][f"{metric}_same_users"] = same_users(by_model[model], by_model[original], column)
    return table


def same_users(dynamic: list[dict[str, Any]], fixed: list[dict[str, Any]], metric: str) -> float:
    """What the original reaches, at its N, on the users that the dynamic model covers."""
    covered = user_covered(dynamic, OWN)
    theirs = user_values(fixed, FIXED, metric).mean(axis=0)
    return float((covered * theirs).sum() / max(covered.sum(), 1))


def covered_test(dynamic: list[dict[str, Any]], fixed: list[dict[str, Any]], metric: str) -> float:
    """p of "the paper's two columns are equal": covered users of one side, all users of the other.

    Users are resampled together with whether each seed covers them; the means are taken as in the table.
    """
    ours, covered = user_values(dynamic, OWN, metric), user_covered(dynamic, OWN)
    theirs = user_values(fixed, FIXED, metric).mean(axis=0)

    def difference(times: Doubles) -> float:
        own = np.divide(ours @ times, covered @ times, out=np.zeros(len(ours)), where=covered @ times > 0)
        return float(own.mean() - theirs @ times / times.sum())

    seen = difference(np.ones(theirs.size))
    rng = np.random.Generator(np.random.PCG64(RESAMPLES))
    made = []
    for _ in range(COLUMN_RESAMPLES):
        drawn = rng.integers(theirs.size, size=theirs.size)
        made.append(difference(np.bincount(drawn, minlength=theirs.size).astype(np.float64)))
    as_far = int((np.abs(np.array(made) - seen) >= abs(seen) * (1 - 1e-12)).sum())
    return (1 + as_far) / (1 + COLUMN_RESAMPLES)


# ---------------------------------------------------------------------- the fair tables
def fair(by_model: Runs) -> list[dict[str, Any]]:
    """All users, an empty list counts 0; each model's lists beside those of the model it extends."""
    rows = []
    for model, runs in by_model.items():
        for name in (FIXED, OWN, "expected F1"):
            if name in runs[0]["lists"]:
                rows.append({"model": model, "lists": name, **figures(runs, name)})
                rows[-1]["gap"] = gap(runs, name)
    for row in rows:
        rival = _rival(row["model"], row["lists"])
        if rival is not None:
            row["against"] = list(rival)
            row |= paired(by_model[row["model"]], row["lists"], by_model[rival[0]], rival[1], BOTH)
    return corrected(rows)


def _rival(model: str, name: str) -> tuple[str, str] | None:
    """What a row of the fair table is held against: the original at its N, else its own fixed N."""
    if model in paper.ORIGINAL and name != "expected F1":
        return paper.ORIGINAL[model], FIXED
    return None if name == FIXED else (model, FIXED)


def pairs(by_model: Runs) -> list[dict[str, Any]]:
    """The top-N models against each other, at their N, over all users."""
    rows = [
        {"model": ours, "against": theirs, **paired(by_model[ours], FIXED, by_model[theirs], FIXED, BOTH)}
        for ours, theirs in PAIRS
    ]
    return corrected(rows)


def matched_rivals(by_model: Runs) -> dict[str, Any]:
    """The same ranking at fixed length on equal terms: same users, same silence, same number of items."""
    found: dict[str, Any] = {}
    for model, runs in by_model.items():
        for name in runs[0]["matched"]:
            rows = []
            for rival in runs[0]["matched"][name]:
                theirs = [{"lists": {rival: run["matched"][name][rival]}} for run in runs]
                row = {"rival": rival, **figures(theirs, rival)}
                if rival == "same users":  # only they count: the others get nothing on either side
                    row["f1"] = row["f1_covered"]
                    row["ours"] = mean(runs, name, "f1_covered")
                else:
                    row["ours"] = mean(runs, name, "f1")
                rows.append(row | paired(runs, name, theirs, rival))
            found.setdefault(model, {})[name] = corrected(rows)
    return found


def deciders(by_model: Runs) -> dict[str, Any]:
    """Every decider on every ranking, held against the best fixed N of the same ranking."""
    found: dict[str, Any] = {}
    rows = []
    for model, runs in by_model.items():
        found[model] = {}
        for name in runs[0]["lists"]:
            row = found[model][name] = figures(runs, name) | {"gap": gap(runs, name)}
            if name not in (FIXED, ORACLE):
                row |= paired(runs, name, runs, FIXED)
                rows.append(row)
    corrected(rows)
    return found


def figures(runs: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Means over seeds."""
    return {figure: mean(runs, name, figure) for figure in FIGURES} | {"f1_sd": _sd(runs, name, "f1")}


def gap(runs: list[dict[str, Any]], name: str) -> float | None:
    """Share of the way from the best fixed N to the oracle."""
    low, high = mean(runs, FIXED, "f1"), mean(runs, ORACLE, "f1")
    here = mean(runs, name, "f1")
    return (here - low) / (high - low) if high > low else None


def paired(
    runs: list[dict[str, Any]],
    name: str,
    others: list[dict[str, Any]],
    rival: str,
    metrics: tuple[str, ...] = ("f1",),
) -> dict[str, Any]:
    """ours − theirs over all users, pairing each user's mean over seeds."""
    found: dict[str, Any] = {}
    for metric in metrics:
        ours, theirs = (
            user_values(side, each, metric).mean(axis=0) for side, each in ((runs, name), (others, rival))
        )
        made = paired_test(ours, theirs, resamples=RESAMPLES)
        found |= {
            f"{metric}_difference": made.difference,
            f"{metric}_low": made.low,
            f"{metric}_high": made.high,
            f"{metric}_p": made.p_bootstrap,
            f"{metric}_p_t": made.p_t,
        }
    return found


def corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Holm's correction over a whole table, metric by metric."""
    for metric in BOTH:
        those = [row for row in rows if f"{metric}_p" in row]
        for row, p in zip(those, holm([row[f"{metric}_p"] for row in those]), strict=True):
            row[f"{metric}_p_holm"] = p
    return rows


# ---------------------------------------------------------------------- curves
def risk(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """F1 of the users served, surest first; the first seed's curve, the mean area of all seeds."""
    return {
        name: {
            "coverage": one["coverage"],
            "f1": one["f1"],
            "area": float(np.mean([run["risk"][name]["area"] for run in runs])),
            "area_random": float(np.mean([run["risk"][name]["area_random"] for run in runs])),
        }
        for name, one in runs[0]["risk"].items()
    }


def spread(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How far t_u and K scatter over users (first seed)."""
    return {
        "boundaries": runs[0]["boundaries"],
        "K": {name: one["lengths"] for name, one in runs[0]["lists"].items() if name != FIXED},
    }


# ---------------------------------------------------------------------- over seeds
def mean(runs: list[dict[str, Any]], name: str, figure: str) -> float:
    """Over seeds; where nobody was covered, a list is worth nothing."""
    return float(np.mean([run["lists"][name][figure] or 0.0 for run in runs]))


def _sd(runs: list[dict[str, Any]], name: str, figure: str) -> float | None:
    values = [run["lists"][name][figure] or 0.0 for run in runs]
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def user_values(runs: list[dict[str, Any]], name: str, metric: str) -> Doubles:
    """(n_seeds, n_users)."""
    return np.stack([unpacked(run["lists"][name]["users"][metric]) for run in runs])


def user_covered(runs: list[dict[str, Any]], name: str) -> Doubles:
    """(n_seeds, n_users) 1 where a user was shown anything."""
    return (user_values(runs, name, "length") > 0).astype(np.float64)


def _curve(runs: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    return {
        "N": list(LENGTHS),
        metric: np.mean([run["curve"][metric] for run in runs], axis=0).tolist(),
        "chosen": round(float(np.median([run["N"]["f1"] for run in runs]))),
    }
