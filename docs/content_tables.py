"""Tables of content in results.md, from the JSON files of the benchmarks; see tables.py."""

from collections.abc import Callable, Iterator
from typing import Any

Found = dict[str, Any]
Rows = Iterator[tuple[str, ...]]


def content(found: Found) -> Rows:
    """F1 of TwoStage with and without the content of items."""
    yield "data", "F1 without", "F1 with", "p", "new items, without", "new items, with"
    for name, run in found["datasets"].items():
        without, with_content = run["without content"], run["with content"]
        yield (
            name,
            f"{without['f1']:.4f}",
            f"{with_content['f1']:.4f}",
            f"{run['p']:.3f}",
            f"{without['new items']['f1']:.3f}",
            f"{with_content['new items']['f1']:.3f}",
        )


def papers(found: Found, p_text: Callable[[float], str]) -> Rows:
    """New articles: recall, and F1 of a fixed N, of a threshold and of the expected F1."""
    yield "model", "draws", "recall@100", "best fixed N", "threshold", "ExpectedF1", "gain", "p"
    for name, run in found["models"].items():
        mean, sd, n = run["mean"], run["sd"], len(run["draws"]["recall"])

        def cell(key: str, digits: int, mean: Any = mean, sd: Any = sd, n: int = n) -> str:
            return f"{mean[key]:.{digits}f}" + (f" ± {sd[key]:.{digits}f}" if n > 1 else "")

        f1 = (cell(key, 4) for key in ("fixed", "threshold", "expected"))
        yield name, str(n), cell("recall", 3), *f1, f"{mean['gain']:+.1%}", p_text(run["p"])
