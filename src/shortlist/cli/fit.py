"""`shortlist fit`: train a model and save it.

Models and reports are imported when the command runs, so that `--help` does not wait for them.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.auto.progress import show_progress
from shortlist.cli.arguments import (
    BY_NAME,
    DEFAULTS,
    VALIDATIONS,
    Params,
    Reading,
    Source,
    Spark,
    ValidationName,
    check_no_flags,
    choose_model,
    name_model,
    read_content,
    read_source,
    write_rows,
)
from shortlist.cli.flags import NO_CUTOFF_FLAGS, RARE_FLAGS, CutoffFlags
from shortlist.cli.output import (
    Json,
    count_empty,
    describe_empty,
    print_note,
    progress_lines,
    sample_lists,
    show,
    show_json,
    show_text,
    summarize_model,
)
from shortlist.core.files import check_writable
from shortlist.core.options import nearest_name
from shortlist.errors import ConfigError, InfeasibleError
from shortlist.text import printable, redact_uri

if TYPE_CHECKING:
    from shortlist.cutoff import Cutoff
    from shortlist.data.interactions import Interactions
    from shortlist.data.items import Items
    from shortlist.models.base import Recommender
    from shortlist.split import Split


@Parameter(name="*")
@dataclass(frozen=True)
class FitFlags:
    """What is trained, how it is chosen, and which files are written.

    Parameters
    ----------
    out
        File for the model, replaced if it exists.
    model
        Name of a model, also of an installed package; `shortlist inspect NAME` says more. By default, all
        suitable ones are tried and the best is used: ALS, BPRMF, ContentProfile, CRRMF, DKBPRMF, DKHRM, EASE,
        GFCF, HRM, LogMF, MatrixBlend, PersonalFrequency, Popularity, TIFUKNN, TwoStage.
    trials
        Settings to try for each model; 1 if there is no flag.
    metric
        Metric for choosing the model and the cutoff; value with --gain and --cost, else f1.
    cutoff
        Cutoff; auto: the best on validation data, or a fixed N if none is better.
    seen
        Whether items from the history may be recommended.
    validation
        by-time: train on the past, validate on what came later.
    users
        Who is validated; everyone: also users who take nothing within --horizon.
    horizon
        Predict what users do within this time, such as 7d, instead of their next basket.
    test
        Hold out the last basket of each user, or the last --horizon, in this file; if few users return, a
        fifth of each user's items.
    report
        HTML report on the quality of the lists of the test set, which takes no part in the choice.
    minutes
        Compare no further model after so many minutes; the result depends on the speed of the machine.
    quick
        Train one model once, without validation and cutoff.
    items
        File with the content of items, one row per item: text, categories, tags, numbers.
    """

    out: Path = Path("model.shortlist")
    model: str | None = None
    trials: Annotated[int | None, Parameter(group=RARE_FLAGS)] = None
    metric: str | None = None
    cutoff: str = "auto"
    seen: Annotated[Literal["auto", "keep", "drop"], Parameter(group=RARE_FLAGS)] = "auto"
    validation: Annotated[ValidationName, Parameter(group=RARE_FLAGS)] = "last-basket"
    users: Literal["buyers", "everyone"] | None = None
    horizon: str | None = None
    test: Path | None = None
    report: Path | None = None
    minutes: Annotated[float | None, Parameter(group=RARE_FLAGS)] = None
    quick: Annotated[bool, Parameter(show_default=False)] = False
    items: Path | None = None


NO_FLAGS = FitFlags()


BOUNDARIES = {"expected_f1": "expected-F1 boundary", "learned": "learned boundary"}


def fit_command(
    source: Source,
    /,
    *,
    flags: FitFlags = NO_FLAGS,
    cutoff_flags: CutoffFlags = NO_CUTOFF_FLAGS,
    params: Params = DEFAULTS,
    spark: Spark = None,
    sample: Annotated[int, Parameter(group=RARE_FLAGS)] = 1_000_000,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Train a model, choose a cutoff on validation data, and save both.

    Without --model and hyperparameters, all suitable models are compared on the
    last baskets of the users and the best one is used, as by sl.fit in Python
    (which tries four settings per model by default: --trials 4).
    --model with --trials searches the hyperparameters of that model.

    For example:
      shortlist fit sample --out shop.shortlist --test held.parquet
      shortlist fit sample --coverage 0.7
      shortlist fit sample --gain 3 --cost 1 --users everyone --horizon 7d
      shortlist fit sample --min_precision 0.1 --confidence 0.9
      shortlist fit orders.csv --model TIFUKNN --set weighting=log
      shortlist fit sample --model EASE --trials 8
      shortlist fit ratings.csv --min_rating 4 --test rated.parquet
      shortlist fit reads.csv --items items.csv --model ContentProfile
      shortlist fit orders/ --out shop.shortlist --spark local[2] --sample 1000000

    Parameters
    ----------
    sample
        With --spark: number of users to learn from.
    """
    from shortlist.core.codec import check_model_path

    out, test, report = flags.out, flags.test, flags.report
    settings = _Settings(flags, cutoff_flags, params)
    settings.check()
    check_model_path(out)
    check_writable(test, report)
    if spark is not None:
        start = time.perf_counter()
        fitted = settings.train_on_spark(source, spark, sample)
        seconds = round(time.perf_counter() - start, 2)
        fitted.save(out)
        return print_summary(fitted, out, None, seconds, json)
    data = read_source(source, reading)
    settings.items = None if flags.items is None else read_content(flags.items)
    if report is not None:
        settings.check_stopping_rule(data)
    split = None if test is None and report is None else settings.split(data)
    train = data if split is None else split.train_valid
    if test is not None and split is not None:
        write_rows(split.test, test)
        n_users = split.test.active_users.size
        print_note(f"held out {split.test.n_rows:,} rows of {n_users:,} users in {test}")
    start = time.perf_counter()
    fitted = settings.train(train, data)
    tested = fitted
    if report is not None and test is None and split is not None:
        from shortlist.auto.fit import add_rows

        print_note("fitting the chosen model once more, with the test set that took no part in the choice")
        with show_progress(progress_lines()) as display:
            epochs = display.epochs(f"training {type(fitted).__name__}")
            fitted = add_rows(tested, split.test, data, items=settings.items, progress=epochs)
    seconds = round(time.perf_counter() - start, 2)
    fitted.save(out)
    if report is not None and split is not None:
        list_time = write_test_report(report, source_name(source), tested, split, settings)
        if list_time:
            print_note(list_time)
    return print_summary(fitted, out, report, seconds, json)


@dataclass
class _Settings:
    """The flags that control training."""

    flags: FitFlags
    cutoff_flags: CutoffFlags
    params: Params
    items: "Items | None" = None

    def __post_init__(self) -> None:
        from shortlist.core.metrics import Money
        from shortlist.cutoff import Budget, ExpectedValue

        self.money = self.cutoff_flags.money()
        self.metric = self.flags.metric or ("f1" if self.money is None else "value")
        self.chosen = build_cutoff(self.flags.cutoff, self.cutoff_flags, self.metric)
        is_open = self.money is None and self.flags.metric is None
        if is_open and isinstance(self.chosen, ExpectedValue | Budget):
            self.money, self.metric = Money.of(self.chosen.gain, self.chosen.cost), "value"
        self.given = self.params.given()
        self.filter_seen = None if self.flags.seen == "auto" else self.flags.seen == "drop"
        self.has_params = self.params.config is not None or bool(self.given.keys() - {"seed"})

    def check(self) -> None:
        """Raise ConfigError for flags that contradict each other."""
        validated = {
            "report": self.flags.report,
            "validation": self.flags.validation == "by-time",
            "users": self.flags.users,
            "horizon": self.flags.horizon,
            "minutes": self.flags.minutes,
            next(iter(self.cutoff_flags.given()), "cutoff"): self.chosen,
        }
        flag = next((name for name, value in validated.items() if value), None)
        if self.flags.quick and flag is not None:
            raise ConfigError(f"--{flag} needs validation, which --quick skips; drop one of them.")
        if self.flags.trials is not None and (self.flags.quick or self.has_params):
            raise ConfigError(
                "--trials tries several settings, so it cannot be combined with --quick, --config or a "
                "hyperparameter; drop one of them."
            )

    @property
    def single(self) -> bool:
        """Whether the flags determine the model, so that no models are compared."""
        return self.flags.model is not None or self.has_params or self.flags.quick

    def split(self, data: "Interactions") -> "Split":
        """The test set: the last period, last baskets, or random items if few users return."""
        if self.flags.horizon is not None:
            return sl.split.last_period(data, self.flags.horizon)
        if sl.split.users_return(data):
            return sl.split.last_basket(data)
        print_note("few users return, so the test set is one item in 5 of each user, drawn at random")
        return sl.split.random_items(data)

    def check_stopping_rule(self, data: "Interactions") -> None:
        """Raise ConfigError if lists would end neither at a cutoff nor at a boundary."""
        from shortlist.auto.validation import build_model

        if self.flags.cutoff != "none":
            return
        if (
            not self.single
            or not build_model(*choose_model(self.flags.model, self.params, data)).has_boundary
        ):
            raise ConfigError("--report needs a cutoff, which --cutoff none removes; drop one of them.")

    def train(self, rows: "Interactions", data: "Interactions") -> "Recommender":
        """Train on `rows`; the default model is chosen from all of `data`."""
        from shortlist.auto.validation import build_model, fit_model

        models: Any = self.flags.model
        if self.single and self.flags.trials is None:
            models = build_model(*choose_model(self.flags.model, self.params, data))
        if self.flags.quick:
            with show_progress(progress_lines()) as display:
                epochs = display.epochs(f"training {type(models).__name__}")
                return fit_model(models, rows, progress=epochs, items=self.items)
        validation, users = VALIDATIONS[self.flags.validation], self.flags.users
        try:
            return sl.fit(
                rows,
                models=models,
                validation=validation,
                users=users,
                minutes=self.flags.minutes,
                **self._options(),
            )
        except InfeasibleError as error:
            rule = str(error).partition(";")[0]
            raise InfeasibleError(
                f"{rule}; lower --min_precision or --confidence, or use more data."
            ) from None

    def train_on_spark(self, folder: str, master: str, sample: int) -> "Recommender":
        """Train on a sample of the users of a folder of Parquet files."""
        from shortlist.auto.validation import build_model
        from shortlist.cli.spark import open_session, read_folder

        flags = self.flags
        check_no_flags(test=flags.test, report=flags.report, quick=flags.quick, minutes=flags.minutes)
        check_no_flags(validation=flags.validation == "by-time")
        models: Any = flags.model
        if self.has_params:
            name, settings = name_model(flags.model, self.params)
            if name is None:
                raise ConfigError("--spark needs --model with hyperparameters, got none; name one.")
            models = build_model(name, settings)
        self.items = None if flags.items is None else read_content(flags.items)
        df = read_folder(open_session(master), Path(folder))
        everyone = flags.users == "everyone"
        return sl.spark.fit(df, users=sample, models=models, everyone=everyone, **self._options())

    def _options(self) -> dict[str, Any]:
        """The options of `sl.fit` and `sl.spark.fit`."""
        trials, money = self.flags.trials, self.money
        shared = {"seed": self.given["seed"]} if "seed" in self.given else {}
        return shared | {
            "metric": self.metric,
            "gain": None if money is None else money.gain,
            "cost": None if money is None else money.cost,
            "cutoff": self._cutoff(),
            "filter_seen": self.filter_seen,
            "budget": 1 if trials is None else trials,
            "horizon": self.flags.horizon,
            "progress": progress_lines(),
            "items": self.items,
        }

    def _cutoff(self) -> "Cutoff | Literal['auto'] | None":
        """The unfitted cutoff, or that cutoffs are compared; also with money, which says none by itself."""
        from shortlist.cutoff import ExpectedValue

        if self.flags.cutoff == "none":
            return None
        if self.chosen is None or (self.flags.cutoff == "auto" and isinstance(self.chosen, ExpectedValue)):
            return "auto"
        return self.chosen


def build_cutoff(name: str, flags: CutoffFlags, metric: str) -> "Cutoff | None":
    """The unfitted cutoff that the flags of `fit` describe; None if they leave the choice open."""
    from shortlist.cutoff import Cutoff

    cutoffs = Cutoff.classes()
    allowed, given = flags.rule(), flags.given()
    if metric == "value" and flags.money() is None:
        raise ConfigError(
            "--metric value needs what an item earns and costs, got neither; add --gain and --cost."
        )
    if name not in ("auto", "none", *cutoffs):
        near = nearest_name(name, cutoffs)
        advice = f"did you mean {near!r}?" if near else "choose one."
        names = ", ".join(cutoffs)
        raise ConfigError(f"--cutoff must be auto, none or one of {names}, got {name!r:.40}; {advice}")
    default = {"ndcg": "ExpectedNDCG", "value": "ExpectedValue"}.get(metric, "ExpectedF1")
    if allowed and name not in ("auto", *allowed):
        raise ConfigError(
            f"--{next(iter(given))} belongs to {' or '.join(allowed)}, got --cutoff {name}; drop one of them."
        )
    if name == "Guarantee" and flags.min_precision is None:
        raise ConfigError(
            "--cutoff Guarantee needs the precision to guarantee, got none; add --min_precision 0.2."
        )
    if name == "auto" and not allowed:
        return None
    chosen = name if name != "auto" else default if default in allowed else allowed[0]
    if chosen == "none":
        return None
    values: dict[str, Any] = dict(given)
    return cutoffs[chosen](**values)


def boundary_name(model: "Recommender") -> str:
    """The kind of boundary at which the model's lists end."""
    return BOUNDARIES.get(str(model.get_params().get("boundary")), BOUNDARIES["learned"])


def source_name(source: str) -> str:
    """The name of the data in a report: without folders and secrets."""
    name = redact_uri(source)
    return name if "://" in name else Path(name).name


def write_test_report(
    path: Path, name: str, model: "Recommender", split: "Split", settings: _Settings
) -> str:
    """Write the report on the test set: the model's cutoff, its boundary, and the best fixed N.

    Returns the sentence on the time of its lists.
    """
    from shortlist.cutoff import FixedN
    from shortlist.reports.model_report import build_model_report, write_model_report

    assert model.selection_ is not None
    N = model.selection_.models[0]["N"]
    cutoffs: dict[str, Cutoff | Literal["boundary"]] = {f"best fixed N = {N}": FixedN(N=N)}
    if model.has_boundary:
        cutoffs[boundary_name(model)] = "boundary"
    main = boundary_name(model)
    if model.cutoff_ is not None:
        main = type(model.cutoff_).__name__
        cutoffs[main] = model.cutoff_
    filter_seen = settings.filter_seen
    report = build_model_report(
        name,
        model,
        split,
        cutoffs,
        main=main,
        N=N,
        filter_seen=not split.data.has_repeats if filter_seen is None else filter_seen,
        money=settings.money,
        everyone=settings.flags.users == "everyone",
    )
    write_model_report(report, path)
    return report.list_time


def print_summary(model: "Recommender", path: Path, report: Path | None, seconds: float, json: bool) -> None:
    """Print what was trained, why it was chosen, and the next command."""
    lists = sample_lists(model)
    about = summarize_model(model, path) | {"seconds": seconds}
    about["empty_lists"] = None if lists is None else count_empty(lists.summary())
    if json:
        return show_json(about if report is None else about | {"report": str(report)})
    if model.selection_ is not None:
        show(model.selection_)
    name = printable(path)
    other = boundary_name(model) if model.has_boundary else "none; shortlist recommend needs --N"
    rule = about["stopping_rule"] or other
    show_text(f"{about['class']}, trained on {about['rows']:,} rows: {name}")
    show_text(f"Choosing and training took {seconds} s")
    show_text(f"Cutoff: {rule}")
    if lists is not None:
        show_text(describe_empty(about["empty_lists"], len(lists), model.history_.active_users.size))
    if report is not None:
        show_text(f"Report: {printable(report)}")
    return show_text(f"Next: shortlist inspect {name}")
