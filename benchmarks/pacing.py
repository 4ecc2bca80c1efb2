"""Does a budget last, and what does it earn, if requests arrive one by one and traffic is not known ahead?

    python benchmarks/pacing.py    # 30 simulated days, half a minute

Lists come with a pattern of hours and weekdays; lists of a weekend are worth 10% more; on one day, traffic is
three times as high for twelve hours. Nothing of that is known to the pacing: it starts without any history.
Probabilities are those of Online Retail (`PersonalFrequency`, calibrated). The price follows every ten
minutes, as it would in the service within a second. Compared with the allocation that knows all lists of the
period before it begins.
"""

import argparse
import json

import numpy as np
from machine import describe, save_results

import shortlist as sl
from shortlist.serve.budget import DAY, HOUR, LENGTHS, MONDAY, Pace, Traffic

DAYS, STEP, DEPTH = 30, 600.0, 20
LISTS_PER_DAY, ITEMS_PER_LIST = 20_000, 0.5
SHOCK_DAY, SHOCK_HOURS, SHOCK = 16, (10, 22), 3.0
WEEKDAYS = np.array([1.0, 0.9, 0.9, 1.0, 1.3, 1.2, 0.7])
HOURS = np.array([2, 1, 1, 1, 1, 2, 4, 7, 9, 10, 11, 12, 12, 11, 10, 10, 11, 13, 15, 16, 15, 12, 8, 4])


def candidate_values() -> tuple[sl.cutoff.Budget, np.ndarray]:
    """A fitted cutoff, and (n_users, DEPTH) the probabilities of each user's candidates."""
    split = sl.split.last_basket(sl.load_dataset("online-retail"))
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=DEPTH, filter_seen=False)
    cutoff = sl.cutoff.Budget(items_per_list=ITEMS_PER_LIST, n_candidates=DEPTH, calibration="platt")
    cutoff.fit(lists, split.valid, history=split.train)
    lists = cutoff.with_probabilities(lists, history=split.train)
    values = np.zeros((len(lists), DEPTH))
    values[np.repeat(np.arange(len(lists)), lists.lengths), lists.positions] = lists.probabilities
    return cutoff, np.minimum.accumulate(values, axis=1)


def expected_lists(time: float) -> float:
    """The mean number of lists in the step that begins at `time`."""
    day, hour = int((time - MONDAY) // DAY), int(time % DAY // HOUR)
    shock = SHOCK if day == SHOCK_DAY and SHOCK_HOURS[0] <= hour < SHOCK_HOURS[1] else 1.0
    return LISTS_PER_DAY * WEEKDAYS[day % 7] * HOURS[hour] / HOURS.sum() * STEP / HOUR * shock


def simulate(pace: Pace, cutoff: sl.cutoff.Budget, values: np.ndarray, seed: int) -> dict[str, object]:
    """Spend the budget of every whole period; return what it earned and what could have been earned."""
    rng, traffic = np.random.default_rng(seed), Traffic()
    spent, earned = dict[float, int](), dict[float, float]()
    seen, prices = dict[float, list[np.ndarray]](), []
    length = LENGTHS[pace.per]
    for time in np.arange(MONDAY, MONDAY + DAYS * DAY // length * length, STEP):
        start = pace.period(time)[0]
        used = spent.setdefault(start, 0)
        price = cutoff.price_at(pace.items_per_list(time, used, traffic))
        n = rng.poisson(expected_lists(time))
        weekend = int((time - MONDAY) // DAY) % 7 >= 5
        drawn = values[rng.integers(0, len(values), n)] * (1.1 if weekend else 1.0)
        shown = drawn[drawn > price][: pace.budget - used]  # in the order of arrival; the rest is cut
        earned[start] = earned.get(start, 0.0) + float(shown.sum())
        spent[start] = used + shown.size
        hour = int(time // HOUR)
        traffic.hours[hour] = traffic.hours.get(hour, 0.0) + n
        seen.setdefault(start, []).append(drawn[drawn > 0])
        prices.append(price)
    best = sum(knows_all(drawn, pace.budget) for drawn in seen.values())
    shares = [n / pace.budget for n in spent.values()]
    return {
        "budget": pace.budget,
        "periods": len(shares),
        "highest_share_spent": max(shares),
        "lowest_share_spent": min(shares),
        "lowest_share_spent_after_a_week": min(shares[7 if pace.per == "day" else 1 :]),
        "share_spent": float(np.mean(shares)),
        "earned": sum(earned.values()),
        "earned_over_best": sum(earned.values()) / best,
        "price_quartiles": np.quantile(prices, [0.25, 0.5, 0.75]).tolist(),
    }


def knows_all(seen: list[np.ndarray], budget: int) -> float:
    """What the best items of a period earn."""
    everything = np.concatenate(seen)
    return float(np.partition(everything, -budget)[-budget:].sum()) if everything.size > budget else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    cutoff, values = candidate_values()
    budget = round(LISTS_PER_DAY * ITEMS_PER_LIST)
    rows = {}
    for per, spend in (("day", "traffic"), ("day", "even"), ("week", "traffic"), ("week", "even")):
        pace = Pace(budget * (7 if per == "week" else 1), per, spend)
        found = [simulate(pace, cutoff, values, seed) for seed in range(options.seeds)]
        rows[f"{per}, {spend}"] = found
        print(per, spend, json.dumps(found[0]), flush=True)
    save_results("pacing", {"machine": describe(), "days": DAYS, "shock": SHOCK, "runs": rows})
