"""The options of an experiment, declared once for Python, the command line and HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from shortlist.core.options import (
    Above,
    AtLeast,
    AtMost,
    Below,
    Form,
    Help,
    NotNegative,
    Positive,
    check_options,
)

ExperimentMetric = Literal["hits", "hits_per_item", "value", "f1", "empty"]


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """How the arms of an experiment are compared."""

    metric: Annotated[ExperimentMetric, Help("What decides.")] = "hits"
    window_days: Annotated[
        float, Above(0), AtMost(365), Help("Days after the first list of a user in which events count.")
    ] = 7.0
    gain: Annotated[NotNegative, Help("What a hit earns, for the metric value.")] = 1.0
    cost: Annotated[NotNegative, Help("What a shown item costs.")] = 0.0
    contact_cost: Annotated[NotNegative, Help("What a list with items costs.")] = 0.0
    max_hits: Annotated[
        int,
        AtLeast(1),
        AtMost(10_000),
        Help("Hits of a user that count at most; the value is limited to what they earn."),
    ] = 20
    guardrails: Annotated[
        Mapping[str, float],
        Help("Metrics that may not become worse, and by how much at most."),
        Form(tuple[str, ...], dict[str, NotNegative], "METRIC=0.02: it may become worse by at most this."),
    ] = field(default_factory=dict)
    smallest_effect: Annotated[Positive | None, Help("The smallest difference that matters.")] = None
    confidence: Annotated[
        float, AtLeast(0.5), Below(1), Help("Probability that no interval is ever wrong.")
    ] = 0.95
    planned_users: Annotated[
        int | None,
        AtLeast(1),
        Help("Users of all arms with which it is to end; the interval is narrowest there."),
    ] = None

    def __post_init__(self) -> None:
        check_options(ExperimentOptions, {name: getattr(self, name) for name in OPTION_NAMES})


OPTION_NAMES = tuple(ExperimentOptions.__dataclass_fields__)
