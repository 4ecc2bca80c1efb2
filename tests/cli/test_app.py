"""How commands end: exit codes, one sentence on stderr, no traceback."""

import json
import os
import signal
import subprocess
import sys

import pytest

from shortlist.cli import app, main
from shortlist.errors import DataError, UnknownIdError

SHORTLIST = [sys.executable, "-m", "shortlist"]


class PanicError(BaseException):
    """As Rust code behind Python raises it: not an Exception."""


@pytest.fixture
def failing(monkeypatch):
    """Make the `demo` verb raise what the test wants."""

    def install(error):
        class Parser:
            def __call__(self, *_, **__):
                raise error

        monkeypatch.setattr(app, "build", Parser)

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
        (DataError("events.csv has no column user_id;\nname it."), 2, "has no column user_id; name it."),
        (UnknownIdError("unknown id 'x'"), 2, "unknown id 'x'"),
        (PermissionError(13, "Permission denied", "out.csv"), 2, "out.csv: Permission denied."),
        (OSError(28, "No space left on device"), 2, "No space left on device."),
        (MemoryError(), 2, "not enough memory"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
        (PanicError("value: KeyboardInterrupt(), …"), 130, "stopped by Ctrl-C"),
        (PanicError("index out of bounds"), 70, "PanicError: index out of bounds"),
        (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
    ],
)
def test_errors_end_in_one_sentence(failing, capsys, monkeypatch, error, code, words):
    monkeypatch.delenv("SHORTLIST_TRACEBACK", raising=False)
    failing(error)
    assert main([]) == code
    assert words in one_sentence(capsys)


def test_ctrl_c_is_seen_behind_what_it_broke(failing, capsys):
    error = DataError("cannot write model: Bad file descriptor")
    error.__context__ = OSError(9, "Bad file descriptor")
    error.__context__.__context__ = KeyboardInterrupt()
    failing(error)
    assert main([]) == 130
    assert "stopped by Ctrl-C" in one_sentence(capsys)


def test_our_own_faults_can_be_looked_into(failing, monkeypatch):
    monkeypatch.setenv("SHORTLIST_TRACEBACK", "1")
    failing(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main([])


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["dmo"], 'Did you mean "demo"?'),
        (["datasets", "lst"], 'Did you mean "list"?'),
        (["datasets", "list", "--jsn"], "Did you mean --json?"),
        (["demo", "surplus"], "surplus"),
    ],
)
def test_wrong_use_suggests_the_right_one(capsys, tokens, words):
    assert main(tokens) == 2
    assert words in one_sentence(capsys)


def test_help_loads_nothing_heavy():
    probe = (
        "import sys; from shortlist.cli import main; main(['--help']); "
        "heavy = {'numba', 'scipy', 'polars', 'numpy', 'pydantic'} & set(sys.modules); "
        "sys.stderr.write(' '.join(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "Usage: shortlist COMMAND" in done.stdout
    assert done.stderr == ""


def test_version(capsys):
    import shortlist

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"shortlist {shortlist.__version__}"


def test_the_shell_can_be_taught_to_complete(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--install-completion", "--shell", "bash"]) == 0
    script = tmp_path / ".local/share/bash-completion/completions/shortlist"
    probe = (
        f"source {script}; COMP_WORDS=(shortlist fit --n_f); COMP_CWORD=2; _shortlist; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--n_factors"]


def test_closed_pipe_is_quiet():
    read, write = os.pipe()
    os.close(read)  # nobody will ever read
    done = subprocess.run(
        [*SHORTLIST, "datasets", "list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
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
         "app.build = Parser\nsys.exit(app.main([]))"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "stopped by Ctrl-C" in err
    assert "Traceback" not in err


def test_json_never_holds_nan(capsys):
    import numpy as np

    from shortlist.cli.screen import show_json

    show_json({"a": float("nan"), "b": [np.float32(0.5), np.int64(3)], "c": float("inf"), 4: "ü"})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [0.5, 3], "c": None, "4": "ü"}
