"""Next basket: which items will a customer buy on the next visit, and how many?

    python examples/next_basket.py                    # generated data, seconds
    python examples/next_basket.py --dataset ta-feng  # real data, minutes; downloaded once

Lists are computed for a given time, from earlier events only. All choices are made on each customer's last
basket but one; the last basket is used once, for the test. The cells (# %%) open as a notebook in most
editors.
"""

# %% Three columns are enough. Each customer's last basket is for the test, the one before for validation.
import argparse

import numpy as np

import shortlist as sl

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--dataset", choices=["sample", "ta-feng"], default="sample")
name = parser.parse_args().dataset
data = sl.load_dataset(name)
split = sl.split.last_basket(data)
print(data)


# %% Candidates for the time of each validation basket, from a model that was trained without these baskets.
n_rounds = 40 if name == "sample" else 120  # few customers, few trees
model = sl.TwoStage(n_rounds=n_rounds).fit(split.train)
customers = split.valid.users.to_ids(split.valid.active_users)
candidates = model.recommend(customers, N=100, at=split.valid, filter_seen=False)

# %% Cutoffs, a fixed N among them, are fitted on half of the customers and evaluated on the other half.
choice = sl.choose_cutoff(candidates, split.valid, split.train)
print(choice)
fixed = sl.cutoff.FixedN().fit(candidates, split.valid, history=split.train)

# %% One test on the last baskets, over all customers, for the time of each basket.
final = sl.TwoStage(n_rounds=n_rounds).fit(split.train_valid)
customers = split.test.users.to_ids(split.test.active_users)
lists = {
    label: final.recommend(customers, at=split.test, cutoff=cut, filter_seen=False)
    for label, cut in ((f"top {fixed.N_}", fixed), ("chosen on validation", choice.cutoff))
}
for label, one in lists.items():
    report = sl.evaluate(one, split.test)
    print(f"{label:22} F1 {report.f1:.3f}, {report.mean('length'):.1f} items per list")
lengths = lists["chosen on validation"].lengths
print("lengths: " + ", ".join(f"{q:.0f}" for q in np.quantile(lengths, (0, 0.25, 0.5, 0.75, 1))))

# %% In production: train on all data and predict for tomorrow. A list for a later day may differ.
model = sl.TwoStage(n_rounds=n_rounds).fit(data)
end = np.datetime64(int(data.time.max()), "us")
customer = data.users.values[0]
names = data.items.values if data.item_names is None else data.item_names
title = dict(zip(data.items.values, names, strict=True))
for days in (1, 30):
    day = str((end + np.timedelta64(days, "D")).astype("datetime64[s]"))
    shown = model.recommend([customer], at=day, cutoff=choice.cutoff, filter_seen=False)[customer]
    first = ", ".join(str(title[item]) for item in shown.items[:6])
    print(f"{customer} on {day[:10]}, {len(shown)} items, first {first}")
