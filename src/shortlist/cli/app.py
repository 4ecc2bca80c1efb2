"""Which verbs there are, and how every one of them ends: a result, or one sentence and exit code 2."""

import os
import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from shortlist.cli.compare import compare
from shortlist.cli.datasets import datasets
from shortlist.cli.demo import demo
from shortlist.cli.environment import environment
from shortlist.cli.evaluate import evaluate
from shortlist.cli.fit import fit
from shortlist.cli.inspect import inspect
from shortlist.cli.params import whole_numbers
from shortlist.cli.recommend import recommend
from shortlist.cli.reproduce import reproduce
from shortlist.cli.screen import complain
from shortlist.cli.tune import tune
from shortlist.errors import ShortlistError

WRONG_USE = 2  # bad flags, bad data, a full disk: something the person at the keyboard can mend
OUR_FAULT = 70  # EX_SOFTWARE
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE


def version() -> str:
    """Asked only by --version: reading the metadata costs more than the rest of the help."""
    import shortlist

    return f"shortlist {shortlist.__version__}"


def build() -> App:
    """The parser; the verbs' files are light, what they need is imported when they run."""
    app = App(
        name="shortlist",
        help="Recommendations that know when to stop.\n\nStart here:\n  shortlist demo",
        help_format="plaintext",
        version=version,
        # flags are spelled as in Python and TOML; dashes are understood too
        default_parameter=Parameter(name_transform=lambda name: name, negative=()),
        suppress_keyboard_interrupt=False,
        config=(environment, whole_numbers),
    )
    for verb in (demo, datasets, fit, recommend, evaluate, compare, tune, reproduce, inspect):
        app.command(verb)
    app.register_install_completion_command(
        help="Let the shell complete verbs and flags; for bash, zsh, fish."
    )
    return app


# advice that the library gives in Python, such as user_id='name', as flags
KEYWORD = re.compile(
    r"\b(user_id|item_id|timestamp|weight|basket_id|item_name|time_format|separator|query|table|N)=(?=['\"\d])"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no traceback for anything a person can mend."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    try:
        build()(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of Rust code is no Exception
        code = ended(error)
        if code is None:
            raise
        return code
    return 0


def ended(error: BaseException) -> int | None:
    """The exit code of a failure, which is told in a sentence; None where a traceback is wanted."""
    if interrupted(error):
        return complain("stopped by Ctrl-C before it was done.", INTERRUPTED)
    if isinstance(error, CycloptsError | ShortlistError):
        return complain(KEYWORD.sub(r"--\1 ", str(error)), WRONG_USE)
    if isinstance(error, BrokenPipeError):
        # The reader has gone (`| head`): leave without a word, also when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    if isinstance(error, OSError):
        return complain(f"{error.filename or 'the operating system'}: {error.strerror or error}.", WRONG_USE)
    if isinstance(error, MemoryError):
        return complain("not enough memory; try fewer rows, n_factors or n_threads.", WRONG_USE)
    if os.environ.get("SHORTLIST_TRACEBACK"):
        return None
    sentence = f"a fault of ours, not yours: {type(error).__name__}: {error}"
    return complain(f"{sentence} (set SHORTLIST_TRACEBACK=1 to see where).", OUR_FAULT)


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: tidying up, or Rust code that calls back, may fail because of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt()" in str(error):
            return True
        error = error.__context__
    return False
