"""Training as the verbs do it: rehearse before every user's last basket, then learn from everything."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import shortlist as sl
from shortlist.cli.progress import epochs
from shortlist.cli.screen import say
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.cutoff import Cutoff
    from shortlist.data.interactions import Interactions
    from shortlist.data.ranked_lists import RankedLists
    from shortlist.models.selection import SelectionReport
    from shortlist.reports.model_report import ModelReport
    from shortlist.split import Split

Seen = Literal["auto", "keep", "drop"]
BOUNDARY = "learned boundary"
HEAD = 100  # candidates per user that a cutoff looks at


@dataclass(frozen=True)
class Rehearsal:
    """What a model would have shown before the users' last baskets, and what was in them."""

    model: Any
    heads: "RankedLists"
    truth: "Interactions"
    history: "Interactions"

    def set_cutoff(self, cutoff: "Cutoff") -> "Cutoff":
        """The cutoff, fitted on what happened."""
        return cutoff.fit(self.heads, self.truth, history=self.history)


def rehearse(model: Any, data: "Interactions", keep_seen: bool) -> Rehearsal | None:
    """Train without the last baskets; None, with a word, where nobody has two of them."""
    try:
        split = sl.split.last_basket(data)
    except DataError as error:
        say(f"no validation, so {type(model).__name__} is trained as its parameters say: {error}")
        return None
    history, truth = split.train_valid, split.test
    trained = learned(model, history, truth)
    users = truth.users.to_ids(truth.active_users)
    heads = trained.recommend(users, N=HEAD, filter_seen=not keep_seen, at=truth)
    return Rehearsal(trained, heads, truth, history)


def learned(model: Any, data: "Interactions", valid: "Interactions | None" = None) -> Any:
    """A fitted copy; Ctrl-C leaves nothing, where the library would keep the state so far."""
    from shortlist.models.factorization.engine import FactorModel

    fresh = model.clone()
    if not isinstance(fresh, FactorModel):
        return fresh.fit(data)
    label = f"{'training' if valid is None else 'rehearsing'} {type(model).__name__}"
    with epochs(label) as progress:
        fresh.fit(data, valid=valid, progress=progress)
    if fresh.stopped_ == "interrupted":
        raise KeyboardInterrupt
    return fresh


def relearned(rehearsal: Rehearsal, data: "Interactions") -> Any:
    """The rehearsed model on all of `data`, for as many epochs as were best."""
    final = rehearsal.model.clone()
    if hasattr(rehearsal.model, "n_epochs_"):
        final.n_epochs = rehearsal.model.n_epochs_
        say(f"{type(final).__name__}: {final.n_epochs} epochs were best on the users' last baskets")
    return learned(final, data)


@dataclass(frozen=True)
class Taught:
    """A model that has learned from everything it was given, and what ends its lists."""

    model: Any
    cutoff: "Cutoff | None" = None  # None: the boundary that the model learned, if it learns one
    N: int | None = None  # the fixed length that did best on validation; None where there was none
    chosen: "SelectionReport | None" = None  # why this model, where it was chosen for the data

    def save(self, place: Path) -> Path:
        """The model together with what ends its lists, in one step."""
        model = self.model if self.cutoff is None else self.model.set_cutoff(self.cutoff, self.chosen)
        saved: Path = model.save(place)
        return saved


def taught(model: Any, data: "Interactions", decider: str, keep_seen: bool, *, quick: bool = False) -> Taught:
    """Rehearse, decide, learn; `quick` only learns, as does data without last baskets."""
    rehearsal = None if quick else rehearse(model, data, keep_seen)
    if rehearsal is None:
        return Taught(learned(model, data))
    final, N = relearned(rehearsal, data), rehearsal.set_cutoff(sl.cutoff.FixedN()).need("N_")
    if decider == "none":
        return Taught(final, N=N)
    return Taught(final, rehearsal.set_cutoff(getattr(sl.cutoff, decider)()), N)


def chosen_for(data: "Interactions", budget: str | int, params: "dict[str, Any]") -> Taught:
    """Ranker, settings and decider chosen on validation, each step said."""
    model: Any = sl.fit(data, budget=budget, progress=say, **params)
    return Taught(model, model.cutoff_, model.selection_.models[0]["N"], model.selection_)


def judged(name: str, made: Taught, split: "Split", keep_seen: bool) -> "ModelReport":
    """What was taught without the test, against the best fixed N and the learned boundary."""
    from shortlist.reports.model_report import build_model_report

    if made.N is None:
        raise DataError("a report needs users with at least three baskets, got none; leave out --report.")
    ends: dict[str, Cutoff | Literal["boundary"]] = {f"best fixed N = {made.N}": sl.cutoff.FixedN(N=made.N)}
    if made.model.boundaries(split.test.active_users[:1]) is not None:
        ends[BOUNDARY] = "boundary"
    main = BOUNDARY if made.cutoff is None else type(made.cutoff).__name__
    ends[main] = made.cutoff or "boundary"
    return build_model_report(name, made.model, split, ends, main=main, N=made.N, filter_seen=not keep_seen)


def write_page(report: "ModelReport", path: Path) -> None:
    """The report as one HTML file."""
    from shortlist.core.files import atomic_write
    from shortlist.reports.model_page import render_model_report

    page = render_model_report(report)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def keeps_seen(wish: Seen, data: "Interactions") -> bool:
    """Whether items taken before stay candidates; `auto` asks the data whether users come back to them."""
    if wish != "auto":
        return wish == "keep"
    fate = "users take items again, so seen items may be shown"
    say(fate if data.has_repeats else "users take nothing twice, so seen items are left out")
    return data.has_repeats
