"""`shortlist check`: what is in the data before a model learns from it."""

from dataclasses import replace
from pathlib import Path

import shortlist as sl
from shortlist.cli.arguments import BY_NAME, Reading, Source, read_source
from shortlist.cli.output import Json, print_note, show_json, show_text
from shortlist.core.files import check_writable, write_text
from shortlist.data.read_options import name_flags


def check_command(
    source: Source,
    /,
    *,
    report: Path | None = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Show what is in a file before a model learns from it, and what is in doubt.

    Prints which columns were used, what was recognized and dropped, counts, and
    a warning for everything that is probably wrong, with the flag that settles
    it. The same flags work in shortlist fit.

    For example:
      shortlist check orders.csv
      shortlist check events.ndjson --where "event = 'purchase'"
      shortlist check orders.csv --report check.html

    Parameters
    ----------
    report
        Write an HTML page with pictures to this file.
    """
    check_writable(report)
    check = sl.check_data(read_source(source, reading, quiet=True))
    notes, doubts = (
        [name_flags(text, vars(reading)) for text in part] for part in (check.notes, check.doubts)
    )
    check = replace(check, notes=tuple(notes), doubts=tuple(doubts))
    if report is not None:
        from shortlist.data.profile import render_page

        write_text(report, render_page(check, Path(source).name))
        print_note(f"report written to {report}")
    if json:
        return show_json(check.to_dict())
    return show_text(f"{check.columns}\n{check}" if check.columns else str(check))
