"""fit: check the arguments, choose a model, its settings and a cutoff, and fit the model on all data."""

from collections.abc import Callable, Iterable
from copy import copy
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from shortlist import MODEL_MODULES
from shortlist.auto.choice import N_STAGES, JointChoice, ModelWithCutoff, StagedSearch, choose
from shortlist.auto.cutoff_choice import BOUNDARY, resolve_metric
from shortlist.auto.guaranteed import deploy, keep_back
from shortlist.auto.progress import ProgressDisplay, show_progress
from shortlist.auto.validation import (
    EpochProgress,
    Validating,
    Validation,
    build_model,
    fit_model,
    hold_out,
)
from shortlist.core.metrics import Metric
from shortlist.core.options import Positive, check_value, explain_keywords
from shortlist.cutoff import Budget, ExpectedValue
from shortlist.cutoff.base import Cutoff, require_cutoff
from shortlist.cutoff.guarantee import Guarantee
from shortlist.data.columns import parse_duration
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items, group_fields
from shortlist.errors import ConfigError, DataError, warn
from shortlist.models.base import Recommender, is_tried, model_names
from shortlist.models.counting import Popularity
from shortlist.models.selection import SelectionReport
from shortlist.recommend.request import warn_if_all_empty
from shortlist.split import Split

TRIALS = {"quick": 1, "default": 4}
NO_SKILL = 0.005  # an F1 or NDCG on validation below it is hardly better than chance
N_CANDIDATES = 50  # per user; also the largest fixed N
SIMPLEST_FIRST = (
    *("Popularity", "PersonalFrequency", "DKHRM"),
    *("TIFUKNN", "EASE", "GFCF", "ALS", "MatrixBlend"),
)
MODELS = (  # the built-in models that are tried, in this order; those of other packages follow
    *SIMPLEST_FIRST,
    *(name for name in MODEL_MODULES if name not in SIMPLEST_FIRST and is_tried(name)),
)
BUYERS_ONLY = (
    "gain and cost decide on lists that were validated only on users who interacted with something. Sent to "
    "everyone, such lists may lose money, because most users take nothing. Pass "
)
EVERYONE = "users='everyone' and horizon='7d' (shortlist fit --users everyone --horizon 7d); or "
BUYERS = "users='buyers' (shortlist fit --users buyers), if only buying users see lists."

Models = str | Recommender | Iterable[str | Recommender]


@explain_keywords
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
    minutes: float | None = None,
) -> Recommender:
    """Fit a model whose lists have a suitable length for each user.

    The last basket of each user is held out (or a random share of each user's items, if few users return);
    `validation` selects another way.
    Every candidate model is fitted with its default settings on the rest of a sample of the users, of about
    100,000 rows; models that reach 95% of the best one also with random settings. The best ones, at most
    three, are fitted on up to a million rows and compared by what they would serve: for each a cutoff is
    selected on the same data with `choose_cutoff`, and the model and cutoff with the highest metric are
    selected together. Among models whose scores differ by less than
    two standard errors, the one that is best over this metric, recall and NDCG at 20 items is selected. A
    fixed N is used if no other cutoff is better. Finally the model is fitted on all data, for the best number
    of epochs. The result depends only on the data, the seed and the arguments, unless `minutes` ends the
    comparison.

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
        What a shown item earns if the user takes it, and costs if not, in one unit. An `ExpectedValue` or a
        `Budget` as `cutoff` has them already.
    cutoff
        `"auto"` selects a cutoff; an unfitted cutoff is fitted on the validation lists; None sets no cutoff,
        so that lists end at the model's boundary if it has one. With a `Budget`, models are compared by what
        this many items earn (by default, how many of them users take). A `Guarantee` is tested on 30% of the
        users, drawn with `seed`: their held-out interactions train, tune and stop no model. The deployed
        model is the tested one; the held-out interactions are only added to its histories with `observe`. A
        threshold must pass the same test on up to three earlier baskets of all users (or periods), each
        predicted by a model that was trained before. With `max_empty`, the lists of all known users count.
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
    minutes
        After so many minutes no further model is compared, and the best one so far is fitted on all data. The
        result then depends on the speed of the machine.

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
    _check_cutoff(cutoff)
    if minutes is not None:
        check_value(Positive, minutes=minutes)
    metric, money = resolve_metric(metric, *_find_money(gain, cost, cutoff))
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
        volume = cutoff.items_per_list if isinstance(cutoff, Budget) and metric == "value" else None
        if metric == "value" and volume is None and users is None and holdout.everyone is None:
            warn(BUYERS_ONLY + ("" if data.time is None else EVERYONE) + BUYERS)
        kept = keep_back(data, holdout, seed) if isinstance(cutoff, Guarantee) else None
        holdout = holdout if kept is None else kept.selection
        display.line(f"validation: {holdout.description}")
        case = Validation(
            Popularity(),
            holdout,
            n_candidates,
            metric,
            filter_seen,
            items=content,
            money=money,
            volume=volume,
        )
        search = StagedSearch(case, candidates, models is None, n_trials, seed, display, minutes)
        choice = choose(search, cutoff)
        served = choice.served
        label = f"training {served.name} on all data"
        display.update(label, N_STAGES - 1, N_STAGES)
        epochs = display.epochs(label, N_STAGES - 1, 1, N_STAGES)
        if kept is not None and isinstance(cutoff, Guarantee):
            model, tested = deploy(served.validation, kept, cutoff, epochs)
            served = served._replace(cutoff=tested)
        else:
            model = served.validation.refit(data, progress=epochs)
            _warn_of_score(served)
            _warn_of_volume(served, choice.held_out)
        _show_choice(display, served, choice.held_out)
    keep_groups(model, content)
    report = _report(search, choice, served)
    if served.cutoff is None or served.cutoff.name == BOUNDARY:  # lists end at the model's boundary
        return model.set_cutoff(None, report)
    return model.set_cutoff(served.cutoff.cutoff, report)


def _show_choice(display: ProgressDisplay, served: ModelWithCutoff, held_out: dict[str, Any] | None) -> None:
    """Show how lists end, and the score on other users."""
    if served.cutoff is not None:
        display.line(f"cutoff: {served.cutoff.name} ({served.cutoff.reason})")
    if held_out is not None:
        metric = Metric.registry[served.validation.metric]
        score = metric.text(held_out["score"])
        display.line(f"{metric.title} on users that took no part in choosing: {score}")


def add_rows(
    model: Recommender,
    rows: Interactions,
    data: Interactions,
    *,
    items: Items | None = None,
    progress: EpochProgress | None = None,
) -> Recommender:
    """The chosen model and cutoff, fitted on all `data`, which has these `rows` besides its own.

    A guarantee holds for the model that was tested, so that one only observes the rows.
    """
    if isinstance(model.cutoff_, Guarantee):
        return copy(model).observe(rows)
    fitted = fit_model(model, data, progress=progress, items=items)
    return keep_groups(fitted, items).set_cutoff(model.cutoff_, model.selection_)


def keep_groups(model: Recommender, items: Items | None) -> Recommender:
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


def _check_cutoff(cutoff: Cutoff | Literal["auto"] | None) -> None:
    if not (cutoff is None or (isinstance(cutoff, str) and cutoff == "auto")):
        require_cutoff(cutoff, "'auto', None or an unfitted cutoff")


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
    if not isinstance(cutoff, ExpectedValue | Budget):
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
def _warn_of_score(served: ModelWithCutoff) -> None:
    """Issue a DataWarning if no model predicted or earned anything on validation data."""
    metric = Metric.registry[served.validation.metric]
    score = f"({metric.title} {metric.text(served.score)} on validation data)"
    if metric.needs_money and served.score <= 0:
        warn(
            f"no lists earn more than showing nothing {score}; check gain and cost, and who is validated "
            "(users)."
        )
    elif not metric.needs_money and served.score < NO_SKILL:
        lists = served.lists(served.validation)
        warn_if_all_empty(served.name, lists.reason, lists.items.size)
        if lists.items.size:
            warn(
                f"the best model predicts almost nothing {score}; check which columns are the user, the item "
                "and the basket (shortlist check)."
            )


def _warn_of_volume(served: ModelWithCutoff, held_out: dict[str, Any] | None) -> None:
    """Issue a DataWarning if a budget earns less than the same volume spent in a simpler way."""
    if served.validation.volume is None or held_out is None:
        return
    metric = Metric.registry[served.validation.metric]
    for baseline in held_out["baselines"]:
        if baseline["high"] < 0:
            loss, low, high = (metric.text(baseline[name], "+") for name in ("difference", "low", "high"))
            warn(
                f"the lists earn less than {baseline['name']} on users that took no part in choosing "
                f"({metric.title} {loss}, 95% interval {low} to {high}); use more data, or send that instead."
            )


def _report(search: StagedSearch, choice: JointChoice, served: ModelWithCutoff) -> SelectionReport:
    """What was tried: the selected model and cutoff first, then the others by their scores."""
    rows = [
        {"model": arm.name, "params": arm.params, "N": arm.result.N, "score": arm.score}
        | choice.compared.get(number, {})
        for number, arm in enumerate(choice.arms)
    ]
    is_selected = [arm.result.model is served.validation.model for arm in choice.arms]
    order = sorted(range(len(rows)), key=lambda n: (not is_selected[n], -choice.arms[n].score))
    cutoff, case = served.cutoff, search.case
    scores = {} if cutoff is None else cutoff.scores
    names = sorted(scores, key=lambda name: (cutoff is not None and name != cutoff.name, -scores[name]))
    return SelectionReport(
        validation=served.validation.holdout.description,
        models=[rows[n] for n in order],
        cutoffs=[{"cutoff": name, "score": scores[name]} for name in names],
        skipped=search.skipped,
        reason="" if cutoff is None else cutoff.reason,
        model_reason=choice.reason,
        metric=case.metric,
        held_out=choice.held_out,
        gain=None if case.money is None else case.money.gain,
        cost=None if case.money is None else case.money.cost,
        users="buyers" if case.holdout.everyone is None else "everyone",
        horizon=None if case.holdout.horizon is None else f"{case.holdout.horizon // 10**6}s",
    )
