"""TwoStageState: what a fitted TwoStage knows."""

from dataclasses import dataclass

from shortlist.core.trees import Text, TreeEnsemble
from shortlist.data.history import History
from shortlist.models.contract import ModelState
from shortlist.models.two_stage.content import ItemContent
from shortlist.models.two_stage.snapshots import EventReplay


@dataclass(frozen=True, eq=False, kw_only=True)
class TwoStageState(ModelState):
    """The trained trees, and the history in a form that can be replayed."""

    replay: EventReplay
    ranker_texts: tuple[Text, ...]
    size_text: Text
    ranker: TreeEnsemble  # log-odds that the next basket contains the candidate
    size_trees: TreeEnsemble  # logarithm of the size of the next basket
    content: ItemContent | None = None


def resize_content(content: ItemContent | None, history: History) -> ItemContent | None:
    return None if content is None else content.resize(history.n_items)


def build_state(
    replay: EventReplay, texts: tuple[Text, ...], size_text: Text, content: ItemContent | None
) -> TwoStageState:
    return TwoStageState(
        history=replay.history,
        replay=replay,
        ranker_texts=texts,
        size_text=size_text,
        ranker=TreeEnsemble(*texts),
        size_trees=TreeEnsemble(size_text),
        content=content,
    )
