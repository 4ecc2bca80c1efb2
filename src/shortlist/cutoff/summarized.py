"""Summarized: how a cutoff and a calibration look in an interpreter and in a notebook."""

from dataclasses import dataclass, fields

from shortlist.core.estimator import Estimator
from shortlist.text import escape_html as escape

MAX_CHARS = 60  # of one parameter in a repr


@dataclass(kw_only=True, eq=False, repr=False)
class Summarized(Estimator):
    """An estimator whose repr shows the parameters that were set and, in one line, what `fit` learned."""

    def _summary(self) -> str:
        """What `fit` learned, in one line; empty before `fit`."""
        return ""

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self._changed().items())
        learned = self._summary()
        return f"{type(self).__name__}({params})" + (f" fitted: {learned}" if learned else "")

    def _repr_html_(self) -> str:
        rows = {**self._changed(), "fitted": self._summary() or "no"}.items()
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>{escape(type(self).__name__)}</caption>{cells}</table>"

    def _changed(self) -> dict[str, str]:
        """Parameters that differ from their default, as short text."""
        params = {one.name: (vars(self)[one.name], one.default) for one in fields(self)}
        texts = {name: repr(value) for name, (value, default) in params.items() if value != default}
        return {
            name: text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
            for name, text in texts.items()
        }
