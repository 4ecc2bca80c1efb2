"""LangChain: a document compressor that ends the list of retrieved documents."""

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import PrivateAttr

from shortlist.adapters import prepare_cutoff


class CutCompressor(BaseDocumentCompressor):
    """Keep the documents that a cutoff shows, best first; their scores are in the metadata."""

    key: str = "score"
    _show: Any = PrivateAttr()

    def __init__(self, cutoff: Any, key: str = "score") -> None:
        super().__init__(key=key)
        self._show = prepare_cutoff(cutoff)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the documents to show."""
        scores = [document.metadata.get(self.key, float("nan")) for document in documents]
        return [documents[position] for position in self._show(scores)]
