"""The candidates of a request, and their features, block by block."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from shortlist.core.ragged import ItemSets, read_only
from shortlist.core.threads import thread_count
from shortlist.kernels.candidates import GivenCandidates
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.snapshots import Snapshots
from shortlist.models.two_stage.features import PROPOSED, Block, compute_features
from shortlist.models.two_stage.snapshots import EventReplay
from shortlist.recommend.request import RecommendRequest
from shortlist.types import Longs


def compute_blocks(
    request: RecommendRequest[Any], candidates: ItemSets | None
) -> tuple[Longs, Iterator[Block]]:
    """(order, blocks): snapshot number k is that of user order[k] of the request."""
    replay: EventReplay = request.state.replay
    visible, quantities = request.users, replay.layout.quantities
    at = _prediction_times(request)
    order = np.argsort(at, kind="stable")
    users, given = replay.layout.log.users, PROPOSED
    if request.is_session:
        visible, users = request.rows, replay.session_log(request.history, at)
        quantities = replay.session_quantities(request.history, users.time)
    snapshots = Snapshots(visible[order], at[order], np.full(at.size, -1, np.int64))
    if candidates is not None:
        sets = candidates.take(order)
        given = GivenCandidates(read_only(sets.indptr), read_only(sets.items), True)
    n_threads = thread_count(request.n_threads)
    content = request.state.content
    return order, compute_features(replay, users, snapshots, given, n_threads, quantities, content)


def _prediction_times(request: RecommendRequest[Any]) -> Longs:
    """(n,) microseconds; by default just after the last event, a session's own events included.

    Without times, it is the day after the user's last basket.
    """
    known = request.history
    if not request.state.history.has_times:
        return np.diff(known.user_baskets) * DAY
    if request.timestamps is not None:
        return request.timestamps
    at: Longs = np.full(len(request), request.state.history.end_time)
    if request.is_session and known.time is not None and known.n_rows:
        last = known.time[np.maximum(known.indptr[1:] - 1, 0)] + 1
        at = np.maximum(at, np.where(np.diff(known.indptr) > 0, last, at))
    return at
