"""`shortlist token`: create an access token for the service."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shortlist.cli.screen import print_note, show_text


def token(
    file: Annotated[Path, Parameter(help="The token file; created if it does not exist.")],
    /,
    *,
    name: Annotated[str, Parameter(help="Who uses the token, such as shop.")],
    scope: Annotated[
        tuple[Literal["read", "events", "admin"], ...],
        Parameter(help="read: lists; events: send events; admin: change the model. Repeat for several."),
    ] = ("read",),
) -> None:
    """Create an access token for the service.

    The token is printed once, and only its hash is stored. Send it as "Authorization: Bearer …".

    For example:
      shortlist token tokens --name shop --scope read --scope events
      shortlist serve shop.shortlist --token_file tokens --host 0.0.0.0
    """
    from shortlist.serve.tokens import create_token

    secret = create_token(file, name, scope)
    print_note(f"added {name} with {', '.join(sorted(set(scope)))} to {file}; this token is not shown again:")
    show_text(secret)
