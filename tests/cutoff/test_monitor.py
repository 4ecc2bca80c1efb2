"""GuaranteeMonitor: few false alarms however often one looks, fast alarms after a change, a round trip."""

import json

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cutoff import Guarantee
from shortlist.cutoff.monitor import Evidence, bet_sizes, log_growth
from shortlist.errors import ConfigError, DataError

TRUTH = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "jam"), ("bob", "jam")])


def table(**columns):
    return sl.RankedLists.from_frame(pl.DataFrame(columns))


SHOWN = table(
    user_id=["ann", "ann", "bob", "cat"],
    item_id=["tea", "rice", "milk", None],
    rank=[1, 2, 1, 0],
    probability=[0.6, 0.2, 0.5, None],
)


def watch(values, **options):
    monitor = sl.GuaranteeMonitor(**options)
    for batch in values:
        monitor.update(batch)
    return monitor


@pytest.mark.parametrize(
    ("options", "draw"),
    [
        ({"level": 0.3}, lambda rng, n: (rng.random(n) < 0.3).astype(float)),
        ({"level": 0.05}, lambda rng, n: (rng.random(n) < 0.25) / 5),
        ({"level": 0.2, "guarantee": "empty"}, lambda rng, n: (rng.random(n) < 0.2).astype(float)),
        (
            {"guarantee": "calibration", "tolerance": 0.0},
            lambda rng, n: (rng.random(n) < 0.4) - 0.4,
        ),
    ],
)
def test_false_alarms_are_as_rare_as_stated(options, draw):
    rng, runs = np.random.default_rng(0), 300
    alarms = sum(
        watch([draw(rng, 40) for _ in range(40)], false_alarms=0.1, **options).status == "alarm"
        for _ in range(runs)
    )
    assert alarms <= 0.1 * runs


@pytest.mark.parametrize("good", [5, 200])
def test_alarm_soon_after_a_change_even_after_a_long_good_period(good):
    rng = np.random.default_rng(1)
    batches = [rng.random(100) < (0.4 if day < good else 0.1) for day in range(good + 20)]
    monitor = watch(batches, level=0.3)
    assert monitor.status == "alarm"
    assert int(monitor.alarm_at) <= good + 6
    assert good - 1 <= int(monitor.since) <= good + 3


@pytest.mark.parametrize("bias", [-0.1, 0.1])
def test_calibration_alarm_in_both_directions(bias):
    rng = np.random.default_rng(2)
    monitor = watch([(rng.random(200) < 0.4 + bias) - 0.4 for _ in range(20)], guarantee="calibration")
    assert monitor.status == "alarm"
    fine = watch([(rng.random(200) < 0.4) - 0.4 for _ in range(20)], guarantee="calibration")
    assert fine.status == "holds"


def test_evidence_equals_the_sum_over_all_starts():
    """The recursion against the definition: one series of bets per start, weight 1 / (s (s + 1))."""
    rng = np.random.default_rng(3)
    batches = [0.3 - rng.random(7) for _ in range(6)]
    bets = bet_sizes(-0.7)
    evidence = Evidence.start(bets.size)
    for batch in batches:
        evidence = evidence.add(log_growth(batch, bets))
    total = 1 / 7  # not yet used
    for start in range(1, 7):
        rest = np.concatenate(batches[start - 1 :])
        total += np.mean([np.prod(1 + bet * rest) for bet in bets]) / (start * (start + 1))
    assert evidence.log_e_value == pytest.approx(np.log(total))


def test_no_bet_can_lose_everything():
    assert (1 + bet_sizes(-0.7) * -0.7 > 0).all()


def test_lists_give_one_value_per_list():
    precision = sl.GuaranteeMonitor(0.1).update(SHOWN, TRUTH, users=["cat"])
    assert precision.mean == pytest.approx((0.5 + 0) / 2)
    everyone = sl.GuaranteeMonitor(0.1, over="users").update(SHOWN, TRUTH, users=["cat"])
    assert everyone.mean == pytest.approx((0.5 + 0 + 1) / 3)
    assert sl.GuaranteeMonitor(0.5, guarantee="empty").update(SHOWN).mean == pytest.approx(1 / 3)
    calibration = sl.GuaranteeMonitor(guarantee="calibration").update(SHOWN, TRUTH)
    assert calibration.mean == pytest.approx(((0.5 - 0.4) + (0 - 0.5)) / 2)


def test_the_monitor_of_a_guarantee_watches_its_level():
    assert sl.GuaranteeMonitor.of(Guarantee(max_empty=0.2)).guarantee == "empty"
    monitor = sl.GuaranteeMonitor.of(Guarantee(min_precision=0.4, over="users"), false_alarms=0.01)
    assert (monitor.level, monitor.over, monitor.false_alarms) == (0.4, "users", 0.01)


def test_round_trip_through_json_continues_where_it_was():
    rng = np.random.default_rng(4)
    batches = [rng.random(60) < (0.35 if day < 8 else 0.1) for day in range(14)]
    whole = watch(batches, level=0.3)
    half = watch(batches[:7], level=0.3)
    half = sl.GuaranteeMonitor.from_dict(json.loads(json.dumps(half.to_dict(), allow_nan=False)))
    for batch in batches[7:]:
        half.update(batch)
    assert half.summary() == whole.summary()
    assert half.trace.equals(whole.trace)


def test_memory_is_bounded_and_the_last_update_is_kept():
    monitor = watch([[0.0, 1.0]] * 3000, level=0.3)
    assert monitor.trace.height <= 512
    assert monitor.trace["number"][-1] == 3000


def test_status_without_data():
    monitor = sl.GuaranteeMonitor(0.3)
    assert (monitor.status, monitor.since, monitor.mean, monitor.p_value) == ("no data", None, None, 1.0)
    assert monitor.update([]).status == "no data"


@pytest.mark.parametrize(
    "options",
    [{}, {"level": 0}, {"level": 1.5}, {"level": 0.3, "guarantee": "recall"},
     {"level": 0.3, "false_alarms": 1}, {"level": 0.3, "guarantee": "calibration"},
     {"level": 0.3, "over": "all"}],
)  # fmt: skip
def test_invalid_parameters_are_refused(options):
    with pytest.raises(ConfigError):
        sl.GuaranteeMonitor(**options)


@pytest.mark.parametrize("values", [[2.0], [-0.1], [np.nan], ["a"], [[0.5]], 0.5, None])
def test_invalid_values_are_refused(values):
    with pytest.raises(DataError, match="numbers from 0 to 1"):
        sl.GuaranteeMonitor(0.3).update(values)


def test_missing_truth_and_probabilities_are_refused():
    with pytest.raises(DataError, match="precision needs truth"):
        sl.GuaranteeMonitor(0.3).update(SHOWN)
    with pytest.raises(DataError, match="needs lists with probabilities"):
        sl.GuaranteeMonitor(guarantee="calibration").update(
            table(user_id=["ann"], item_id=["tea"], rank=[1]), TRUTH
        )


@pytest.mark.parametrize(
    "values", [{}, {"params": {}}, [], {"params": {"level": 0.3}, "state": {}, "trace": []}]
)
def test_other_dictionaries_are_refused(values):
    with pytest.raises(DataError, match="dictionary from to_dict"):
        sl.GuaranteeMonitor.from_dict(values)


def test_states_of_other_sizes_are_refused():
    values = sl.GuaranteeMonitor(0.3).update([1, 0]).to_dict()
    for starts in (values["state"]["starts"][1:], [*values["state"]["starts"], ""]):
        with pytest.raises(DataError, match="got other sizes"):
            sl.GuaranteeMonitor.from_dict({**values, "state": {**values["state"], "starts": starts}})
    other = sl.GuaranteeMonitor(guarantee="calibration").update([0.1]).to_dict()
    with pytest.raises(DataError, match="got other sizes"):
        sl.GuaranteeMonitor.from_dict({**values, "state": other["state"]})


@pytest.mark.parametrize("bias", [-0.03, 0.03])
def test_a_bias_within_the_tolerance_is_no_alarm(bias):
    fine = watch([np.full(50, bias)] * 40, guarantee="calibration", tolerance=0.05)
    assert fine.status == "holds"
    assert fine.p_value == 1.0
    assert watch([np.full(50, bias)] * 40, guarantee="calibration", tolerance=0.0).status == "alarm"


def test_the_summary_says_whether_the_guarantee_holds():
    assert "holds after 2 updates with 4 lists" in watch([[1, 1], [1, 0]], level=0.3).summary()
    broken = watch([[0.0] * 100] * 10, level=0.3).summary()
    assert "broken since" in broken
    assert "alarm at" in broken


def test_long_labels_are_cut():
    monitor = sl.GuaranteeMonitor(0.9).update([0.0] * 200, at="x" * 300)
    assert monitor.alarm_at is not None
    assert len(monitor.alarm_at) == 80
