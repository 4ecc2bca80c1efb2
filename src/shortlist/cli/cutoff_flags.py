"""Flags that decide who gets an empty list: coverage, floor, gain and cost, precision and confidence."""

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Group, Parameter

from shortlist import MODEL_MODULES
from shortlist.cli.flags import flag_of, join_flags
from shortlist.core.metrics import Money, metrics_to_optimize
from shortlist.cutoff import Budget, Cutoff, ExpectedF1, ExpectedValue, Guarantee
from shortlist.cutoff.expected import ExpectedUtility
from shortlist.errors import ConfigError, warn

if TYPE_CHECKING:
    from shortlist.models.base import Recommender

CUTOFFS = Cutoff.classes()  # which imports the packages that have some, or models, by entry points
if TYPE_CHECKING:
    CutoffName = str
    MetricName = str
    ModelName = str
else:  # with those of other packages
    CutoffName = Literal["auto", *CUTOFFS, "none"]
    MetricName = Literal[metrics_to_optimize()]
    MODELS = list(MODEL_MODULES)
    if "shortlist.models.base" in sys.modules:  # else no package has models
        from shortlist.models.base import model_names

        MODELS = model_names()
    ModelName = Literal[tuple(name for name in MODELS if name != "PrecomputedScores")]
GROUP = Group("When a list stays empty", sort_key=7)
RULES = {  # the flags that belong together, and the cutoffs that have them
    flags: tuple(name for name, kind in CUTOFFS.items() if flags[0] in kind.flags)
    for flags in (
        ("coverage",),
        ("floor",),
        ("gain", "cost"),
        ("items_per_list",),
        ("min_precision", "confidence"),
    )
}


KINDS: tuple[type[Cutoff], ...] = (*CUTOFFS.values(), ExpectedF1)  # the last one that has a flag explains it
FLAGS = {flag: kind for kind in KINDS for flag in kind.flags}
CutoffValues = join_flags(flag_of(kind, flag, is_optional=True) for flag, kind in FLAGS.items())


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class CutoffFlags(CutoffValues):  # type: ignore[misc, valid-type]
    """Which users get an empty list: the flags of all cutoffs."""

    def given(self) -> dict[str, float]:
        """The flags that were set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def money(self) -> Money | None:
        """What a shown item earns or costs; a missing flag has the default of ExpectedValue."""
        if self.gain is None and self.cost is None:
            return None
        default = ExpectedValue()
        gain, cost = default.gain if self.gain is None else self.gain, default.cost
        return Money.of(gain, cost if self.cost is None else self.cost)

    def rule(self) -> tuple[str, ...]:
        """The cutoffs that have the flags; empty without flags. Raises ConfigError for a contradiction."""
        given = self.given()
        set_flags = {names: [name for name in names if name in given] for names in RULES}
        groups = [names for names, flags in set_flags.items() if flags]
        if len(groups) > 1:
            flags = [f"--{set_flags[names][0]}" for names in groups]
            raise ConfigError(f"{' and '.join(flags)} exclude each other; drop one of them.")
        if self.confidence is not None and self.min_precision is None:
            raise ConfigError(
                "--confidence needs the precision to guarantee, got none; add --min_precision 0.2."
            )
        return RULES[groups[0]] if groups else ()


NO_CUTOFF_FLAGS = CutoffFlags()


def build_cutoff(name: str, flags: CutoffFlags, metric: str) -> Cutoff | None:
    """The unfitted cutoff that the flags of `fit` describe; None if they leave the choice open."""
    allowed, given = flags.rule(), flags.given()
    if metric == "value" and flags.money() is None:
        raise ConfigError(
            "--metric value needs what an item earns and costs, got neither; add --gain and --cost."
        )
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
    return CUTOFFS[chosen](**values)


def adjust_cutoff(model: "Recommender", cutoff: Cutoff | None, flags: CutoffFlags) -> Cutoff | None:
    """The fitted cutoff with the flags of `recommend`; it uses what was learned on validation data."""
    if not flags.rule():
        return cutoff
    name = "no cutoff" if cutoff is None else type(cutoff).__name__
    again = " ".join(f"--{flag} {value:g}" for flag, value in flags.given().items())
    if flags.min_precision is not None:
        if isinstance(cutoff, Guarantee) and _is_guaranteed(cutoff, flags):
            return cutoff
        raise ConfigError(
            "--min_precision needs a saved guarantee of at least this precision and confidence, got "
            f"{_guarantee(cutoff) if isinstance(cutoff, Guarantee) else name}; run shortlist fit {again}."
        )
    if flags.gain is not None or flags.cost is not None:
        by_value = ExpectedValue().set_params(**flags.given())
        if not by_value.reuse_calibration(cutoff, has_probabilities=_has_probabilities(model)):
            raise ConfigError(f"--gain and --cost need probabilities, got {name}; run shortlist fit {again}.")
        if model.selection_ is not None and model.selection_.users == "buyers":
            warn(
                "--gain and --cost use probabilities of users who interacted with something. Sent to "
                "everyone, such lists may lose money; for that, fit with --users everyone --horizon 7d."
            )
        return by_value
    if flags.items_per_list is not None and isinstance(cutoff, Budget):
        return cutoff.with_price(cutoff.price_at(flags.items_per_list))
    if not isinstance(cutoff, ExpectedUtility):
        needed = "Budget" if flags.items_per_list is not None else "ExpectedF1 or ExpectedNDCG"
        raise ConfigError(
            f"--{next(iter(flags.given()))} needs a model with {needed}, got {name}; "
            f"run shortlist fit {again}."
        )
    if flags.coverage is not None:
        return cutoff.with_coverage(flags.coverage)
    assert flags.floor is not None
    return cutoff.with_floor(flags.floor)


def _is_guaranteed(cutoff: Guarantee, flags: CutoffFlags) -> bool:
    """Whether the saved guarantee is at least as strong as the requested one."""
    precision, confidence = flags.min_precision, flags.confidence or cutoff.confidence
    return (
        precision is not None and (cutoff.min_precision or 0) >= precision and cutoff.confidence >= confidence
    )


def _guarantee(cutoff: Guarantee) -> str:
    return f"min_precision={cutoff.min_precision} with confidence {cutoff.confidence}"


def _has_probabilities(model: "Recommender") -> bool:
    """Whether the lists of the model carry probabilities."""
    ids = model.users_.to_ids(model.history_.active_users[:1])
    return model.recommend(ids, N=1).probabilities is not None
