"""LlamaIndex: a node postprocessor that ends the list of retrieved nodes."""

from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from shortlist.adapters import prepare_cutoff


class CutPostprocessor(BaseNodePostprocessor):
    """Keep the nodes that a cutoff shows, best first; nodes without a score are dropped."""

    _show: Any = PrivateAttr()

    def __init__(self, cutoff: Any) -> None:
        super().__init__()
        self._show = prepare_cutoff(cutoff)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        scores = [float("nan") if node.score is None else node.score for node in nodes]
        return [nodes[position] for position in self._show(scores)]
