"""The parser of all commands, and how they end: with a result, or with one sentence and an exit code."""

import io
import os
import re
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, get_args

from cyclopts import (
    App,
    ArgumentCollection,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.config import Env

from shortlist.cli.flags import Shown
from shortlist.cli.output import print_error, print_note
from shortlist.core.options import list_options, nearest_name
from shortlist.data.read_options import ReadOptions, name_flags
from shortlist.errors import ConfigError, DataWarning, ShortlistError
from shortlist.text import bounded, printable, redact, redact_uri

INVALID_INPUT = 2  # flags, data, a full disk: the caller can fix it
INTERNAL_ERROR = 70  # EX_SOFTWARE
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE
MIN_WIDTH = 40  # columns
NO_MEMORY = (
    "cannot allocate memory",
    "error return without exception set",  # what CPython says if an allocation fails without a message
    "can't start new thread",
    "failed to map segment from shared object",
    "memory allocation of",
    "out of memory",
    "std::bad_alloc",
)
SECRET = re.compile(r"(?<=[?&])(?:[^=&]*=)([^&]{3,})")  # values of options in a URI

SETTABLE = ("model", "set", "seed", "config")  # by environment variables, beside the options of readers

# Commands are imported when they run, so `shortlist --help` shows these summaries.
COMMANDS = {
    "demo": "Train on a shop's purchases and compare dynamic list lengths with the best fixed N.",
    "check": "Show what is in a file before a model learns from it, and what is in doubt.",
    "fit": "Train a model, choose a cutoff on validation data, and save both.",
    "recommend": "Recommend lists from a saved model.",
    "cut": "Choose where the lists of any ranker or search engine end.",
    "allocate": "Write to whom it pays, and show what they are most likely to take.",
    "evaluate": "Evaluate lists from any source against what users did next.",
    "experiment": "Compare ways to make lists on live traffic; it may be looked at every day.",
    "serve": "Serve a model over HTTP, with a dashboard.",
    "service": "Create access tokens, activate and refit models, and delete users of a service.\n\n"
    "For example:\n  shortlist service refit shop.shortlist",
    "inspect": "Show what a saved model contains.",
}


def version() -> str:
    """Read the version only for --version, because reading metadata is slow."""
    import shortlist

    return f"shortlist {shortlist.__version__}"


def build(command: str | None = None) -> App:
    """Build the parser; `command` gets its full help, the others only their summary."""
    app = App(
        name="shortlist",
        help="Recommendations that know when to stop.\n\nStart here:\n  shortlist demo",
        help_format="plaintext",
        version=version,
        # flags are spelled as in Python and TOML; dashes are accepted too
        default_parameter=Parameter(name_transform=lambda name: name, negative=()),
        suppress_keyboard_interrupt=False,
        config=(apply_environment, check_whole_numbers),
    )
    for name, text in COMMANDS.items():
        target = f"shortlist.cli.{name}:{name}_command"
        has_help = name == command and name != "service"  # which has commands of its own, but no function
        app.command(target, name=name, help=None if has_help else text)
    app.register_install_completion_command(
        help="Install shell completion of commands and flags for bash, zsh or fish."
    )
    return app


def flags_of_command(tokens: Sequence[str]) -> list[str]:
    """The names of the flags of a command line's command; empty if it names no command."""
    app = build()
    _, apps, _ = app.parse_commands(tokens)
    if apps[-1].default_command is None:
        return []
    with app.app_stack(apps):
        arguments = apps[-1].assemble_argument_collection()
    return [name.removeprefix("--") for argument in arguments for name in argument.names if name[:2] == "--"]


def apply_environment(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Let SHORTLIST_USER_ID=customer set --user_id unless the flag is given; output paths are never set."""
    names = {f"--{name}" for name in (*list_options(ReadOptions, "flag"), *SETTABLE)}
    settable = ArgumentCollection(argument for argument in arguments if argument.name in names)  # type: ignore[no-untyped-call]
    Env("SHORTLIST_", command=False)(app, commands, settable)


def check_whole_numbers(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse 1.5 for an integer flag; the parser would round it."""
    for argument in arguments:
        types = {argument.hint, *get_args(argument.hint)}
        for token in argument.tokens if int in types and float not in types else ():
            try:
                whole = float(token.value).is_integer()
            except ValueError:  # not a number: the parser's own message is better
                continue
            if not whole:
                raise ConfigError(f"{argument.name} must be a whole number, got {token.value}; round it.")


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; invalid input never causes a traceback."""
    if argv is None:
        prepare_process()
    tokens = list(sys.argv[1:] if argv is None else argv)
    if tokens and tokens[-1] == "--help-all":
        tokens[-1], Shown.everything = "--help", True
    else:
        Shown.everything = False
    interrupts: list[int] = []
    try:
        with sane_width(), record_interrupts(interrupts):
            app = build(tokens[0] if tokens else None)
            with print_warnings():
                app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic in Rust code is not an Exception
        code = report_failure(KeyboardInterrupt() if interrupts else error, tokens)
        drop_output()
        return code
    return 0


def prepare_process() -> None:
    """Open missing standard streams, read arguments and file names as UTF-8, and never fail to print.

    A file that is opened while descriptor 1 is closed would receive what is printed. File names that are not
    decoded as UTF-8 cannot be passed to polars, so Python starts again in its UTF-8 mode.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", "-m", "shortlist", *sys.argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def sane_width() -> Iterator[None]:
    """Lay out help and tables for at least 40 columns: the parser's help never ends on two."""
    given = os.environ.get("COLUMNS")
    width = shutil.get_terminal_size().columns
    narrow = width < MIN_WIDTH or (given is not None and given.isdigit() and int(given) < MIN_WIDTH)
    if narrow:
        os.environ["COLUMNS"] = str(MIN_WIDTH if 0 < width < MIN_WIDTH else width)
    try:
        yield
    finally:
        if narrow and given is None:
            del os.environ["COLUMNS"]
        elif narrow:
            os.environ["COLUMNS"] = str(given)


@contextmanager
def record_interrupts(interrupts: list[int]) -> Iterator[None]:
    """Note every Ctrl-C: code in C or Rust may replace the KeyboardInterrupt by an error of its own."""

    def record(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def drop_output() -> None:
    """Forget output that cannot be written: Python would try again at exit and change the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print every DataWarning once, as one line on stderr, without the place in the code that issued it."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        usual, printed = warnings.showwarning, set()

        def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
            if issubclass(category, DataWarning):
                text = name_flags(" ".join(str(message).split()), ())
                if text not in printed:
                    print_note(f"warning: {text}")
                printed.add(text)
            else:
                usual(message, category, *place, **rest)

        warnings.showwarning = show
        yield


def report_failure(error: BaseException, tokens: Sequence[str] = ()) -> int:
    """Print a failure in one sentence, without the passwords in the arguments, and return its exit code."""
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED  # the reader of the pipe is closed (`| head`): exit silently
    names_parameter = isinstance(error, ShortlistError) and error.parameter is not None
    sentence, code = explain_failure(error, flags_of_command(tokens) if names_parameter and tokens else None)
    if code == INTERNAL_ERROR and os.environ.get("SHORTLIST_TRACEBACK"):
        trace = "".join(traceback.format_exception(error))
        sys.stderr.write(printable(redact(hide_arguments(trace, tokens)), keep="\n"))
        return code
    return print_error(hide_arguments(sentence, tokens), code)


def explain_failure(error: BaseException, flags: Collection[str] | None = None) -> tuple[str, int]:
    """One sentence about a failure, and the exit code; it names the flag if the command has it."""
    if is_interrupt(error):
        return "interrupted by Ctrl-C.", INTERRUPTED
    if is_out_of_memory(error):
        return (
            "not enough memory; use fewer rows, n_factors or threads, or a higher limit.",
            INVALID_INPUT,
        )
    if isinstance(error, ShortlistError):
        name = error.parameter
        is_flag = name is not None and (flags is None or name in flags) and f"--{name}" not in str(error)
        flag = f" (On the command line: --{name}.)" if is_flag else ""
        return f"{error}{flag}", INVALID_INPUT
    if isinstance(error, MissingArgumentError) and "MODEL" in str(error):
        hint = "write the file of the model first, as in shortlist recommend shop.shortlist --user u1 u2"
        return f"{error} If it follows --user, {hint}.", INVALID_INPUT
    if isinstance(error, UnknownOptionError) and (option := find_option(error)):
        return f"Unknown option: {error.token.keyword}. Did you mean {option}?", INVALID_INPUT
    if isinstance(error, UnusedCliTokensError):
        first = printable((error.unused_tokens or [""])[0])
        is_list = "recommend" in (error.command_chain or ())
        advice = f"for the lists of a user, write --user {first}" if is_list else "see --help"
        return f"unexpected argument {first!r}; {advice}.", INVALID_INPUT
    if isinstance(error, CycloptsError):
        return str(error), INVALID_INPUT
    if isinstance(error, OSError):
        return f"{error.filename or 'operating system'}: {error.strerror or error}.", INVALID_INPUT
    sentence = f"internal error: {type(error).__name__}: {bounded(str(error), 350)}"
    return f"{sentence} (set SHORTLIST_TRACEBACK=1 for the traceback).", INTERNAL_ERROR


def find_option(error: UnknownOptionError) -> str | None:
    """The option that an unknown one probably means."""
    arguments = (argument for argument in error.argument_collection if argument.parse)
    names = [name.removeprefix("--") for argument in arguments for name in argument.names]
    near = nearest_name((error.token.keyword or "").lstrip("-"), names)
    return f"--{near}" if near else None


def hide_arguments(text: str, tokens: Sequence[str]) -> str:
    """The text without the passwords of URIs among the arguments, however they are written."""
    for token in tokens:
        for value in (token, token.partition("=")[2]):
            shown = redact_uri(value)
            if shown != value:
                text = text.replace(value, shown).replace(repr(value)[1:-1], shown)
                for secret in SECRET.findall(value):  # a part alone, such as FILE of NAME=FILE
                    text = text.replace(secret, "…")
    return text


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused the error; cleanup code, or Rust code that calls Python, may fail after it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt()" in str(error):
            return True
        error = error.__context__
    return False


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory, or memory for another thread, ran out; libraries report it in their own classes."""
    while error is not None:
        text = "" if isinstance(error, ShortlistError) else str(error).lower()
        if isinstance(error, MemoryError) or any(sign in text for sign in NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False
