"""fit: a ranker and a decider for whoever does not want to choose; both are chosen on validation."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from shortlist.auto.cutoff_choice import FIXED, METRIC, CutoffChoice, choose_cutoff, default_cutoffs
from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError, TrainingError
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve
from shortlist.models.base import Recommender
from shortlist.models.factorization.engine import JointModel
from shortlist.models.selection import SelectionReport
from shortlist.models.two_stage.two_stage import TwoStage
from shortlist.split import last_basket
from shortlist.tuning.space import SPACES, draw, usual_space
from shortlist.tuning.tune import Fold, made

TRIALS = {"quick": 1, "default": 4}
DEPTH = 50  # candidates that deciders look at, and the longest fixed N
RANKERS = ("Popularity", "PersonalFrequency", "BPRMF", "HRM", "TIFUKNN", "EASE", "TwoStage")
LINEAR_ITEMS = 6_000  # beyond, its matrix takes minutes and gigabytes
NEIGHBOUR_USERS = 50_000  # beyond, comparing all with all takes longer than the others together
RETURNING = 0.1  # share of users with two baskets from which on last baskets are worth foretelling
HELD = 5  # else one item in so many is held back
MEMORY = 0.9  # of HRM where people take items again
TREND = 3.0  # of HRM where there are timestamps, to start from


def fit(
    data: Interactions | Any,
    *,
    budget: str | int = "default",
    seed: int = 0,
    n_threads: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Recommender:
    """A model whose lists stop by themselves, chosen and tuned for the data; `selection_` says what and why.

    Every ranker that suits the data is rehearsed on what users took last, with its own settings and then with
    drawn ones; the one with the best F1 at its best N is kept. Its lists are ended by the decider that does
    best on users it was not fitted on, and by a fixed N where none does better. Then the ranker learns from
    everything. `budget` counts settings per ranker: "quick" (1), "default" (4) or a number; it is no clock,
    so the same data and seed give the same choice. `progress` is told what happens, a line at a time.
    """
    n_trials, tell, data = _n_trials(budget), progress or _silent, Interactions.of(data)
    Recommender.check_data(data)
    history, truth, how = held_back(data, seed)
    tell(f"validation: {how}")
    tried, left_out = [], {}
    for name in RANKERS:
        why_not = unsuited(name, history, truth)
        if why_not is None:
            try:
                tried.append(_best_of(name, (history, truth), n_trials, seed, n_threads))
                tell(f"{name}: F1 {tried[-1].f1:.4f} at N = {tried[-1].N}")
                continue
            except (DataError, TrainingError) as error:
                why_not = str(error)
        left_out[name] = why_not
    tried.sort(key=lambda rehearsed: -rehearsed.f1)  # stable: the plainer one of equals
    best = tried[0]
    choice, because = _decide(best.heads, truth, history)
    tell(f"{choice.name}: {because}")
    model = made(best.name, {**best.params, **_machine(best.name, seed, n_threads)})
    fitted: Recommender = model.fit(data)  # type: ignore[attr-defined]
    return fitted.set_cutoff(choice.cutoff, _account(how, tried, choice, left_out, because))


def _silent(line: str) -> None:
    """Nobody listens."""


def _n_trials(budget: str | int) -> int:
    if isinstance(budget, str) and budget in TRIALS:
        return TRIALS[budget]
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
        raise ConfigError(
            f"budget must be {', '.join(TRIALS)} or a number of settings per ranker, got {budget!r}; "
            "it is no clock, so that the same data gives the same choice."
        )
    return int(budget)


# ------------------------------------------------------------------ what is held back
def held_back(data: Interactions, seed: int) -> tuple[Interactions, Interactions, str]:
    """(history, truth, in words): last baskets where users come back, else a draw of every user's items."""
    n_baskets = np.diff(data.user_baskets)
    returning = int((n_baskets > 1).sum())
    if returning >= max(2, RETURNING * int((n_baskets > 0).sum())):
        split = last_basket(data)
        return split.train_valid, split.test, f"the last baskets of {returning:,} users"
    held = _drawn(data, seed)
    history, truth = data.where(~held), data.where(held)
    n = truth.active_users.size
    if n < 2:
        raise DataError(
            f"choosing needs at least two users with two items each, got {n}; bring more history, "
            "or fit a model of your own choice, such as Popularity."
        )
    return history, truth, f"one item in {HELD} of {n:,} users, drawn at random: hardly anybody has come back"


def _drawn(data: Interactions, seed: int) -> Any:
    """(n_rows,) whether the row's item is one of those held back from its user; one item stays at least."""
    indptr, items = data.item_sets
    sizes = np.diff(indptr)
    owner = np.repeat(np.arange(data.n_users), sizes)
    order = np.lexsort((np.random.default_rng(seed).random(items.size), owner))
    place = np.empty(items.size, np.int64)
    place[order] = np.arange(items.size) - indptr[owner]
    n_held = np.where(sizes > 1, np.maximum(sizes // HELD, 1), 0)
    keys = owner * data.n_items + items
    row = np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)
    return (place < n_held[owner])[row]


# ------------------------------------------------------------------ rankers
@dataclass(frozen=True, eq=False)
class Rehearsed:
    """A ranker at its best settings, with what it would have shown."""

    name: str
    params: dict[str, Any]
    f1: float
    N: int
    heads: RankedLists


def unsuited(name: str, history: Interactions, truth: Interactions) -> str | None:
    """Why there is no point in trying a ranker; None where there is."""
    comes_back = history.n_baskets > history.active_users.size
    if name == "PersonalFrequency" and not history.has_repeats:
        return "nobody takes an item twice"
    if name in ("HRM", "TwoStage") and not comes_back:
        return "it learns from users who come back"
    if name == "EASE" and history.n_items > LINEAR_ITEMS:
        return f"{history.n_items:,} items are more than {LINEAR_ITEMS:,}"
    if name == "TIFUKNN" and history.n_users > NEIGHBOUR_USERS:
        return f"{history.n_users:,} users are more than {NEIGHBOUR_USERS:,}"
    if name == "TwoStage" and find_spec("lightgbm") is None:
        return "LightGBM is not installed; pip install 'shortlist[trees]'"
    return None


def _best_of(name: str, fold: Fold, n_trials: int, seed: int, n_threads: int) -> Rehearsed:
    """The ranker as it comes, then with drawn settings; the first of equals."""
    n = max(1, n_trials // 4) if name == "TwoStage" else n_trials  # each costs as much as many of the others
    own, timed = {}, fold[0].time is not None
    if name == "HRM":
        own = {
            **({"repeat_decay": MEMORY} if fold[0].has_repeats else {}),
            **({"trend_half_life": TREND} if timed else {}),
        }
    best = _rehearsed(name, own, fold, seed, n_threads)
    space = usual_space(name, timed=timed) if name in SPACES else {}
    for number in range(1, n if space else 1):
        try:
            other = _rehearsed(name, {**own, **draw(space, seed, number)}, fold, seed, n_threads)
        except TrainingError:
            continue
        best = other if other.f1 > best.f1 else best
    return best


def _machine(name: str, seed: int, n_threads: int) -> dict[str, Any]:
    """The seed and the threads, where a ranker takes them."""
    known = made(name, {}).get_params()
    return {key: value for key, value in (("seed", seed), ("n_threads", n_threads)) if key in known}


def _rehearsed(name: str, params: dict[str, Any], fold: Fold, seed: int, n_threads: int) -> Rehearsed:
    history, truth = fold
    model: Any = made(name, {**params, **_machine(name, seed, n_threads)})
    if isinstance(model, JointModel):
        model.fit(history, valid=truth)
        params = {**params, "n_epochs": model.n_epochs_}
    else:
        model.fit(history)
    heads = _heads(model, truth, n_threads)
    curve = fixed_n_curve(heads, truth, range(1, DEPTH + 1))
    return Rehearsed(name, params, float(curve[METRIC].max()), best_fixed_n(curve), heads)  # type: ignore[arg-type]


def _heads(model: Recommender, truth: Interactions, n_threads: int) -> RankedLists:
    """What the model would have shown, where it knows time just before each user's basket."""
    users = truth.active_users
    if isinstance(model, TwoStage):
        return model.heads(users, None if truth.time is None else truth.time[truth.indptr[users]], DEPTH)
    return model.recommend(truth.users.to_ids(users), N=DEPTH, n_threads=n_threads, at=truth)


# ------------------------------------------------------------------ deciders
def _decide(heads: RankedLists, truth: Interactions, history: Interactions) -> tuple[CutoffChoice, str]:
    """(choice, why): a decider only where it beats the fixed N on strangers and on all of validation."""
    deciders: dict[str, Cutoff] = default_cutoffs(DEPTH, probabilities=heads.probabilities is not None)
    choice = choose_cutoff(heads, truth, history, deciders)
    fixed = choice.tried[FIXED]
    if choice.name == FIXED:
        return choice, "no decider beats the best fixed N on users it was not fitted on"
    best = float(fixed_n_curve(heads, truth, range(1, DEPTH + 1))[METRIC].max())  # type: ignore[arg-type]
    ours = evaluate(choice.cutoff.apply(heads, history=history), truth).mean(METRIC)
    if ours < best:
        plain = deciders[FIXED].clone().fit(heads, truth, history=history)
        because = (
            f"fitted on all of validation, {choice.name} reaches {ours:.4f} there and a fixed N {best:.4f}; "
            "the figures by decider are of users it was not fitted on, too few here to trust"
        )
        return CutoffChoice(FIXED, plain, choice.tried), because
    gain = f"{choice.tried[choice.name] / fixed - 1:+.1%} on" if fixed else "against an F1 of 0 for"
    return choice, f"{gain} the best fixed N, on users it was not fitted on"


def _account(
    how: str, tried: list[Rehearsed], choice: CutoffChoice, left_out: dict[str, str], because: str
) -> SelectionReport:
    order = sorted(choice.tried, key=lambda name: (name != choice.name, -choice.tried[name]))
    return SelectionReport(
        how=how,
        rankers=[{"ranker": t.name, "params": t.params, "N": t.N, "f1": t.f1} for t in tried],
        deciders=[{"decider": name, "f1": choice.tried[name]} for name in order],
        left_out=left_out,
        because=because,
    )
