"""`shortlist experiment`: split users between arms of a service, and compare them at any time."""

from collections import namedtuple
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import shortlist as sl
from shortlist.cli.arguments import BY_NAME, Reading, ServedModel, Store, read_source
from shortlist.cli.flags import flags_of
from shortlist.cli.output import Json, show_json, show_text
from shortlist.errors import ConfigError
from shortlist.serve.options import ExperimentOptions

if TYPE_CHECKING:
    from shortlist.serve.experiments import Arm, LiveExperiment

ACTIVE_DAYS = 28  # of the history, from which the number of users per day is estimated
ReplayedList = namedtuple("ReplayedList", "items made")
ReplayedEvent = namedtuple("ReplayedEvent", "item_id received time")
NUMBERS = {"share": float, "N": int, "min_items": int, "max_items": int}


if TYPE_CHECKING:
    Options = ExperimentOptions
    DEFAULTS: ExperimentOptions
else:
    Options = flags_of(ExperimentOptions)
    DEFAULTS = Options()


def experiment_command(
    action: Literal["plan", "start", "status", "stop"],
    model: ServedModel,
    /,
    *,
    name: str | None = None,
    arm: tuple[str, ...] = (),
    options: Options = DEFAULTS,
    test: str | None = None,
    users_per_day: float | None = None,
    db: Store = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Compare ways to make lists on live traffic; it may be looked at every day.

    Users who are known at the start are split. A running service follows within a
    second. `stop` gives everyone the lists of the model in service again; the
    dashboard can also put an arm into service.

    For example:
      shortlist experiment plan shop.shortlist --test next_week.parquet \\
        --arm ten:share=0.5,N=10 --arm new:share=0.5
      shortlist experiment start shop.shortlist --name spring \\
        --arm ten:share=0.5,N=10 --arm new:share=0.5
      shortlist experiment status shop.shortlist
      shortlist experiment stop shop.shortlist --name spring

    Parameters
    ----------
    action
        plan: how long it will take; start; status: who is ahead; stop.
    name
        Name of the experiment; status: the latest.
    arm
        NAME:share=0.5,N=10; also model, cutoff, min_items, max_items. Repeat it; first: baseline.
    test
        plan: what users did next, as a file; the model must not know it.
    users_per_day
        plan: new users per day; default: from the latest four weeks.
    """
    from shortlist.serve.config import load_config
    from shortlist.serve.deployment import Deployment
    from shortlist.serve.experiments import Experiments, LiveExperiment
    from shortlist.serve.store import EventStore

    if action in ("plan", "start"):
        experiment = LiveExperiment(
            name=name or ("plan" if action == "plan" else ""),
            arms=tuple(parse_arm(text) for text in arm),
            **{**vars(options), "guardrails": dict(map(parse_guardrail, options.guardrails))},
        )
    if action == "plan":
        return show_plan(experiment, model, test, users_per_day, reading, json=json)
    config = load_config({"model": str(model), "db": db})
    store = EventStore(config.database)
    try:
        store.create()
        experiments = Experiments(store)
        if action == "start":
            deployment = Deployment(config.model_folder, store)
            if deployment.find_version(None) is None:  # no service has run yet
                deployment.start(config.model_path)
            experiments.start(experiment.freeze(deployment))
        elif action == "stop":
            if name is None:
                raise ConfigError("stop needs the name of the experiment; pass --name.")
            experiments.stop(name)
        described = experiments.describe(name)
    finally:
        store.close()
    if json:
        return show_json(described)
    users = ", ".join(f"{row['name']} {row['users']:,} ({row['description']})" for row in described["arms"])
    state = "runs" if described["ended"] is None else "has ended"
    show_text(f"{described['name']} {state}. Users: {users}.")
    return show_text(described["summary"])


def parse_arm(text: str) -> "Arm":
    """The arm of a text such as ten:share=0.5,N=10."""
    from shortlist.serve.experiments import OPTIONS, Arm

    name, _, rest = text.partition(":")
    names, values = ("share", "model", *OPTIONS), dict[str, Any]()
    for pair in filter(None, rest.split(",")):
        key, mark, value = pair.partition("=")
        if not mark or key not in names:
            raise ConfigError(
                f"--arm must be NAME:share=0.5,N=10 with {', '.join(names)}, got {text!r:.80}; correct it."
            )
        try:
            values[key] = NUMBERS.get(key, str)(value)
        except ValueError:
            raise ConfigError(f"{key} in --arm must be a number, got {value!r:.40}; correct it.") from None
    if "share" not in values:
        raise ConfigError(f"--arm needs the share of the users, got {text!r:.80}; add share=0.5.")
    share, chosen = values.pop("share"), values.pop("model", None)
    return Arm(name, share, chosen, values)


def parse_guardrail(text: str) -> tuple[str, float]:
    """(metric, margin) of a text such as empty=0.02."""
    metric, _, margin = text.partition("=")
    try:
        return metric, float(margin)
    except ValueError:
        raise ConfigError(f"--guardrails must be METRIC=0.02, got {text!r:.60}; correct it.") from None


# ---------------------------------------------------------------------- the plan
def show_plan(
    experiment: "LiveExperiment",
    path: Path,
    test: str | None,
    users_per_day: float | None,
    reading: Reading,
    *,
    json: bool,
) -> None:
    """Say what the arms would have earned on held-out data, and after how many days it would be decided."""
    if test is None:
        raise ConfigError("plan needs what users did next; pass --test held.parquet.")
    model = sl.load_model(path)
    truth = read_source(test, reading, training=False)
    users = [user for user in truth.users.values if user in model.users_]
    if len(users) < 50:
        raise ConfigError(f"plan needs at least 50 users of the model in --test, got {len(users)}.")
    history = model.history_
    before = history.user_counts[history.users.lookup(users)]
    rate = users_per_day or active_users(model) / ACTIVE_DAYS
    outcomes = {
        arm.name: replay(experiment, arm, model, path.parent, users, truth) for arm in experiment.arms
    }
    control = experiment.arms[0]
    plans = {
        arm.name: sl.plan_experiment(
            outcomes[control.name],
            outcomes[arm.name],
            users_per_day=rate * (arm.share + control.share),
            window_days=experiment.window_days,
            covariates=np.log1p(before),
            share=arm.share / (arm.share + control.share),
            confidence=1 - (1 - experiment.confidence) / (len(experiment.arms) - 1),
        )
        for arm in experiment.arms[1:]
    }
    if json:
        return show_json({"users_per_day": rate, "plans": {name: vars(plan) for name, plan in plans.items()}})
    estimate = "" if users_per_day else f", estimated from those of the latest {ACTIVE_DAYS} days"
    show_text(
        f"Expected, from what {len(users):,} users of {test} chose next (who chooses nothing is not among "
        f"them and makes the difference smaller), and {rate:,.0f} new users per day{estimate}:"
    )
    for name, plan in plans.items():
        show_text(f"{name} against {control.name}, {experiment.metric}: {plan.summary()}")
    return None


def active_users(model: Any) -> int:
    """Users with an event in the latest days of the history; all of them if there are no times."""
    history = model.history_
    if history.time is None:
        return int(history.n_users)
    recent = history.time >= history.end_time - ACTIVE_DAYS * 86_400 * 1_000_000
    return max(int(np.unique(history.user[recent]).size), 1)


def replay(
    experiment: "LiveExperiment", arm: "Arm", model: Any, folder: Path, users: Sequence[Any], truth: Any
) -> list[float]:
    """(n_users,) the metric of each user if the arm had made one list before what happened."""
    from shortlist.serve.experiments import measure

    options = dict(arm.options)
    if options.get("cutoff", "boundary") != "boundary":
        raise ConfigError("plan cannot read the file of a cutoff; use N, a model or the boundary.")
    chosen = model if arm.model is None else sl.load_model(folder / f"{arm.model}.shortlist")
    values = []
    for row in chosen.recommend(users, **options):
        number = truth.users.index(row.user_id)
        bought = truth.items.to_ids(truth.item[truth.indptr[number] : truth.indptr[number + 1]])
        shown = ReplayedList(dumps([str(item) for item in row.items]), 0.0)
        events = [ReplayedEvent(str(item), 1.0, 0) for item in bought]
        values.append(measure(experiment, [shown], events)[experiment.metric])
    return values
