"""Push messages with a price: a good one earns, a bad one costs, and silence is free.

    python examples/push_with_cost.py

Every Friday a shop may push offers to its customers' phones. An item bought within the week earns 1; one
that is not wanted costs: attention, then the permission to push. Most customers do not even come that week,
so most of the skill is in saying nothing. The cells (# %%) open as a notebook in most editors.
"""

# %% One week to choose on, one week to judge. Customers who buy nothing in a week must count, too.
import shortlist as sl
from shortlist.cutoff import ExpectedValue, FixedN, reliability

data = sl.load_dataset("sample")
split = sl.split.by_time(data, "2024-06-21", valid_cut="2024-06-14")
everybody = data.users.values
came = split.test.active_users.size
print(f"{came} of {data.n_users} customers buy anything in the test week")

# %% Any ranker will do; a personal counter is a strong one in a shop.
before = sl.PersonalFrequency().fit(split.train)
now = sl.PersonalFrequency().fit(split.train_valid)
heads = before.recommend(N=20, filter_seen=False)


# %% What a policy earns: +1 for every item bought, -cost for every other, over all customers.
def earned(lists: sl.RankedLists, truth: sl.Interactions, cost: float) -> float:
    users = sl.evaluate(lists, truth, users=everybody).users
    hits, shown = users["hits"].sum(), users["length"].sum()
    return hits - cost * (shown - hits)


# %% The rival sends everybody the same number of items: for each price the best number of the first week.
def best_fixed(cost: float) -> FixedN:
    every = [FixedN(N=n) for n in range(21)]
    return max(every, key=lambda cut: earned(cut.apply(heads), split.valid, cost))


print(" cost  show if p >  pushed to  items  earned  fixed N earns")
for cost in (0.02, 0.1, 0.25, 1.0):
    cut = ExpectedValue(gain=1.0, cost=cost, n_candidates=20).fit(
        heads, split.valid, history=split.train, asked=everybody
    )
    lists = now.recommend(cutoff=cut, filter_seen=False)
    rival = best_fixed(cost)
    fixed = earned(rival.apply(now.recommend(N=20, filter_seen=False)), split.test, cost)
    print(
        f"{cost:5.2f} {cost / (1 + cost):12.2f} {lists.cover_ratio:10.0%} {lists.items.size:6} "
        f"{earned(lists, split.test, cost):7.1f} {fixed:9.1f} (N = {rival.N})"
    )

# %% The threshold is only as good as the probabilities. Promised against observed, on the test week:
cut = ExpectedValue(gain=1.0, cost=0.1, n_candidates=20).fit(
    heads, split.valid, history=split.train, asked=everybody
)
promised = cut.calibration_.apply(now.recommend(N=20, filter_seen=False), history=split.train_valid)
table, error = reliability(promised, split.test, asked=everybody)
print(f"calibration by {cut.calibration_.method_}: promise and outcome differ by {error:.3f} on average")

# %% Fitted on those alone who did buy, the same rule believes that everybody comes, and pays for it.
rosy = ExpectedValue(gain=1.0, cost=0.1, n_candidates=20).fit(heads, split.valid, history=split.train)
lists = now.recommend(cutoff=rosy, filter_seen=False)
print(
    f"without the silent ones: {lists.items.size} items pushed, {earned(lists, split.test, 0.1):.1f} earned"
)

# %% Silence says why.
lists = now.recommend(cutoff=cut, filter_seen=False)
silent = next(one for one in lists if len(one) == 0)
loud = max(lists, key=len)
names = dict(zip(data.items.values, data.item_names, strict=True))
print(f"{silent.user_id}: nothing ({silent.reason})")
best = zip(loud.items[:4], loud.probabilities, strict=False)
goods = ", ".join(f"{names[item]} {p:.0%}" for item, p in best)
print(f"{loud.user_id}: {len(loud)} items, first {goods}")
