"""Feedback: lists joined with the baskets that followed them, worked out by hand."""

import json
from dataclasses import replace

import pytest

import shortlist as sl
from shortlist.serve.deployment import Deployment
from shortlist.serve.feedback import Feedback, Outcome, build_batch, find_horizon
from shortlist.serve.store import EventStore, ListRow

NOW = 1_000_000.0


@pytest.fixture
def store(tmp_path):
    found = EventStore(f"sqlite:///{tmp_path / 'events.sqlite'}")
    found.create()
    yield found
    found.close()


@pytest.fixture
def served(folder, store):
    deployment = Deployment(folder, store)
    deployment.start(folder / "shop.shortlist")
    return deployment.served


def log(store, list_id, user, made, items, probabilities=None, model="shop"):
    texts = (json.dumps(items), None if probabilities is None else json.dumps(probabilities))
    store.add_lists([ListRow(list_id, user, model, "ExpectedF1", made, *texts, "utility", 1.0)])


def send(store, user, items, received, time=5):
    store.add_events(
        [
            [
                {
                    "event_id": f"{user}-{item}-{received}",
                    "user_id": user,
                    "item_id": item,
                    "time": time,
                    "weight": None,
                    "list_id": None,
                    "received": received,
                }
                for item in items
            ]
        ]
    )


def outcomes(store):
    outcomes, used = Feedback(store)._join(store.events_after(0, 1000))
    assert Feedback(store)._close_lists(used, store.snapshot("feedback"), {"seq": 0})
    return outcomes


def test_the_last_list_before_a_basket_counts(store):
    log(store, "a", "u1", NOW - 300, ["i9"])
    log(store, "b", "u1", NOW - 200, ["i1", "i2"], [0.5, 0.3])
    log(store, "c", "u1", NOW + 10, ["i3"])
    send(store, "u1", ["i2", "i7"], NOW)
    [one] = outcomes(store)
    assert one == Outcome(["i1", "i2"], [0.5, 0.3], frozenset({"i2", "i7"}), "shop")
    assert one.precision == 0.5
    assert one.excess == pytest.approx(0.5 - 0.4)


def test_a_list_counts_once(store):
    log(store, "a", "u1", NOW - 200, ["i1"])
    send(store, "u1", ["i1"], NOW, time=5)
    send(store, "u1", ["i2"], NOW + 20, time=6)
    assert len(outcomes(store)) == 1
    assert outcomes(store) == []


def test_lists_without_events_and_old_lists_do_not_count(store):
    log(store, "a", "u1", NOW - 200, ["i1"])
    log(store, "b", "u2", NOW - 8 * 86_400, ["i1"])
    send(store, "u2", ["i1"], NOW)
    send(store, "u3", ["i1"], NOW)
    assert outcomes(store) == []


def test_empty_list_has_no_precision():
    assert Outcome([], [], frozenset({"i1"}), "shop").precision is None
    assert Outcome([], [], frozenset({"i1"}), "shop").excess is None


def test_monitor_follows_the_outcomes_and_survives_a_restart(store, served):
    for number in range(40):
        log(store, f"l{number}", f"u{number}", NOW - 100, ["i1", "i2"], [0.9, 0.8])
        send(store, f"u{number}", ["i9"], NOW)  # nothing that was shown
    assert Feedback(store).step(served, at=NOW + 10) is None  # not settled yet
    assert Feedback(store).monitors(served)["calibration"].mean is None
    Feedback(store).step(served, at=NOW + 100)
    monitor = Feedback(store).monitors(served)["calibration"]
    assert monitor.mean == pytest.approx(-0.85)
    assert monitor.status == "alarm"
    Feedback(store).step(served, at=NOW + 200)  # nothing new
    assert Feedback(store).monitors(served)["calibration"].to_dict() == monitor.to_dict()


def test_outcomes_are_kept_only_for_a_guarantee(store, served):
    feedback = Feedback(store)
    for number in range(5):
        log(store, f"l{number}", f"u{number}", NOW - 100, ["i1"], [0.9])
        send(store, f"u{number}", ["i1"], NOW)
    feedback.step(served, at=NOW + 100)
    assert feedback.monitors(served)["calibration"].mean is not None
    assert feedback._waiting == []


def test_lists_of_another_model_do_not_count(store, served):
    log(store, "a", "u1", NOW - 100, ["i1"], [0.9], model="earlier")
    send(store, "u1", ["i1"], NOW)
    Feedback(store).step(served, at=NOW + 100)
    assert Feedback(store).monitors(served)["calibration"].mean is None


def test_batch_of_outcomes_moves_a_guarantee():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.PersonalFrequency().fit(split.train)
    cut = sl.cutoff.Guarantee(min_precision=0.15).fit(model.recommend(N=20), split.valid)
    missed = [
        Outcome(["i1", "i2"], None, frozenset({"i9"}), "shop"),
        Outcome([], None, frozenset({"i1"}), "shop"),
    ]
    lists, truth = build_batch(missed, cut)
    assert lists.lengths.tolist() == [2, 0]
    after = cut.update(lists, truth, shown=True)
    assert after.threshold_ > cut.threshold_  # precision 0 is below the guarantee: show less
    hit = [Outcome(["i1"], None, frozenset({"i1"}), "shop")]
    assert cut.update(*build_batch(hit, cut), shown=True).threshold_ < cut.threshold_


def test_a_backlog_is_worked_off_in_steps_and_shows(store, served, monkeypatch):
    monkeypatch.setattr("shortlist.serve.feedback.EVENTS_AT_ONCE", 10)
    for number in range(25):
        log(store, f"l{number}", f"u{number}", NOW - 100, ["i1"], [0.5])
        send(store, f"u{number}", ["i1"], NOW)
    feedback, steps = Feedback(store), []
    for _ in range(4):
        feedback.step(served, at=NOW + 100)
        n_values = feedback.monitors(served)["calibration"].trace["n"].sum()
        steps.append((feedback.events_behind(served), n_values, feedback.is_behind))
    assert steps == [(15, 10, True), (5, 20, True), (0, 25, False), (0, 25, False)]


def test_two_workers_count_an_outcome_once(store, served, monkeypatch):
    log(store, "a", "u1", NOW - 100, ["i1"], [0.5])
    send(store, "u1", ["i1"], NOW)
    slow, quick = Feedback(store), Feedback(store)
    join = slow._join

    def overtaken(rows):
        joined = join(rows)
        quick.step(served, at=NOW + 100)
        return joined

    monkeypatch.setattr(slow, "_join", overtaken)
    slow.step(served, at=NOW + 100)
    assert quick.monitors(served)["calibration"].trace["n"].sum() == 1


def test_an_event_that_arrived_late_is_not_left_out(store, served):
    """It was received later than the one after it, by another server."""
    for user, received in (("u1", NOW + 50), ("u2", NOW)):
        log(store, f"l{user}", user, NOW - 100, ["i1"], [0.5])
        send(store, user, ["i1"], received)
    feedback = Feedback(store)
    feedback.step(served, at=NOW + 100)
    feedback.step(served, at=NOW + 200)
    assert feedback.monitors(served)["calibration"].trace["n"].sum() == 2


DAY = 86_400.0


def test_everyone_counts_when_the_horizon_is_over(store):
    """A week for everyone: u1 took one of two items, u2 nothing; u3's week is not over."""
    log(store, "a", "u1", NOW, ["i1", "i2"], [0.5, 0.3])
    log(store, "b", "u1", NOW + DAY, ["i3"], [0.9])  # within the week of the first list
    log(store, "c", "u2", NOW, ["i4"], [0.2])
    log(store, "d", "u3", NOW + 2 * DAY, ["i5"], [0.2])
    send(store, "u1", ["i2"], NOW + 3 * DAY)
    send(store, "u1", ["i1"], NOW + 8 * DAY, time=6)  # too late
    found, used = Feedback(store)._join_expired("shop", NOW + 8 * DAY, 7 * DAY)
    assert found == [
        Outcome(["i1", "i2"], [0.5, 0.3], frozenset({"i2"}), "shop"),
        Outcome(["i4"], [0.2], frozenset(), "shop"),
    ]
    assert sorted(used) == ["a", "b", "c"]
    assert [one.excess for one in found] == pytest.approx([0.5 - 0.4, -0.2])


def test_a_model_for_everyone_learns_from_lists_without_events(store, served, monkeypatch):
    monkeypatch.setattr("shortlist.serve.feedback.find_horizon", lambda served: 7 * DAY)
    for number in range(5):
        log(store, f"l{number}", f"u{number}", NOW, ["i1"], [0.4])
    feedback = Feedback(store)
    feedback.step(served, NOW + DAY)
    assert feedback.monitors(served)["calibration"].mean is None
    feedback.step(served, NOW + 8 * DAY)
    monitor = feedback.monitors(served)["calibration"]
    assert monitor.mean == pytest.approx(-0.4)
    feedback.step(served, NOW + 9 * DAY)  # a list counts once
    assert feedback.monitors(served)["calibration"].to_dict() == monitor.to_dict()


def test_horizon_of_the_model_in_service(served):

    from shortlist.models.selection import SelectionReport

    assert find_horizon(served) is None
    report = SelectionReport("a week", [{"model": "m", "params": {}, "N": 3, "score": 0.5}], [])
    served.model.set_cutoff(served.model.cutoff_, replace(report, users="everyone", horizon="604800s"))
    assert find_horizon(served) == 7 * DAY
