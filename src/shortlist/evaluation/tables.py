"""Tables for people and papers: plain text, Markdown, LaTeX."""

from typing import Any

import polars as pl

LATEX = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"})


def shown(value: Any) -> str:
    """A cell: four decimals for fractions, nothing for the unknown."""
    if value is None or value != value:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def plain(table: pl.DataFrame) -> str:
    """Aligned columns: the first to the left, figures to the right."""
    cells = [table.columns, *([shown(value) for value in row] for row in table.rows())]
    widths = [max(len(row[k]) for row in cells) for k in range(table.width)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells
    ]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([lines[0], rule, *lines[1:]])


def markdown(table: pl.DataFrame) -> str:
    """A pipe table."""
    marks = ["---", *["---:"] * (table.width - 1)]
    rows = [table.columns, marks, *([shown(value) for value in row] for row in table.rows())]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)


def latex(table: pl.DataFrame) -> str:
    """A booktabs tabular."""
    align = "l" + "r" * (table.width - 1)

    def line(cells: list[str]) -> str:
        return " & ".join(cell.translate(LATEX) for cell in cells) + r" \\"

    body = [line([shown(value) for value in row]) for row in table.rows()]
    parts = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", line(table.columns), r"\midrule", *body]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}"])
