"""What happened after a list, worked by hand: purchases and returns, for experiments."""

import json
from collections import namedtuple

import pytest

from shortlist.serve.experiments import DAY, Arm, Experiments, LiveExperiment
from shortlist.serve.projections import UserTimeline, remove_returned
from shortlist.serve.store import EventStore, ListRow

Row = namedtuple("Row", "seq item_id time weight received")
NOW = 1_000_000.0
MINUTE = 60.0


def row(seq, item, time, weight=None, received=None):
    return Row(seq, item, time, weight, float(time if received is None else received))


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([row(1, "a", 1), row(2, "b", 2)], [1, 2]),
        ([row(1, "a", 1), row(2, "a", 2, -1.0)], []),
        ([row(1, "a", 1), row(2, "b", 2, -1.0)], [1]),  # of something else
        ([row(1, "a", 3), row(2, "a", 2, -1.0)], [1]),  # the return was earlier
        ([row(1, "a", 1, -1.0), row(2, "a", 1)], []),  # at the same time, stored first
        ([row(1, "a", 1), row(2, "a", 2), row(3, "a", 3, -1.0)], [1]),  # the latest one
        ([row(1, "a", 1, 3.0), row(2, "a", 2, -2.0)], [1]),  # one of three is left
        ([row(1, "a", 1, 3.0), row(2, "a", 2, -2.0), row(3, "a", 3, -1.0)], []),
        ([row(1, "a", 1, 2.0), row(2, "a", 2, 2.0), row(3, "a", 3, -3.0)], [1]),
        ([row(1, "a", 1), row(2, "a", 2, -5.0), row(3, "a", 3)], [3]),  # nothing is owed
    ],
)
def test_a_return_takes_back_the_latest_earlier_purchases(rows, left):
    assert [purchase.seq for purchase in remove_returned(rows)] == left


def test_a_return_after_the_window_takes_nothing_back():
    timeline = UserTimeline([], [row(1, "a", 10), row(2, "a", 20, -1.0)])
    assert [purchase.seq for purchase in timeline.purchases(0, 20)] == [1]
    assert timeline.purchases(0, 21) == []
    assert timeline.purchases(11, 21) == []


# ---------------------------------------------------------------------- in experiments
@pytest.fixture
def store(tmp_path):
    found = EventStore(f"sqlite:///{tmp_path / 'events.sqlite'}")
    found.create()
    yield found
    found.close()


def log(store, user, made, items=("i1", "i2"), arm=None):
    texts = (json.dumps(items), json.dumps([0.5] * len(items)))
    name = f"{user}{made:.0f}"
    store.add_lists([ListRow(name, user, "shop", "N", made, *texts, "top_n", 1.0, arm=arm, n_before=1)])


def send(store, user, item, received, weight=None):
    about = {"event_id": f"{user}{item}{received}{weight}", "user_id": user, "item_id": item}
    values = {"time": int(received * 1e6), "weight": weight, "list_id": None, "received": received}
    store.add_events([[about | values]])


def test_a_purchase_that_is_returned_within_the_window_is_no_success_of_an_experiment(store):
    experiments = Experiments(store)
    experiments.start(LiveExperiment("spring", (Arm("a", 0.5), Arm("b", 0.5)), window_days=7.0))
    for user in ("kept", "returned", "late"):
        log(store, user, NOW, arm="spring/a")
        send(store, user, "i1", NOW + DAY)
    send(store, "returned", "i1", NOW + 2 * DAY, -1.0)
    send(store, "late", "i1", NOW + 8 * DAY, -1.0)
    assert experiments.step(NOW + 9 * DAY) == 3
    hits = {user.user_id: json.loads(user.outcome)["hits"] for user in experiments.users("spring")}
    assert hits == {"kept": 1, "returned": 0, "late": 1}
