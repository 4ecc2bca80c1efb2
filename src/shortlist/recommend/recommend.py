"""recommend: a scorer and a decider in; out come ranked lists that say why they end."""

from typing import Any

from shortlist.cutoff.base import Cutoff
from shortlist.data.ranked_lists import RankedLists
from shortlist.recommend.batch import BatchRecommender
from shortlist.recommend.lists import empty_lists, stacked
from shortlist.recommend.request import Fallback, Wishes
from shortlist.recommend.scorer import Scorer


def recommend(
    scorer: Scorer,
    users: Any = None,
    *,
    N: int | None = None,
    cutoff: Cutoff | None = None,
    candidates: Any = None,
    filter_seen: bool | None = None,
    exclude: Any = None,
    min_items: int = 0,
    max_items: int | None = None,
    fallback: Fallback = "none",
    n_threads: int = 0,
) -> RankedLists:
    """Lists for user ids (None: everybody known), best item first, equal scores by item id.

    Without `N`, K decides: what lies above the user's boundary, or what `cutoff` keeps. `candidates` and
    `exclude` are item ids for all, or per user: a dictionary user_id → ids, or one list per user.
    `filter_seen` leaves out what the user took before; None does so unless the past shows that people take
    items again. `min_items` fills a short list up with the next best; `fallback` ("popular", or a callable
    from user_id to item ids) fills an empty one.
    """
    wishes = Wishes(
        N=N,
        cutoff=cutoff,
        filter_seen=filter_seen,
        min_items=min_items,
        max_items=max_items,
        fallback=fallback,
    )
    desk = BatchRecommender.of(scorer, users, wishes, candidates, exclude, n_threads)
    return stacked(list(desk.chunks()) or [empty_lists(desk.ids, scorer.items_, "top_n")])
