"""Next basket: what will this customer take on the next visit, and how many things?

    python examples/next_basket.py                    # the generated shop, seconds
    python examples/next_basket.py --dataset ta-feng  # a real one, minutes; fetched once

A list is made at a moment, from what had happened before it. Choices are made on each customer's last basket
but one; the last is looked at once. The cells (# %%) open as a notebook in most editors.
"""

# %% Three columns are enough. Every customer's last basket is the test, the one before it the validation.
import argparse

import numpy as np

import shortlist as sl

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--dataset", choices=["sample", "ta-feng"], default="sample")
name = parser.parse_args().dataset
data = sl.load_dataset(name)
split = sl.split.last_basket(data)
print(data)


# %% A ranker that has not seen the validation baskets, asked at the moment of each of them.
rounds = 40 if name == "sample" else 120  # few customers, few trees
before = sl.TwoStage(n_rounds=rounds).fit(split.train)
customers = split.valid.active_users
heads = before.heads(customers, at=split.valid.time[split.valid.indptr[customers]])

# %% Where to stop: deciders, a fixed N among them, are fitted on half of the customers, judged on the others.
choice = sl.choose_cutoff(heads, split.valid, split.train)
print(choice)
fixed = sl.cutoff.FixedN().fit(heads, split.valid, history=split.train)

# %% Judged once, on the last baskets, everybody counted; `at=split.test` asks when each of them happened.
after = sl.TwoStage(n_rounds=rounds).fit(split.train_valid)
customers = split.test.users.to_ids(split.test.active_users)
lists = {
    label: after.recommend(customers, at=split.test, cutoff=cut, filter_seen=False)
    for label, cut in ((f"top {fixed.N_}", fixed), ("chosen on validation", choice.cutoff))
}
for label, one in lists.items():
    report = sl.evaluate(one, split.test)
    print(f"{label:22} F1 {report.f1:.3f}, {report.mean('length'):.1f} items a list")
lengths = lists["chosen on validation"].lengths
print("lengths: " + ", ".join(f"{q:.0f}" for q in np.quantile(lengths, (0, 0.25, 0.5, 0.75, 1))))

# %% In production the moment is now: fit on everything, ask for tomorrow. Later, the list may be another.
model = sl.TwoStage(n_rounds=rounds).fit(data)
end = np.datetime64(int(data.time.max()), "us")
customer = data.users.values[0]
names = data.items.values if data.item_names is None else data.item_names
title = dict(zip(data.items.values, names, strict=True))
for days in (1, 30):
    moment = str((end + np.timedelta64(days, "D")).astype("datetime64[s]"))
    shown = model.recommend([customer], at=moment, cutoff=choice.cutoff, filter_seen=False)[customer]
    goods = ", ".join(str(title[item]) for item in shown.items[:6])
    print(f"{customer} on {moment[:10]}, {len(shown)} items, first {goods}")
