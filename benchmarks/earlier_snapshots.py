"""Cutoffs and groups of features at earlier snapshots, where there are more lists; for dynamic_lists.py."""

from functools import cached_property

import numpy as np
import polars as pl
from scipy.special import expit

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, cross_validate, default_cutoffs
from shortlist.cutoff import ExpectedF1, FixedN
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import evaluate, oracle, paired_test
from shortlist.models.two_stage.features import FEATURES
from shortlist.models.two_stage.two_stage import TwoStage

N_CANDIDATES = 40  # per user, for every cutoff
GROUPS = {
    "recent sales": ("sales_1d", "sales_3d", "sales_7d", "sales_14d", "sales_30d", "trend_3d", "trend_14d"),
    "own history": tuple(name for name in FEATURES if name.startswith("own_")),
    "neighbors": tuple(name for name in FEATURES if name.startswith("together_")),
    "transitions": tuple(name for name in FEATURES if name.startswith(("after_", "before_"))),
    "reverse transitions": tuple(name for name in FEATURES if name.startswith("before_")),
    "item-item score": ("ease",),
    "item statistics": (
        "sales",
        "repeat_rate",
        "repeat_gap",
        "item_age",
        "item_basket_size",
        "sales_per_buyer",
    ),
    "experience": tuple(name for name in FEATURES if "experience" in name),
    "user statistics": FEATURES[FEATURES.index("n_baskets") :],
}


class EarlierSnapshots:
    """Earlier snapshots of the same users: many more lists than in one validation or test set.

    Trees are trained on half of the users and rank the candidates of the other half; a cutoff is fitted on
    every other list and evaluated on the rest.
    """

    def __init__(self, train: Interactions, max_snapshots: int = 15_000) -> None:
        self.examples = TwoStage(negative_rate=1.0, n_snapshots=max_snapshots).compute_examples(train)
        users, target = self.examples.replay.layout.log.users, self.examples.snapshots.target
        rows = [users.item[users.baskets[b] : users.baskets[b + 1]] for b in target]
        rows_of = {"user_id": np.repeat(np.arange(target.size), self.examples.sizes.astype(int))}
        self.truth = Interactions.from_frame(pl.DataFrame({**rows_of, "item_id": np.concatenate(rows)}))

    @cached_property
    def whole(self) -> RankedLists:
        """Candidates ranked with all features."""
        return self.candidates(())

    def candidates(self, without: tuple[str, ...]) -> RankedLists:
        """Rank all candidates with trees that were trained on the other half of the users."""
        whole, rate = self.examples, TwoStage().negative_rate
        user, owner, n = whole.snapshots.user, whole.owner, whole.sizes.size
        kept = whole.labels | (np.random.default_rng(0).random(owner.size) < rate)
        odds, sizes = np.empty(owner.size), np.empty(n)
        for half in (0, 1):
            mine = user % 2 == half
            k, others = mine[owner] & kept, ~mine[owner]
            part = whole._replace(
                features=whole.features[k],
                labels=whole.labels[k],
                weight=np.where(whole.labels[k], 1.0, 1 / rate).astype(np.float32),
                user_features=whole.user_features[mine],
                sizes=whole.sizes[mine],
            )
            model = TwoStage(exclude_features=without).fit_from_examples(part)
            log_odds, expected = model.predict_examples(whole)
            odds[others], sizes[~mine] = log_odds[others], expected[~mine]
        counts = np.bincount(owner, minlength=n)
        starts = np.cumsum(counts) - counts
        order = np.lexsort((whole.items, -odds, owner))
        order = order[np.arange(order.size) - starts[owner[order]] < N_CANDIDATES]
        return RankedLists(
            users=sl.IdMap(pl.Series(np.arange(n))),
            item_ids=sl.IdMap(pl.Series(np.arange(whole.replay.history.n_items))),
            indptr=np.concatenate([[0], np.cumsum(np.minimum(counts, N_CANDIDATES))]),
            items=whole.items[order],
            scores=odds[order].astype(np.float32),
            probabilities=expit(odds[order]),
            expected_sizes=sizes,
        )

    def evaluate_cutoffs(self) -> dict[str, object]:
        """Evaluate the fixed N and expected F1; the test pairs the means of each user's lists."""
        lists, user = self.whole, self.examples.snapshots.user
        fixed = cross_validate(FixedN(n_candidates=N_CANDIDATES), lists, self.truth, None)
        n_lists = np.bincount(user)
        found: dict[str, object] = {"lists": user.size, "users": int((n_lists > 0).sum())}
        found["fixed N"], found["oracle"] = float(fixed.mean()), oracle(lists, self.truth).mean("f1")
        for size in ("history", "both"):
            dynamic = cross_validate(
                ExpectedF1(n_candidates=N_CANDIDATES, calibration="none", size=size), lists, self.truth, None
            )
            by_user = np.bincount(user, dynamic - fixed)[n_lists > 0] / n_lists[n_lists > 0]
            test = paired_test(by_user, np.zeros(by_user.size))
            found[f"expected F1, size from {size}"] = {
                "f1": float(dynamic.mean()),
                "difference_by_user": test.difference,
                "low": test.low,
                "high": test.high,
                "p": test.p_bootstrap,
            }
        print(f"  earlier snapshots: {found}", flush=True)
        return found

    def evaluate_selection(self, n_draws: int = 40) -> dict[str, float]:
        """Compute F1 on other lists when the cutoff is selected as in the library, or as the best one.

        A draw uses one list of every user for selection and another for evaluation. If users have one list
        each, half of them are used for selection.
        """
        ranked, user, rng = self.whole, self.examples.snapshots.user, np.random.default_rng(0)
        cutoffs = {name: one for name, one in default_cutoffs(N_CANDIDATES).items() if "features" not in name}
        found: dict[str, list[float]] = {"fixed N": [], "ours": [], "best": []}
        for _ in range(n_draws):
            order = rng.permutation(user.size)
            turn = np.argsort(np.argsort(user[order], kind="stable")) - np.searchsorted(
                np.sort(user), user[order]
            )  # 0, 1, … among the user's lists in this order
            some, others = order[turn == 0], order[turn == 1]
            if others.size < some.size / 2:
                some, others = order[::2], order[1::2]
            lists, new = ranked.take(np.sort(some)), ranked.take(np.sort(others))
            choice = choose_cutoff(lists, self.truth, None, cutoffs)
            best = max(choice.scores, key=lambda name: choice.scores[name])
            for how, name in (("fixed N", "fixed N"), ("ours", choice.name), ("best", best)):
                shown = cutoffs[name].clone().fit(lists, self.truth).apply(new)
                found[how].append(float(evaluate(shown, self.truth).values("f1")[np.sort(others)].mean()))
        means = {how: float(np.mean(values)) for how, values in found.items()}
        print(f"  cutoff selection: {means}", flush=True)
        return {"n_draws": n_draws, **means}

    def evaluate_ablation(self) -> dict[str, dict[str, float]]:
        """Evaluate the fixed N and expected F1, with predicted n, without a group of features."""
        found = {}
        for group, names in {"none": (), **GROUPS}.items():
            lists = self.candidates(names) if names else self.whole
            dynamic = cross_validate(
                ExpectedF1(n_candidates=N_CANDIDATES, calibration="none", size="history"),
                lists,
                self.truth,
                None,
            )
            fixed = cross_validate(FixedN(n_candidates=N_CANDIDATES), lists, self.truth, None)
            found[group] = {"fixed N": float(fixed.mean()), "dynamic": float(dynamic.mean())}
            print(f"  without {group}: {found[group]}", flush=True)
        return found
