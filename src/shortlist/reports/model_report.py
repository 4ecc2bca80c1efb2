"""The model report: the lists of the test users under several cutoffs, on one HTML page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.core.charts import Mark, Series, legend, length_chart, line_chart
from shortlist.core.files import write_text
from shortlist.core.metrics import PER_USERS, ListValue, Metric, Money
from shortlist.cutoff.base import Cutoff, are_calibrated
from shortlist.cutoff.boundary import Boundary
from shortlist.cutoff.threshold import FixedN
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import REASON_TEXT, RankedList, RankedLists
from shortlist.data.profile import check_data
from shortlist.evaluation import Comparison, Report, compare, evaluate, match_baselines, oracle
from shortlist.evaluation.baselines import USUAL_LENGTH
from shortlist.evaluation.significance import PairedTest
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import Recommender
from shortlist.models.counting import MOST_OFTEN, most_often
from shortlist.reports.page import format_test, render
from shortlist.split import Split
from shortlist.types import Doubles, Longs

if TYPE_CHECKING:
    from shortlist.auto.cut import CutResult

N_CANDIDATES = 100  # ranked items per user from which cutoffs choose
N_EXAMPLES = 9  # three rows of three cards on a wide screen
P_LEVEL = 0.05
MAX_ROWS = 8  # items shown of an example user's list
WITHHELD = 3  # candidates shown below the end of the list
NAMED = 3  # items named of the history and of the test basket
REASONS = {  # shorter than in other places, because every card has one
    "utility": "Stops here: one more item would probably hurt more than help",
    "value": "Stops here: one more item would cost more than it brings",
    "below_floor": "No list: even the best one is too uncertain",
}
BOUNDARY_RULE = (
    "Learned boundary. The list stops at the first item below the user's own boundary, which the model "
    "learns together with the ranking."
)


@dataclass(frozen=True, eq=False)
class ModelReport:
    """The lists of the test users under several cutoffs; nothing was fitted or chosen on `truth`."""

    data: str  # name of the dataset
    model: Recommender | None  # fitted on `history`; None for candidates of another ranker
    history: Interactions | None
    truth: Interactions
    lists: Mapping[str, RankedLists]  # by name of the cutoff; the first is the fixed N
    fixed_lengths: tuple[int, ...]  # the fixed N; several, ascending, if folds of users have different ones
    main: str  # name of the cutoff that the report is about
    cutoff: Cutoff | Literal["boundary"]  # of the main lists; "boundary": learned by the model
    top_candidates: RankedLists  # of every test user, with probabilities if the model or the cutoff has them
    max_items: int = N_CANDIDATES  # per list
    money: Money | None = None
    users: pl.Series | None = None  # ids of all users who count, if some of them may have no truth
    horizon: int | None = None  # microseconds that the truth covers; None: it is the last basket
    is_random: bool = False  # whether the truth was drawn at random from each user's items

    @cached_property
    def reports(self) -> dict[str, Report]:
        """The evaluation of each cutoff."""
        return {name: self.evaluate(lists) for name, lists in self.lists.items()}

    def evaluate(self, lists: RankedLists) -> Report:
        """Evaluate lists of the test users."""
        report = evaluate(lists, self.truth, history=self.history, max_items=self.max_items, users=self.users)
        return replace(report, money=self.money)

    @property
    def metric(self) -> str:
        """The metric that decides: money if it is known."""
        return "f1" if self.money is None else "value"

    @property
    def N(self) -> int:  # noqa: N802
        """The fixed N; the middle one of several."""
        return self.fixed_lengths[len(self.fixed_lengths) // 2]

    @property
    def fixed_text(self) -> str:
        """The fixed N, or those of the folds."""
        return " or ".join(map(str, self.fixed_lengths))

    @property
    def same(self) -> str:
        """The fixed N for everyone, in words."""
        words = {"0": "showing nothing", "1": "1 item for everyone"}
        return words.get(self.fixed_text, f"{self.fixed_text} items for everyone")

    @property
    def outcome(self) -> str:
        """What the lists are compared with."""
        if self.is_random:
            return "held-out part"
        return "next basket" if self.horizon is None else f"next {self.horizon / DAY:g} days"

    @property
    def list_time(self) -> str:
        """At which time the lists were made, in one sentence; empty if time plays no role."""
        if self.model is None or self.is_random or self.truth.time is None:
            return ""
        when = "the time of the user's test basket" if self.horizon is None else "the start of the period"
        return (
            f"Each list of the report was made at {when}; shortlist recommend makes lists as of the last "
            "event, or of --at."
        )

    @cached_property
    def comparison(self) -> Comparison:
        """Each cutoff against the fixed N."""
        others = ("ndcg",) if self.money is None else ("f1",)
        return compare(self.reports, metrics=(self.metric, *others), max_items=self.max_items)

    @cached_property
    def same_volume(self) -> Report:
        """The evaluation of lists of one length that show as many items in total as the main lists."""
        lists = match_baselines(
            self.lists[self.main], self.top_candidates, self.truth, max(self.N, 1), users=self.users
        )
        return self.evaluate(lists["fixed length, same items"])

    @cached_property
    def volume_test(self) -> PairedTest:
        """Hits of the main lists minus hits of one length for everyone, with the same number of items."""
        return self.selected.test("hits", self.same_volume)

    @property
    def selected(self) -> Report:
        """The evaluation of the main lists."""
        return self.reports[self.main]

    @property
    def fixed(self) -> Report:
        """The evaluation of the fixed N that was best on the validation set."""
        return self.reports[next(iter(self.lists))]

    @cached_property
    def hits_curve(self) -> Doubles:
        """Hits per 100 items shown if every list has 1, 2, … items, up to the number of candidates."""
        labels, rank = label_lists(self.top_candidates, self.truth, self.users), self.top_candidates.positions
        hits = np.cumsum(np.bincount(rank, labels.relevant, 1))
        curve: Doubles = 100 * hits / np.maximum(np.cumsum(np.bincount(rank, minlength=1)), 1)
        return curve[: self.max_items]

    @property
    def period(self) -> str | None:
        """The first and the last day of the data; None without timestamps."""
        given = [data.time for data in (self.history, self.truth) if data is not None]
        times = [time for time in given if time is not None and time.size]
        if not times:
            return None
        ends = min(column.min() for column in times), max(column.max() for column in times)
        first, last = (datetime.fromtimestamp(int(end) / 1e6, UTC).date() for end in ends)
        return f"{first} to {last}"

    @cached_property
    def oracle(self) -> Report:
        """The evaluation of the best length of each list, chosen with knowledge of the test set."""
        lists = self.top_candidates.head(self.max_items)
        report = oracle(lists, self.truth, max_items=self.max_items, users=self.users)
        return replace(report, money=self.money)

    @cached_property
    def example_rows(self) -> Longs:
        """Rows of a few lists at equal distances from the shortest to the longest."""
        lengths = self.lists[self.main].lengths
        order = np.argsort(lengths, kind="stable")
        at = np.linspace(0, order.size - 1, min(N_EXAMPLES, order.size)).round().astype(np.int64)
        return np.asarray(order[at], np.int64)

    @property
    def stopping_rule(self) -> str:
        """The cutoff of the main lists, in words."""
        cutoff, fitted = self.cutoff, "on users other than those it is tested on"
        if self.model is not None:
            fitted = "on the validation set"
        if cutoff == "boundary":
            fitted = "with the model, on what its training held out"
            cutoff = Boundary() if self.model is None else self.model.boundary_ or Boundary()
        if isinstance(cutoff, Boundary):
            return BOUNDARY_RULE
        return f"{type(cutoff).__name__}. {cutoff.rule} It was fitted {fitted}."

    @property
    def is_significant(self) -> bool:
        """Whether the main lists and the fixed N differ, after correction for all cutoffs."""
        row = self.comparison.tests.filter(model=self.main, metric=self.metric)
        return bool(row["p_bootstrap_holm"][0] <= 1 - self.comparison.level)

    @property
    def lift(self) -> float | None:
        """F1 of the main lists relative to the fixed N; None if the fixed N has no hit."""
        return self.selected.f1 / self.fixed.f1 - 1 if self.fixed.f1 else None

    def headline(self) -> str:
        """What the comparison means, in one sentence without terms."""
        if self.money is not None:
            return self._money_headline()
        hits, others = int(self.selected.hits.sum()), int(self.same_volume.hits.sum())
        if not self.selected.lengths.any():
            return "No user gets an item."
        if self.volume_test.p_bootstrap > P_LEVEL or not others:
            return (
                "With the same number of items, lists of individual length match what users choose next "
                "about as well as one length for everyone."
            )
        more = f"{abs(hits / others - 1):.0%} {'more' if hits > others else 'fewer'}"
        return (
            f"With the same number of items, lists of individual length contain {more} items that users "
            "choose next than one length for everyone."
        )

    def _money_headline(self) -> str:
        """The same, if it is known what an item earns and costs."""
        ours, theirs = self.selected.mean("value"), self.fixed.mean("value")
        same, text = self.same, ListValue.text
        both = f"{text(ours)} and {text(theirs)} per 1,000 users, in the unit of gain and cost"
        if not self.is_significant:
            return f"These lists earn about as much as {same}: {both}."
        if ours > theirs:
            return f"These lists earn more than {same}: {both}."
        return f"These lists earn less than {same}: {both}."

    def verdict(self) -> list[str]:
        """The figures behind the headline."""
        ours, theirs, n = self.selected, self.same_volume, PER_USERS
        difference, low, high = (
            f"{n * value:+,.0f}"
            for value in (self.volume_test.difference, self.volume_test.low, self.volume_test.high)
        )
        sentences = [
            f"Of 100 items shown, {ours.hits_per_100:.1f} are in the {self.outcome}; with one length for "
            f"everyone and as many items, {theirs.hits_per_100:.1f}. Per 1,000 users that is "
            f"{n * ours.mean('hits'):,.0f} and {n * theirs.mean('hits'):,.0f} such items, a difference of "
            f"{difference} (95% interval {low} to {high})."
        ]
        return sentences if self.money is None else [self._earned(), *sentences]

    def describe_f1(self) -> str:
        """F1 of both, in one sentence; empty if it was not compared."""
        f1 = self.comparison.results.get((self.main, "f1"))
        if f1 is None:
            return ""
        difference = f"{f1.difference:+.4f} (95% interval {f1.low:+.4f} to {f1.high:+.4f})"
        return f"F1 is {self.selected.f1:.4f} with K and {self.fixed.f1:.4f} with fixed N: {difference}."

    def _earned(self) -> str:
        """What the lists earn against each length for everyone."""
        text, parts = ListValue.text, []
        for name, other in self.reports.items():
            if name == self.main:
                continue
            test = self.selected.test("value", other)
            parts.append(
                f"{text(test.difference, '+')} against {name} ({text(other.mean('value'))}; 95% interval "
                f"{text(test.low, '+')} to {text(test.high, '+')})"
            )
        return (
            f"For 1,000 users, these lists earn {text(self.selected.mean('value'))}: {'; '.join(parts)}. "
            f"Money: {self.money}."
        )

    def describe_empty(self) -> str:
        """How many lists are empty, and what that means."""
        empty = self.selected.lengths == 0
        if not empty.any():
            return "Every user gets a list."
        nothing = float((self.selected.n_relevant[empty] == 0).mean())
        rest = f" Of these users, {nothing:.0%} chose nothing in the {self.outcome}." if nothing else ""
        lists = f"{empty.sum():,} of {empty.size:,} users ({empty.mean():.1%}) get an empty list"
        return f"{lists}: no item was worth showing to them.{rest}"


def build_model_report(
    data: str,
    model: Recommender,
    split: Split,
    cutoffs: Mapping[str, Cutoff | Literal["boundary"]],
    *,
    main: str,
    N: int,
    filter_seen: bool,
    money: Money | None = None,
    everyone: bool = False,
) -> ModelReport:
    """Rank the candidates of the test users once, and end the lists with each cutoff; the first is a fixed N.

    Only a boundary that the model learned needs another request, and so does what each user took most often,
    the baseline where users buy items again. `everyone`: the split is one by period, and users without test
    rows count.
    """
    users = split.test_users if everyone else split.test.users.to_ids(split.test.active_users)
    at = split.test_at
    if money is not None:
        cutoffs = {**cutoffs, f"{USUAL_LENGTH} for everyone": FixedN(N=USUAL_LENGTH)}
    needed = [
        cutoff.candidates_needed() if isinstance(cutoff, Cutoff) else N_CANDIDATES
        for cutoff in cutoffs.values()
        if not isinstance(cutoff, FixedN)
    ]
    n = max(N, *needed) if needed else max(N, N_CANDIDATES)
    top_candidates = model.recommend(users, N=n, filter_seen=filter_seen, at=at)
    lists = {
        name: cutoff.apply(top_candidates, history=model.history_)
        if isinstance(cutoff, Cutoff)
        else model.recommend(users, cutoff=cutoff, max_items=n, filter_seen=filter_seen, at=at)
        for name, cutoff in cutoffs.items()
    }
    if split.train_valid.has_repeats and not filter_seen:
        ranker, same = most_often().fit(split.train_valid), max(N, 1)
        name = f"{MOST_OFTEN} ({same} for everyone)"
        lists[name] = ranker.recommend(users, N=same, filter_seen=False, at=at)
    cutoff = cutoffs[main]
    if isinstance(cutoff, Cutoff):
        top_candidates = cutoff.with_probabilities(top_candidates, history=model.history_)
    return ModelReport(
        data=data,
        model=model,
        history=split.train_valid,
        truth=split.test,
        lists=lists,
        fixed_lengths=(N,),
        main=main,
        cutoff=cutoff,
        top_candidates=top_candidates,
        max_items=n,
        money=money,
        users=users if everyone else None,
        horizon=None if split.cuts is None else split.cuts[1] - split.cuts[0],
        is_random=split.is_random,
    )


def build_cut_report(data: str, result: "CutResult") -> ModelReport:
    """The report on lists of another ranker, each ended by a cutoff chosen and fitted on other users."""
    fixed = f"best fixed N = {' or '.join(map(str, result.fixed_lengths))}"
    return ModelReport(
        data=data,
        model=None,
        history=None,
        truth=result.truth,
        lists={fixed: result.fixed, result.name: result.tested},
        fixed_lengths=result.fixed_lengths,
        main=result.name,
        cutoff=result.cutoff,
        top_candidates=result.candidates,
        max_items=max(int(result.candidates.lengths.max(initial=1)), 1),
    )


def items_of(user_id: Any, data: Interactions | None) -> list[Any]:
    """Ids of the user's items, oldest first; empty for an unknown user."""
    if data is None or user_id not in data.users:
        return []
    user = data.users.index(user_id)
    return data.items.to_ids(data.item[data.indptr[user] : data.indptr[user + 1]]).to_list()


# ------------------------------------------------------------------ the page
def write_model_report(report: ModelReport, path: Path) -> None:
    """Write the page to a file."""
    write_text(path, render_model_report(report))


def render_model_report(report: ModelReport) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    params = {} if report.model is None else report.model.get_params()
    namer = str if report.history is None else report.history.item_label
    lists = report.lists[report.main]
    return render(
        "model_report.html.j2",
        report=report,
        outcomes=_outcomes(report),
        today=datetime.now(UTC).date().isoformat(),
        version=sl.__version__,
        model_name=None if report.model is None else type(report.model).__name__,
        held_out=None if report.model is None else _held_out(report.model),
        params=", ".join(
            f"{name} {value}" for name, value in params.items() if value is not None and value != ()
        ),
        rows=[_row(*row, report) for row in (*report.reports.items(), ("oracle", report.oracle))],
        measure="F1" if report.money is None else "the money",
        figures={
            "hits": _hits_figure(report),
            "lengths": _length_figure(report),
            "calibration": _calibration_figure(report.selected),
        },
        users=[_user(report, lists.at(int(row)), namer) for row in report.example_rows],
        data_section="" if report.history is None else check_data(report.history).to_html(),
    )


def _outcomes(report: ModelReport) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """What the lists bring, beside as many items of one length, the best single length and a simple rule."""

    def recall(of: Report) -> float:
        return float(100 * of.hits.sum() / max(of.n_relevant.sum(), 1))

    figures: list[tuple[str, Callable[[Report], str]]] = [
        ("items shown per user", lambda of: f"{of.mean('length'):.{1 if of.mean('length') >= 1 else 2}f}"),
        (f"of 100 items shown, in the {report.outcome}", lambda of: f"{of.hits_per_100:.1f}"),
        (f"of 100 items in the {report.outcome}, shown", lambda of: f"{recall(of):.1f}"),
        ("of 100 users, found at least one of them", lambda of: f"{100 * (of.hits > 0).mean():.1f}"),
        ("of 100 users, got an empty list", lambda of: f"{100 * (of.lengths == 0).mean():.1f}"),
    ]
    if report.money is not None:
        figures.insert(0, ("earned per 1,000 users", lambda of: ListValue.text(of.mean("value"))))
    reports = {
        "individual length": report.selected,
        "one length, as many items": report.same_volume,
        report.same: report.fixed,
    } | {name: of for name, of in report.reports.items() if name.startswith(MOST_OFTEN)}
    return list(reports), [(name, [figure(of) for of in reports.values()]) for name, figure in figures]


def _held_out(model: Recommender) -> dict[str, Any] | None:
    """What the model's selection scored on users that took no part in it, if that was measured."""
    selection = model.selection_
    if selection is None or selection.held_out is None:
        return None
    metric = Metric.registry.get(selection.metric, Metric)
    score, error = (metric.text(selection.held_out[name]) for name in ("score", "standard_error"))
    about = {"metric": metric.title, "score": score, "error": error, "model_reason": selection.model_reason}
    return selection.held_out | about


def _hits_figure(report: ModelReport) -> str:
    """Hits per 100 items shown for every length for everyone, and of the lists at their mean length."""
    length, hits = report.selected.mean("length"), report.selected.hits_per_100
    curve = report.hits_curve[: max(20, int(3 * length))]
    N = [float(k) for k in range(1, curve.size + 1)]
    names = "individual length", "one length for everyone"
    chart = line_chart(
        "Of 100 items shown, how many are wanted",
        "items per user",
        "wanted items per 100 shown",
        [Series(names[1], N, curve.tolist(), 1, dotted=False), Series(names[0], [length], [hits], 0)],
        marks=[Mark(length, hits, f"{hits:.1f}")],
    )
    return chart + legend([(names[0], 0), (names[1], 1)])


def _length_figure(report: ModelReport) -> str:
    """How many users get lists of each length."""
    longest = min(report.max_items, max(int(report.selected.lengths.max(initial=0)), report.N))
    counts = np.bincount(np.minimum(report.selected.lengths, longest + 1), minlength=longest + 2)
    mark = (float(min(report.N, longest + 1)), f"{report.fixed_text} for everyone")
    return length_chart("List length", counts.tolist(), 0, mark=mark)


def _calibration_figure(report: Report) -> str | None:
    """Observed against predicted probabilities; None for lists without probabilities."""
    if report.calibration_error is None:
        return None
    table = report.calibration
    p, n = table["observed"].to_numpy(), table["shown"].to_numpy()
    error = 1.96 * np.sqrt(p * (1 - p) / n)
    around = list(zip(np.maximum(p - error, 0).tolist(), (p + error).tolist(), strict=True))
    top = max(float(table["predicted"].max() or 0), float((p + error).max()))  # type: ignore[arg-type]
    chart = line_chart(
        "Predicted and observed probability",
        "predicted probability",
        "share of items that were chosen",
        [
            Series("exact prediction", [0.0, top], [0.0, top], 7, dotted=False),
            Series("observed", table["predicted"].to_list(), p.tolist(), 0, around=around),
        ],
        top=top,
    )
    return chart + legend([("observed", 0), ("exact prediction", 7)])


def _row(name: str, evaluated: Report, report: ModelReport) -> dict[str, Any]:
    """One row of the table "Quality of the lists"."""
    return {
        "name": name,
        "selected": name == report.main,
        "report": evaluated,
        "earned": "" if report.money is None else ListValue.text(evaluated.mean("value")),
        "test": format_test(report.comparison.results.get((name, report.metric)), report.metric),
    }


def _reason(reason: str) -> str:
    """Why a list ends, as the line at its end."""
    text = REASONS.get(reason) or REASON_TEXT.get(reason, "end of the list")
    return text[0].upper() + text[1:]


def _user(report: ModelReport, cut_list: RankedList, name: Callable[[Any], str]) -> dict[str, Any]:
    """One example user: history, test basket, list, and the items below its end."""
    ranked, basket = report.top_candidates[cut_list.user_id], items_of(cut_list.user_id, report.truth)
    probabilities: dict[Any, float] = {}
    own = None if report.model is None else report.model.boundary_
    if ranked.probabilities is not None and are_calibrated(report.cutoff, own):
        probabilities = dict(zip(ranked.items, ranked.probabilities, strict=True))

    def describe(items: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": name(item),
                "hit": item in basket,
                "probability": "" if np.isnan(p := probabilities.get(item, np.nan)) else f"{p:.1%}",
            }
            for item in items
        ]

    shown = set(cut_list.items)
    return {
        "user_id": cut_list.user_id,
        "length": len(cut_list),
        "history": [name(item) for item in items_of(cut_list.user_id, report.history)[-NAMED:]],
        "basket": [name(item) for item in basket[:NAMED]],
        "more_basket": max(len(basket) - NAMED, 0),
        "shown": describe(cut_list.items[:MAX_ROWS]),
        "more_shown": max(len(cut_list) - MAX_ROWS, 0),
        "reason": _reason(cut_list.reason or ""),
        "withheld": describe([item for item in ranked.items if item not in shown][:WITHHELD]),
    }
