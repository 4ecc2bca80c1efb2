"""RollingLinks: which items are bought together and after each other, as of any time."""

import numpy as np

from shortlist.core.ragged import read_only, starts
from shortlist.kernels.item_stats import EventLog, Rules
from shortlist.kernels.links import (
    Links,
    LinkTable,
    MergeScratch,
    NewPairs,
    PairKind,
    close_gaps,
    list_pairs,
    merge_links,
)
from shortlist.models.two_stage.rolling import Rolling

FIRST_BASKETS = 10  # baskets before the first solution
GROWTH = 1.05  # growth in baskets from one solution to the next
MAX_LINKS = 300  # per item and table; lighter pairs are forgotten


class RollingLinks(Rolling[Links]):
    """The heaviest links of each item after the last solution before a given time."""

    max_cached = 2

    def __init__(self, log: EventLog, n_items: int, rules: Rules) -> None:
        super().__init__(log, n_items, FIRST_BASKETS, GROWTH)
        window, decay = rules.transition_window, float(rules.decay)
        self.kinds = PairKind(0, decay, False), PairKind(window, decay, False), PairKind(window, decay, True)

    def _empty(self) -> Links:
        n = self.n_items
        none = LinkTable(
            read_only(np.zeros(n + 1, np.int64)),
            read_only(np.empty(0, np.int32)),
            read_only(np.empty(0, np.float32)),
            read_only(np.zeros(n)),
        )
        return Links(none, none, none)

    def _solve(self, number: int) -> Links:
        """Count on from the nearest cached solution, always in the same steps: links may be forgotten."""
        last = max((known for known in self._cache if known < number), default=0)
        found = self._cache[last] if last else self._empty()
        edges = [0, *self.sizes.tolist()]
        for step in range(last, number):
            positions = edges[step], edges[step + 1]
            found = Links(*(self._add(*each, positions) for each in zip(found, self.kinds, strict=True)))
        return found

    def _add(self, known: LinkTable, kind: PairKind, positions: tuple[int, int]) -> LinkTable:
        """The table with the pairs of more baskets."""
        n, none = self.n_items, np.empty(0, np.int32)
        room = np.zeros(n, np.int64)
        list_pairs(self.log, positions, kind, room, none, none.astype(np.float32))
        begin = starts(room)
        end, size = begin[:-1].copy(), int(begin[-1])
        new = NewPairs(begin[:-1], end, np.empty(size, np.int32), np.empty(size, np.float32))
        list_pairs(self.log, positions, kind, end, new.other, new.weight)
        first = starts(np.minimum(np.diff(known.starts) + end - begin[:-1], MAX_LINKS))
        size = int(first[-1])
        out = LinkTable(first, np.empty(size, np.int32), np.empty(size, np.float32), np.empty(n))
        scratch = MergeScratch(np.zeros(n, np.float32), np.empty(n, np.int32), np.empty(n, np.float32))
        kept = np.empty(n, np.int64)
        merge_links(known, new, MAX_LINKS, scratch, out, kept)
        size = close_gaps(first, kept, out.other, out.weight)
        return LinkTable(
            read_only(first), read_only(out.other[:size]), read_only(out.weight[:size]), read_only(out.total)
        )

    def _extend(self, solution: Links, more: int) -> Links:
        return Links(*(_extend_table(table, more) for table in solution))


def _extend_table(table: LinkTable, more: int) -> LinkTable:
    """The same links, followed by items without any."""
    if not more:
        return table
    return table._replace(
        starts=read_only(np.pad(table.starts, (0, more), mode="edge")),
        total=read_only(np.pad(table.total, (0, more))),
    )
