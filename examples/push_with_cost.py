"""Push messages with a cost: a good item earns, a bad item costs, sending nothing is free.

    python examples/push_with_cost.py

Every Friday a store may push offers to its customers' phones. An item bought within the week earns 1; any
other item costs attention and, in the end, the permission to push. Most customers buy nothing in a given
week, so the hard part is to know when to send nothing. The cells (# %%) open as a notebook in most editors.
"""

# %% One week for validation, one week for the test. Customers who buy nothing in a week must count, too.
import warnings

import shortlist as sl
from shortlist.cutoff import ExpectedValue, FixedN

data = sl.load_dataset("sample")
split = sl.split.last_period(data, "7d")  # a week for validation, a week for the test
all_customers = data.users.values
print(f"{split.test.active_users.size} of {data.n_users} customers buy anything in the test week")

# %% Any ranker works; personal frequency is a strong one for groceries.
model = sl.PersonalFrequency().fit(split.train)
final = sl.PersonalFrequency().fit(split.train_valid)
candidates = model.recommend(N=20, filter_seen=False)


# %% What a policy earns: +1 for every item bought, -cost for every other item, over all customers.
def earned(lists: sl.RankedLists, truth: sl.Interactions, cost: float) -> float:
    users = sl.evaluate(lists, truth, users=all_customers).users
    hits, shown = users["hits"].sum(), users["length"].sum()
    return hits - cost * (shown - hits)


# %% The baseline sends the same number of items to all customers: for each cost the best N on validation.
def best_fixed(cost: float) -> FixedN:
    cutoffs = [FixedN(N=n) for n in range(21)]
    return max(cutoffs, key=lambda cut: earned(cut.apply(candidates), split.valid, cost))


# At a cost of 1 nothing is worth a push, so the warning that all lists are empty is expected here.
warnings.filterwarnings("ignore", "all .* lists of", sl.errors.DataWarning)
print(" cost  show if p >  pushed to  items  earned  fixed N earns")
for cost in (0.02, 0.1, 0.25, 1.0):
    cut = ExpectedValue(gain=1.0, cost=cost, n_candidates=20).fit(
        candidates, split.valid, history=split.train, users=all_customers
    )
    lists = final.recommend(cutoff=cut, filter_seen=False)
    baseline = best_fixed(cost)
    fixed = earned(baseline.apply(final.recommend(N=20, filter_seen=False)), split.test, cost)
    print(
        f"{cost:5.2f} {cost / (1 + cost):12.2f} {lists.cover_ratio:10.0%} {lists.items.size:6} "
        f"{earned(lists, split.test, cost):7.1f} {fixed:9.1f} (N = {baseline.N})"
    )

# %% The threshold is only as good as the probabilities. Predicted versus observed rates in the test week:
cut = ExpectedValue(gain=1.0, cost=0.1, n_candidates=20).fit(
    candidates, split.valid, history=split.train, users=all_customers
)
calibrated = cut.calibration_.apply(final.recommend(N=20, filter_seen=False), history=split.train_valid)
error = sl.evaluate(calibrated, split.test, users=all_customers).calibration_error
method = cut.calibration_.method_
print(f"calibration by {method}: predicted and observed rates differ by {error:.3f} on average")

# %% Fitted on customers who bought something, the same cutoff assumes that all customers do, and loses money.
biased = ExpectedValue(gain=1.0, cost=0.1, n_candidates=20).fit(candidates, split.valid, history=split.train)
lists = final.recommend(cutoff=biased, filter_seen=False)
print(f"fitted on buyers only: {lists.items.size} items pushed, {earned(lists, split.test, 0.1):.1f} earned")

# %% Empty lists have a reason, too.
lists = final.recommend(cutoff=cut, filter_seen=False)
shortest = next(one for one in lists if len(one) == 0)
longest = max(lists, key=len)
names = dict(zip(data.items.values, data.item_names, strict=True))
print(f"{shortest.user_id}: nothing ({shortest.reason})")
best = zip(longest.items[:4], longest.probabilities, strict=False)
first = ", ".join(f"{names[item]} {p:.0%}" for item, p in best)
print(f"{longest.user_id}: {len(longest)} items, first {first}")
