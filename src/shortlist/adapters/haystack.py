"""Haystack: a component that ends the list of retrieved documents."""

from haystack import Document, component

from shortlist.adapters import prepare_cutoff


@component
class DocumentCutter:
    """Keep the documents that a cutoff shows, best first; a pipeline that is saved needs a file."""

    def __init__(self, cutoff: str) -> None:
        self.cutoff, self._show = cutoff, prepare_cutoff(cutoff)

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return the documents to show."""
        scores = [float("nan") if document.score is None else document.score for document in documents]
        return {"documents": [documents[position] for position in self._show(scores)]}
