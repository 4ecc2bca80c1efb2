"""The alert rules and the Grafana dashboard ask for metrics that the service has."""

import json
import re
from pathlib import Path

import yaml

from shortlist.serve.metrics import Metrics

PACKAGING = Path(__file__).parents[2] / "packaging"
NAME = re.compile(r"shortlist_[a-z_]+")


def exposed():
    """The names of all metrics and of their parts."""
    metrics = Metrics(lambda: 0.0)
    metrics.count_request("/v1/recommend", 200, 0.01)
    metrics.count_lists([0, 3], 1)
    metrics.events.labels("accepted").inc()
    return set(NAME.findall(metrics.text().decode()))


def test_the_dashboard_asks_for_metrics_that_exist():
    dashboard = json.loads((PACKAGING / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > 5
    assert {name for expression in asked for name in NAME.findall(expression)} <= exposed()


def test_the_alerts_ask_for_metrics_that_exist():
    (group,) = yaml.safe_load((PACKAGING / "alerts.yaml").read_text())["groups"]
    assert {name for rule in group["rules"] for name in NAME.findall(rule["expr"])} <= exposed()
    for rule in group["rules"]:
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in ("page", "ticket")
