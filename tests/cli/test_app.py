"""How commands end: exit codes, one sentence on stderr, no traceback."""

import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from cyclopts import App

from shortlist.cli import app, main
from shortlist.cli.app import COMMANDS, explain_failure, flags_of_command
from shortlist.errors import ConfigError, DataError, UnknownIdError
from tests.test_text import URIS

SHORTLIST = [sys.executable, "-m", "shortlist"]


class PanicError(BaseException):
    """Like a panic in Rust code: not an Exception."""


@pytest.fixture
def failing(monkeypatch):
    """Make the parser raise a given error."""

    def install(error):
        class Parser:
            def __call__(self, *_, **__):
                raise error

        monkeypatch.setattr(app, "build", lambda *_: Parser())

    return install


def one_sentence(capsys) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("shortlist: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (DataError("events.csv has no column user_id;\nname it."), 2, "has no column user_id;\\nname it."),
        (UnknownIdError("unknown id 'x'"), 2, "unknown id 'x'"),
        (ConfigError("N must be at least 1, got 0.", parameter="N"), 2, "got 0. (On the command line: --N.)"),
        (PermissionError(13, "Permission denied", "out.csv"), 2, "out.csv: Permission denied."),
        (OSError(28, "No space left on device"), 2, "No space left on device."),
        (MemoryError(), 2, "not enough memory"),
        (KeyboardInterrupt(), 130, "interrupted by Ctrl-C"),
        (PanicError("value: KeyboardInterrupt(), …"), 130, "interrupted by Ctrl-C"),
        (PanicError("index out of bounds"), 70, "PanicError: index out of bounds"),
        (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
    ],
)
def test_errors_end_in_one_sentence(failing, capsys, monkeypatch, error, code, words):
    monkeypatch.delenv("SHORTLIST_TRACEBACK", raising=False)
    failing(error)
    assert main([]) == code
    assert words in one_sentence(capsys)


def test_ctrl_c_is_recognized_behind_later_errors(failing, capsys):
    error = DataError("cannot write model: Bad file descriptor")
    error.__context__ = OSError(9, "Bad file descriptor")
    error.__context__.__context__ = KeyboardInterrupt()
    failing(error)
    assert main([]) == 130
    assert "interrupted by Ctrl-C" in one_sentence(capsys)


def test_internal_errors_can_show_a_traceback(failing, monkeypatch, capsys):
    monkeypatch.setenv("SHORTLIST_TRACEBACK", "1")
    failing(ZeroDivisionError("postgresql://me:hunter 2@host/db\x1b[31m"))
    assert main(["postgresql://me:hunter 2@host/db"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "ZeroDivisionError: postgresql://…\\x1b[31m" in err
    assert "hunter" not in err


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        ImportError("libfoo.so: failed to map segment from shared object"),
        PanicError("memory allocation of 8589934592 bytes failed"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_exhausted_memory_is_one_sentence(failing, capsys, error):
    failing(error)
    assert main([]) == 2
    assert "not enough memory" in one_sentence(capsys)


def test_long_errors_are_bounded(failing, capsys):
    for error in (DataError("x" * 9000 + "; advice."), OSError(2, "y" * 9000), ZeroDivisionError("z" * 9000)):
        failing(error)
        main([])
        assert len(one_sentence(capsys)) <= 500 + len("shortlist: \n")


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("make", [ValueError, lambda text: OSError(2, "No such file", text), KeyError])
def test_no_error_shows_the_password_of_an_argument(failing, capsys, monkeypatch, uri, make):
    monkeypatch.delenv("SHORTLIST_TRACEBACK", raising=False)
    failing(make(uri))
    for tokens in ([uri], ["fit", f"--x={uri}"]):
        main(tokens)
        assert "ter2" not in one_sentence(capsys)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["dmo"], 'Did you mean "demo"?'),
        (["service", "tokn"], 'Did you mean "token"?'),
        (["inspect", "Popularity", "--jsn"], "Did you mean --json?"),
        (["recommend", "m", "--n", "10"], "Unknown option: --n. Did you mean --N?"),
        (["recommend", "m", "u1"], "unexpected argument 'u1'; for the lists of a user, write --user u1."),
        (["demo", "surplus"], "unexpected argument 'surplus'; see --help."),
    ],
)
def test_typos_get_a_suggestion(capsys, tokens, words):
    assert main(tokens) == 2
    assert words in one_sentence(capsys)


def test_help_loads_nothing_heavy():
    probe = (
        "import sys; from shortlist.cli import main; main(['--help']); "
        "heavy = {'numba', 'scipy', 'polars', 'numpy'} & set(sys.modules); "
        "sys.stderr.write(' '.join(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "Usage: shortlist COMMAND" in done.stdout
    assert done.stderr == ""


def test_version(capsys):
    import shortlist

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"shortlist {shortlist.__version__}"


def test_shell_completion_can_be_installed(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--install-completion", "--shell", "bash"]) == 0
    script = tmp_path / ".local/share/bash-completion/completions/shortlist"
    probe = (
        f"source {script}; COMP_WORDS=(shortlist fit --hor); COMP_CWORD=2; _shortlist; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--horizon"]


def test_closed_pipe_is_quiet():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*SHORTLIST, "inspect", "Popularity"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


def test_ctrl_c_ends_with_130():
    started = subprocess.Popen(
        [sys.executable, "-c", "import sys, time\nfrom shortlist.cli import app\n"
         "class Parser:\n"
         "    def __call__(self, *_, **__):\n"
         "        print('ready', flush=True); time.sleep(60)\n"
         "app.build = lambda *_: Parser()\nsys.exit(app.run_command([]))"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "interrupted by Ctrl-C" in err
    assert "Traceback" not in err


def test_json_never_contains_nan(capsys):
    import numpy as np

    from shortlist.cli.output import show_json

    show_json({"a": float("nan"), "b": [np.float32(0.5), np.int64(3)], "c": float("inf"), 4: "ü"})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [0.5, 3], "c": None, "4": "ü"}


@pytest.mark.parametrize("command", app.COMMANDS)
def test_summary_of_a_command_is_the_first_line_of_its_help(capsys, command):
    assert main([command, "--help"]) == 0
    _, _, rest = capsys.readouterr().out.partition("\n\n")
    assert " ".join(rest.split("\n\n")[0].split()) == app.COMMANDS[command].partition("\n\n")[0]


@pytest.mark.parametrize("command", app.COMMANDS)
def test_help_fits_80_columns_without_breaking_lines_twice(command):
    module = importlib.import_module(f"shortlist.cli.{command}")
    function = getattr(module, f"{command}_command")
    is_group = isinstance(function, App)
    functions = [each.default_command for each in function.subapps] if is_group else [function]
    for each in functions:
        if each is None:  # --help and --version
            continue
        description = inspect.cleandoc(each.__doc__).partition("\n\nParameters\n")[0]  # flags: laid out anew
        paragraphs = [text.splitlines() for text in description.split("\n\n")]
        assert [line for lines in paragraphs if len(lines) > 1 for line in lines if len(line) > 79] == []


def test_a_flag_that_the_sentence_names_is_not_named_again():
    told = ConfigError("pass its encoding, such as --encoding cp1252.", parameter="encoding")
    assert explain_failure(told)[0] == "pass its encoding, such as --encoding cp1252."
    untold = ConfigError("pass its encoding.", parameter="encoding")
    assert explain_failure(untold)[0] == "pass its encoding. (On the command line: --encoding.)"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_at_most_20_usual_flags_and_help_all_the_rest(command, capsys):
    def shown(flag):
        assert main([command, flag]) == 0
        return set(re.findall(r"^│ [* ]*(--\w+)", capsys.readouterr().out, re.MULTILINE))

    usual, everything = shown("--help"), shown("--help-all")
    assert len(usual) <= 20, usual
    assert usual <= everything
    assert everything >= {f"--{name}" for name in flags_of_command([command])} - {"--no_filter_seen"}
