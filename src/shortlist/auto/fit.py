"""fit: select a model, its settings and a cutoff on validation data; refit: do so again on newer data."""

import math
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import numpy as np

from shortlist.auto.cutoff_choice import BOUNDARY, SelectedCutoff, check_metric
from shortlist.auto.joint_selection import choose_jointly, confirm_jointly, held_out_scores
from shortlist.auto.progress import show_progress
from shortlist.auto.search import SettingsSearch
from shortlist.auto.validation import (
    EpochProgress,
    Holdout,
    Validating,
    Validation,
    build_model,
    count_strata,
    draw_strata,
    earlier_fold,
    hold_out,
)
from shortlist.core.metrics import Metric
from shortlist.cutoff import ExpectedValue
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.cutoff.guarantee import Guarantee
from shortlist.data.columns import parse_duration
from shortlist.data.events import Events
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items, group_fields
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError, InfeasibleError, warn
from shortlist.evaluation.report import TimedReport
from shortlist.evaluation.significance import paired_test
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import (
    MODEL_MODULES,
    ContentRecommender,
    Recommender,
    is_tried,
    model_names,
)
from shortlist.models.selection import SelectionReport
from shortlist.models.strict_time import evaluate_over_time
from shortlist.recommend.request import warn_if_all_empty
from shortlist.split import Split
from shortlist.types import Bools, Ints, Longs

TRIALS = {"quick": 1, "default": 4}
N_CANDIDATES = 50  # per user; also the largest fixed N
SIMPLEST_FIRST = (
    *("Popularity", "PersonalFrequency", "BPRMF", "DKHRM"),
    *("TIFUKNN", "EASE", "GFCF", "ALS", "MatrixBlend"),
)
MODELS = (  # the built-in models that are tried, in this order; those of other packages follow
    *SIMPLEST_FIRST,
    *(name for name in MODEL_MODULES if name not in SIMPLEST_FIRST and is_tried(name)),
)
N_BASKETS = 4  # the latest baskets or periods, on each of which a guarantee is tested
TESTED_SHARE = 0.3  # share of the users with held-out interactions on whom the guarantee is tested
MAX_TESTED_SHARE = 0.6  # the same within one stratum
LEVEL = 0.05  # the new model is refused if it is worse with this significance

BUYERS_ONLY = (
    "gain and cost decide on lists that were validated only on users who interacted with something. Sent to "
    "everyone, such lists may lose money, because most users take nothing. Pass "
)
EVERYONE = "users='everyone' and horizon='7d' (--users everyone --horizon 7d); or "
BUYERS = "users='buyers' (--users buyers), if only buying users see lists."

Models = str | Recommender | Iterable[str | Recommender]


def fit(
    data: Interactions | Any,
    *,
    models: Models | None = None,
    metric: str | None = None,
    gain: float | None = None,
    cost: float | None = None,
    cutoff: Cutoff | Literal["auto"] | None = "auto",
    filter_seen: bool | None = None,
    budget: str | int = "default",
    validation: Validating = "last_basket",
    users: Literal["buyers", "everyone"] | None = None,
    horizon: str | timedelta | None = None,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    items: Items | Any = None,
) -> Recommender:
    """Fit a model whose lists have a suitable length for each user.

    The last basket of each user is held out (or a random share of each user's items, if few users return);
    `validation` selects another way.
    Every candidate model is fitted on the rest with its default settings, and those that reach 95% of the
    best one also with random ones. The training of a model given by name ends early where its validation F1
    stays far below the best model's. Up to three models within 10% of the best one at its best fixed N are
    compared by what they would serve: for each a cutoff is selected on the same data with `choose_cutoff`,
    and the model and cutoff with the highest metric are selected together. A fixed N is used if no other
    cutoff is better. Finally the model is fitted on all data, for the best number of epochs. The result
    depends only on the data, the seed and the arguments.

    The score of what was selected is too high on the users that selected it. Therefore the selection is
    repeated on each half of the validation users and scored on the other half: `selection_.held_out`.

    Parameters
    ----------
    data
        Interactions, a table with the usual column names, or a SciPy matrix (users × items).
    models
        Candidate models: names, unfitted models, or a mixture; all suitable models if left out. A model given
        by name is tried with `budget` settings, an unfitted model only with its own.
    metric
        Metric for selecting the model and the cutoff: `"f1"`, `"ndcg"` or `"value"`. By default `"value"` if
        gain and cost are given, else `"f1"`.
    gain, cost
        What a shown item earns if the user takes it, and costs if not, in one unit. An `ExpectedValue` as
        `cutoff` has them already.
    cutoff
        `"auto"` selects a cutoff; an unfitted cutoff is fitted on the validation lists; None sets no cutoff,
        so that lists end at the model's boundary if it has one. A `Guarantee` is tested on 30% of the users,
        drawn with `seed`: their held-out interactions train, tune and stop no model. The deployed model is
        the tested one; the held-out interactions are only added to its histories with `observe`. A threshold
        must pass the same test on up to three earlier baskets of all users (or periods), each predicted by a
        model that was trained before. With `max_empty`, the lists of all known users count.
    filter_seen
        Whether items from a user's history are excluded from the validation lists. By default they are
        excluded unless users buy items repeatedly.
    budget
        Number of settings per model: `"quick"` (1), `"default"` (4) or a positive integer. A model whose
        first setting is far behind the best one is tried with that setting only.
    validation
        `"last_basket"`: predict the last basket of each user; other users' later events may be in the
        training data. `"by_time"`: strict global time. Models learn from the events before the last fifth of
        the rows, observe the later ones day by day, and predict the first later basket of each user. Or a
        `Split` whose `train_valid` is `data`: learn from its `train`, predict its `valid`, also under strict
        time if the split is by time.
    users
        `"buyers"`: users with held-out interactions. `"everyone"`: also users to whom nothing happened within
        `horizon`, so that probabilities are those of a list sent to everyone; it needs `horizon`. By default
        buyers, with a warning if money decides.
    horizon
        Hold out what happened within the last period of this length, such as `"7d"`, instead of baskets. All
        lists are made at its start.
    seed
        Seed of the random settings, of the models given by name, and of a random hold-out.
    progress
        Callable that receives one line of text per step. By default, progress is shown on a terminal and in
        a notebook, and nothing is printed elsewhere.
    items
        Content of items: `Items` or a table with one row per item. Models that cannot use it are fitted
        without. `ContentProfile` is then tried, too.

    Returns
    -------
    Recommender
        Fitted model with the cutoff in `cutoff_`. `selection_` reports what was tried and why it was chosen.

    Raises
    ------
    ConfigError
        If an argument is invalid.
    DataError
        If the data is too small for validation, or if no candidate model can be fitted on it.

    Examples
    --------
    >>> data = sl.load_dataset("sample")
    >>> model = sl.fit(data, models=["Popularity", "PersonalFrequency"], budget="quick")
    >>> type(model).__name__
    'PersonalFrequency'
    >>> lists = model.recommend(["u1", "u2"])

    Use one model with your own settings and a cutoff of your choice:

    >>> model = sl.fit(data, models=sl.PersonalFrequency(decay=0.9), cutoff=sl.cutoff.ExpectedF1())
    >>> type(model.cutoff_).__name__
    'ExpectedF1'
    """
    n_trials = _n_trials(budget)
    if not (cutoff is None or (isinstance(cutoff, str) and cutoff == "auto")):
        check_cutoff(cutoff, "'auto', None or an unfitted cutoff")
    metric, money = check_metric(metric, *_find_money(gain, cost, cutoff))
    period = _check_cases(users, horizon, validation, cutoff)
    candidates = _candidates(models)
    content = None if items is None else Items.of(items)
    if content is not None:
        candidates = _with_content(candidates, models is None)
    data = _check_data(Interactions.of(data))
    n_candidates = N_CANDIDATES
    if isinstance(cutoff, Cutoff):
        n_candidates = max(n_candidates, cutoff.candidates_needed())
    with show_progress(progress) as display:
        holdout = hold_out(data, seed, validation, period, users == "everyone")
        if metric == "value" and users is None and holdout.everyone is None:
            warn(BUYERS_ONLY + ("" if data.time is None else EVERYONE) + BUYERS)
        kept = keep_back(data, holdout, seed) if isinstance(cutoff, Guarantee) else None
        holdout = holdout if kept is None else kept.selection
        display.line(f"validation: {holdout.description}")
        search = SettingsSearch(
            holdout,
            n_candidates,
            metric,
            filter_seen,
            n_trials,
            seed,
            display,
            content,
            money,
        )
        validated = search.run(candidates, optional=models is None)
        choice: SelectedCutoff | None
        held_out: dict[str, Any] | None = None
        compared: dict[int, float] = {}
        if kept is not None and isinstance(cutoff, Guarantee):
            best = max(validated, key=lambda each: each.score)
            epochs = display.epochs(f"training {type(best.model).__name__}")
            model, choice = deploy(best, kept, cutoff, epochs)
        else:
            scores = held_out_scores(search.halves, cutoff)
            joint = confirm_jointly(choose_jointly(validated, cutoff), cutoff, validated, scores)
            best, choice, compared = joint.validation, joint.cutoff, joint.compared
            held_out = None if scores is None else scores.report(joint.cutoff_name)
            epochs = display.epochs(f"training {type(best.model).__name__}")
            model = best.refit(data, progress=epochs)
        if choice is not None:
            display.line(f"cutoff: {choice.name} ({choice.reason})")
        if held_out is not None:
            kind = Metric.registry[metric]
            display.line(
                f"{kind.title} on users that took no part in choosing: {kind.text(held_out['score'])}"
            )
        if kept is None:  # a guarantee accepts only lists of the model that it was tested on
            _warn_if_all_empty(best, choice)
    _keep_groups(model, content)
    rows = _model_rows(search, compared, next(n for n, each in enumerate(validated) if each is best))
    report = _report(search, rows, choice, held_out)
    if choice is None or choice.name == BOUNDARY:  # without a cutoff, lists end at the model's boundary
        return model.set_cutoff(None, report)
    return model.set_cutoff(choice.cutoff, report)


def _keep_groups(model: Recommender, items: Items | None) -> Recommender:
    """The model with the groups of items, also if it uses no other content."""
    return model.set_groups(items) if items is not None and group_fields(items) else model


def _n_trials(budget: str | int) -> int:
    if isinstance(budget, str) and budget in TRIALS:
        return TRIALS[budget]
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
        raise ConfigError(
            f"budget must be {', '.join(TRIALS)} or a positive number of settings per model, got {budget!r}; "
            "pass 'quick'."
        )
    return int(budget)


def _check_data(data: Interactions) -> Interactions:
    """The data, if there is something to choose on it."""
    if not data.n_rows:
        raise DataError("fit needs at least one interaction, got none; check the file and the filters.")
    if np.unique(data.item).size < 2:
        raise DataError(
            "fit needs at least two items to choose a model and a cutoff, got 1; check the item column, or "
            "fit one model, such as sl.Popularity().fit(data)."
        )
    return data


def _find_money(
    gain: float | None, cost: float | None, cutoff: Cutoff | Literal["auto"] | None
) -> tuple[float | None, float | None]:
    """Gain and cost, by default those of the cutoff; ConfigError if the cutoff has others."""
    if not isinstance(cutoff, ExpectedValue):
        return gain, cost
    for name, given in (("gain", gain), ("cost", cost)):
        if given is not None and given != getattr(cutoff, name):
            raise ConfigError(
                f"{name} must be that of the cutoff, {getattr(cutoff, name)!r}, got {given!r}; pass it once.",
                parameter=name,
            )
    return cutoff.gain, cutoff.cost


def _check_cases(
    users: str | None,
    horizon: str | timedelta | None,
    validation: Validating,
    cutoff: Cutoff | Literal["auto"] | None,
) -> int | None:
    """The horizon in microseconds; ConfigError for arguments that contradict each other."""
    if users not in (None, "buyers", "everyone"):
        raise ConfigError(
            f"users must be buyers or everyone, got {users!r:.60}; choose one.", parameter="users"
        )
    if horizon is None:
        if users == "everyone" and not (isinstance(validation, Split) and validation.cuts is not None):
            raise ConfigError(
                "users='everyone' needs a horizon, because a user without a basket has no time to predict, "
                "got none; pass horizon='7d'.",
                parameter="horizon",
            )
        return None
    if validation != "last_basket":
        raise ConfigError(
            "horizon holds out the last period, so it excludes validation, got both; pass one of them.",
            parameter="horizon",
        )
    if isinstance(cutoff, Guarantee):
        raise ConfigError(
            "horizon cannot be combined with a Guarantee, which is tested on baskets; fit the Guarantee on "
            "lists with cutoff.fit(lists, truth, users=…).",
            parameter="horizon",
        )
    return parse_duration("horizon", horizon)


# ------------------------------------------------------------------ models
def _candidates(given: Models | None) -> list[str | Recommender]:
    """Names and unfitted models, checked before any data is read."""
    if given is None:
        return [*MODELS, *(name for name in model_names() if name not in MODEL_MODULES and is_tried(name))]
    candidates = [given] if isinstance(given, str | Recommender | type) else list(given)
    for model in candidates:
        if isinstance(model, str):
            build_model(model, {})
        elif isinstance(model, type):
            raise ConfigError(
                f"models must be names or unfitted models, got a class; pass {model.__name__}()."
            )
        elif not isinstance(model, Recommender):
            raise ConfigError(
                f"models must be names or unfitted models, got {model!r}; pass 'BPRMF' or sl.BPRMF()."
            )
    if not candidates:
        raise ConfigError("models must contain at least one model, got none; leave it out for the defaults.")
    return candidates


def _with_content(candidates: list[str | Recommender], optional: bool) -> list[str | Recommender]:
    """With ContentProfile if all suitable models are tried; ConfigError if no given model can use items."""
    if optional:
        return [*candidates, "ContentProfile"]
    if not any(
        (build_model(model, {}) if isinstance(model, str) else model).uses_content for model in candidates
    ):
        raise ConfigError(
            "items needs a model that uses the content of items, got none; add 'ContentProfile' to models, "
            "or omit items.",
            parameter="items",
        )
    return candidates


# ------------------------------------------------------------------ the report
def _warn_if_all_empty(best: Validation, choice: SelectedCutoff | None) -> None:
    """Issue a DataWarning if no validation user would get a list."""
    name, history, truth = type(best.model).__name__, best.holdout.history, best.holdout.truth
    if choice is not None:
        lists = choice.cutoff.apply(best.candidates, history=history)
        warn_if_all_empty(name, lists.reason, lists.items.size)
    elif best.model.has_boundary:
        users = truth.users.to_ids(truth.active_users)
        best.model.recommend(users, filter_seen=best.filter_seen, at=truth)  # warns by itself


def _model_rows(search: SettingsSearch, compared: dict[int, float], selected: int) -> list[dict[str, Any]]:
    """The rows of the models, the selected one first; those that were compared have a score as served."""
    rows = search.rows
    for number, score in compared.items():
        rows[number]["served_score"] = score
    return [rows[n] for n in sorted(range(len(rows)), key=lambda n: (n != selected, -rows[n]["score"]))]


def _report(
    search: SettingsSearch,
    rows: list[dict[str, Any]],
    choice: SelectedCutoff | None,
    held_out: dict[str, Any] | None,
) -> SelectionReport:
    scores = {} if choice is None else choice.scores
    order = sorted(scores, key=lambda name: (choice is not None and name != choice.name, -scores[name]))
    return SelectionReport(
        validation=search.holdout.description,
        models=rows,
        cutoffs=[{"cutoff": name, "score": scores[name]} for name in order],
        skipped=search.skipped,
        reason="" if choice is None else choice.reason,
        metric=search.metric,
        held_out=held_out,
        gain=None if search.money is None else search.money.gain,
        cost=None if search.money is None else search.money.cost,
        users="buyers" if search.holdout.everyone is None else "everyone",
        horizon=None if search.holdout.horizon is None else f"{search.holdout.horizon // 10**6}s",
    )


# ------------------------------------------------------------------ fit under a guarantee
class GuaranteeData(NamedTuple):
    """The data without what the guarantee is tested on."""

    selection: Holdout  # for models and settings: users who are not kept back
    tested: Holdout  # training data of the deployed model, and what the kept-back users did next
    earlier: list[Holdout]  # the same one, two and three baskets or periods before, of all users


def keep_back(data: Interactions, holdout: Holdout, seed: int) -> GuaranteeData:
    """Keep back some of the held-out users: no model trains, tunes or stops early on their truth.

    Under strict time, the deployed model learns from the history alone and observes everything later.
    """
    users = holdout.truth.active_users
    kept = draw_like_served(data.basket_counts, holdout.history.basket_counts, users, seed)
    if kept.size < 2 or users.size - kept.size < 2:
        raise DataError(
            f"a guarantee needs at least two users to test it on and two others, got {users.size} users with "
            "held-out interactions; add more data, or pass another cutoff."
        )
    is_kept = np.zeros(data.n_users, np.bool_)
    is_kept[kept] = True
    is_history = in_history(data, holdout.history)
    truth = holdout.truth
    others = truth.where(~is_kept[truth.user])
    training = holdout.history if holdout.later is not None else data.where(is_history | ~is_kept[data.user])
    n_kept, n_others = kept.size, others.active_users.size
    return GuaranteeData(
        Holdout(
            holdout.history,
            others,
            f"{holdout.description}, of which {n_kept:,} are kept back to test the guarantee and "
            f"{n_others:,} select the model",
            holdout.later,
        ),
        Holdout(
            training,
            truth.where(is_kept[truth.user]),
            f"{n_kept:,} users who were kept back",
            holdout.later,
        ),
        earlier_folds(holdout, n_kept),
    )


def draw_like_served(n_baskets: Longs, n_history: Longs, users: Ints, seed: int) -> Ints:
    """Users drawn so that their histories are as long as those of the users who will come back.

    n_baskets: (n_users,) baskets of each user now, which is the history that lists will be made from.
    n_history: (n_users,) baskets of each user's history when tested. `users` can be tested.
    """
    counts = np.bincount(n_baskets[n_baskets > 0])
    at_least = np.cumsum(counts[::-1])[::-1]  # users with at least so many baskets
    later = np.append(at_least[1:], 0)
    returns = counts * later / np.maximum(at_least, 1)  # users times their rate of return
    weights = count_strata(np.arange(1, counts.size), returns[1:])
    limit = TESTED_SHARE * users.size
    drawn = draw_strata(weights, n_history[users], [seed, users.size], limit, largest_share=MAX_TESTED_SHARE)
    return users[drawn]


def in_history(data: Interactions, history: Interactions) -> Bools:
    """(n_rows,) whether a row of the data is in the history, which has the same ids."""
    position = np.arange(data.n_rows) - data.indptr[data.user]
    first: Bools = position < history.user_counts[data.user]
    if np.array_equal(data.item[first], history.item):  # histories are the first rows of their users
        return first
    keys = data.user.astype(np.int64) * data.n_items + data.item
    return np.isin(keys, history.user.astype(np.int64) * history.n_items + history.item)


def earlier_folds(holdout: Holdout, n_tested: int) -> list[Holdout]:
    """The hold-outs one, two and three baskets or periods earlier, as far as there are enough users."""
    folds: list[Holdout] = []
    fold = earlier_fold(holdout)
    while fold is not None and len(folds) < N_BASKETS - 1 and fold.truth.active_users.size >= n_tested / 2:
        folds.append(fold)
        fold = earlier_fold(fold)
    return folds


def deploy(
    best: Validation, kept: GuaranteeData, guarantee: Guarantee, progress: EpochProgress | None
) -> tuple[Recommender, SelectedCutoff]:
    """Train without the tested interactions, test the guarantee, then add them as history only."""
    training, truth, description, later = kept.tested[:4]
    earlier = [(*_tested_lists(best, fold, guarantee), fold.history) for fold in reversed(kept.earlier)]
    model = best.refit(training, progress=progress)
    tested = replace(best, model=model, holdout=kept.tested, given=None)
    candidates = tested.candidates
    model.observe(truth if later is None else later)
    lists = candidates if guarantee.max_empty is None else _lists_of_everyone(tested)
    fitted = guarantee.clone().fit(lists, truth, history=training, earlier=earlier)
    score = tested.evaluate(fitted.apply(candidates, history=training)).mean(best.metric)
    tested_on = f"tested on {description}, whose tested interactions trained no model"
    reason = f"not compared with other cutoffs; {tested_on}"
    name = type(guarantee).__name__
    return model, SelectedCutoff(name, fitted, {name: score}, reason, best.metric)


def _tested_lists(best: Validation, fold: Holdout, guarantee: Guarantee) -> tuple[RankedLists, Interactions]:
    """Candidates of a model that was trained before the fold, and what followed."""
    tested = replace(best, model=best.refit(fold.history), holdout=fold, given=None)
    return tested.candidates if guarantee.max_empty is None else _lists_of_everyone(tested), fold.truth


def _lists_of_everyone(tested: Validation) -> RankedLists:
    """Candidates of all known users: no outcome is needed to see which lists are empty."""
    lists = tested.model.recommend(N=tested.n_candidates, filter_seen=tested.filter_seen)
    return replace(lists, origin=None)


# ------------------------------------------------------------------ refit
COMPARED_LISTS = 500  # earlier days are held out too, until there are so many lists
COMPARED_DAYS = 7  # at most
LARGEST_LOSS = 1 / 3  # of the F1: there are enough users if they would probably show it
NOTICED = (1.96 + 0.84) ** 2  # a loss is found at the level of 5% with a probability of 80%


class Refit(NamedTuple):
    """The outcome of a refit; `model` is None if it was refused."""

    model: Recommender | None
    reason: str
    old_f1: float = np.nan
    new_f1: float = np.nan
    n_lists: int = 0
    n_users: int = 0  # who were compared
    users_needed: int | None = None  # None: it cannot be said, because the model in service had no success
    smallest_loss: float = np.nan  # share of the F1 whose loss these users would probably show


def refit(
    old: Recommender,
    events: Interactions | Events | None,
    *,
    items: Items | None = None,
    progress: Callable[[str], object] | None = None,
) -> Refit:
    """Fit a model with the settings of `old` on its history and `events`, from which returns are subtracted.

    The latest days are held out first: the old model and a new one that learned from the days before answer
    for them. The new settings are refused if they are significantly worse there, or if the users are too few
    to show it. What is returned has learned from everything, the latest days included; with a `Guarantee`,
    from everything but the baskets on which its guarantee was tested anew. It is refused if nothing can be
    guaranteed any more. A model file does not contain the content of items, so a model that uses it needs
    all `items`, new ones included.
    """
    try:
        return _refit(old, None if events is None else Events.of(events), items, progress)
    except InfeasibleError as error:
        return Refit(None, f"the guarantee cannot be given again: {error}")


def _refit(
    old: Recommender,
    events: Events | None,
    items: Items | None,
    progress: Callable[[str], object] | None,
) -> Refit:
    """The new model, or why it is refused."""

    def fit_again(data: Interactions) -> Recommender:
        return _fit_again(old, data, items, progress)

    history = old.history_
    data = history if events is None else events.add_to(history)
    if data.time is None or not data.n_rows:
        return Refit(fit_again(data), "the data has no times to compare on")
    if events is None:
        return Refit(fit_again(data), "there are no events that are new to the old model")
    latest = _latest_days(data, history.end_time)
    if not latest.n_rows:
        return Refit(None, "too few users to compare: no event is later than those of the old model")
    report = progress or (lambda line: None)
    report("checking on the latest days")
    earlier = events.before(int(latest.time.min())) if latest.time is not None else events
    trial = fit_again(earlier.add_to(history))
    running = copy(old).observe(earlier)  # the state is shared, so the copy is cheap
    reports = [evaluate_over_time(model, latest) for model in (running, trial)]
    outcome = _compare_refit(*reports)
    if outcome.reason:
        return outcome
    report("fitting on everything")
    loss = f"a loss of {outcome.smallest_loss:.0%} of the F1 would probably have shown"
    reason = f"the new model is not worse for {outcome.n_users:,} users, with whom {loss}"
    return outcome._replace(model=fit_again(data), reason=reason)


def _latest_days(data: Interactions, end: int) -> Interactions:
    """The latest day after a time, or the latest ones until there are enough lists, up to half of them."""
    new = data.where(data.time > end if data.time is not None else np.zeros(data.n_rows, np.bool_))
    if new.time is None or not new.n_rows:
        return new
    baskets = np.unique(np.column_stack([new.time, new.user]), axis=0)[:, 0] // DAY
    days, n_lists = np.unique(baskets, return_counts=True)
    n_days = 1 + int(np.searchsorted(n_lists[::-1].cumsum(), COMPARED_LISTS))
    n_days = min(n_days, COMPARED_DAYS, max(days.size // 2, 1))
    return new.where(new.time >= days[-n_days] * DAY)


def _compare_refit(old: TimedReport, new: TimedReport) -> Refit:
    """What the latest days say; the reason is empty unless the new model is refused."""
    f1 = [report.values("f1") for report in (old, new)]
    user = old.user_ids.rank("dense").to_numpy().astype(np.int32) - 1
    test = paired_test(f1[1], f1[0], groups=user)
    of_user = np.bincount(user, f1[0]) / np.bincount(user)
    n, mean, square = of_user.size, float(of_user.mean()), float((of_user**2).mean())
    outcome = Refit(None, "", old.f1, new.f1, old.n_users, n)
    if mean == 0:
        reason = f"too few users to compare: no list of {n:,} users had a success of the model in service"
        return outcome._replace(reason=reason)
    # each user's F1 is lost with probability L: n L² m² >= NOTICED (L E[F1²] - L² m²) with m = E[F1]
    ratio = NOTICED * square / mean**2
    needed, loss = math.ceil(ratio / LARGEST_LOSS - NOTICED), min(ratio / (n + NOTICED), 1.0)
    outcome = outcome._replace(users_needed=needed, smallest_loss=loss)
    if new.f1 < old.f1 and test.p_bootstrap < LEVEL:
        return outcome._replace(reason="the new model is worse on the latest days")
    if n < needed:
        rule = f"about {needed:,} are needed to show a loss of a third of the F1"
        return outcome._replace(reason=f"too few users to compare: {n:,}, and {rule}")
    return outcome


def _fit_again(
    old: Recommender, data: Interactions, items: Items | None, progress: Callable[[str], object] | None
) -> Recommender:
    """The same model with the same settings on other data; its cutoff is fitted anew."""
    cutoff: Cutoff | None = None if old.cutoff_ is None else old.cutoff_.clone()
    if not data.n_rows:
        raise DataError("a refit needs interactions, got none; check the event store.")
    if items is None and isinstance(old, ContentRecommender) and old.content_columns:
        raise ConfigError(
            f"this {type(old).__name__} was fitted with the content of items, which a refit needs again, got "
            "none; pass the table of all items.",
            parameter="items",
        )
    chosen = old.selection_
    wanted: dict[str, Any] = {"users": "buyers"}
    if chosen is not None:
        names = ("metric", "gain", "cost", "users", "horizon")
        wanted = {name: getattr(chosen, name) for name in names}
    fitted = fit(data, models=old.clone(), cutoff=cutoff, items=items, progress=progress, **wanted)
    return _keep_groups(fitted, old.groups_) if fitted.groups_ is None else fitted
