"""The command line in any environment: encodings, widths, closed or full output, no variables, no memory."""

import json
import os
import resource
import subprocess
import sys

import pytest

from shortlist.cli import screen

EVENTS = "user_id,item_id,timestamp\na,x,1\na,y,2\nb,x,1\nb,ü,3\n"
FIT = ("fit", "café.csv", "--model", "Popularity", "--quick", "--out", "model.shortlist")
KEEP = ("--no_filter_seen",)
KEPT = ("HOME", "PATH", "NUMBA_CACHE_DIR", "VIRTUAL_ENV", "SYSTEMROOT", "PYTHONPATH")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "café.csv").write_text(EVENTS, encoding="utf-8")
    return tmp_path


def run(folder, *words, stdout=subprocess.PIPE, preexec=None, **variables):
    """Run the command in an empty environment plus `variables`."""
    env = {name: os.environ[name] for name in KEPT if name in os.environ} | variables
    return subprocess.run(
        [sys.executable, "-m", "shortlist", *words],
        cwd=folder,
        env=env,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
        preexec_fn=preexec,
    )


ENVIRONMENTS = {
    "empty": {},
    "C locale without coercion": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "POSIX": {"LC_ALL": "POSIX"},
    "ascii output": {"PYTHONIOENCODING": "ascii"},
    "latin-1 output": {"PYTHONIOENCODING": "latin-1"},
    "no columns": {"COLUMNS": "0"},
    "two columns": {"COLUMNS": "2"},
    "another time zone": {"TZ": "Pacific/Kiritimati"},
    "hash seed": {"PYTHONHASHSEED": "1"},
    "unbuffered": {"PYTHONUNBUFFERED": "1"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_lists_are_the_same_in_every_environment(folder, name):
    variables = ENVIRONMENTS[name]
    done = run(folder, *FIT, **variables)
    assert done.returncode == 0, done.stderr
    shown = run(folder, "recommend", "model.shortlist", "--user", "b", "--N", "3", *KEEP, **variables)
    assert shown.returncode == 0, shown.stderr
    assert b"user b: 3 items" in shown.stdout
    printed = run(folder, "recommend", "model.shortlist", "--N", "3", "--json", *KEEP, **variables)
    lists = {row["user_id"]: row["items"] for row in json.loads(printed.stdout)}
    assert lists == {"a": ["x", "y", "ü"], "b": ["x", "y", "ü"]}


@pytest.mark.parametrize("columns", ["0", "1", "2", "7"])
def test_help_ends_on_a_narrow_terminal(folder, columns):
    done = run(folder, "fit", "--help", COLUMNS=columns)
    assert done.returncode == 0
    assert b"Usage: shortlist fit" in done.stdout


@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_full_output_is_one_sentence(folder, variables):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run(folder, "datasets", "list", stdout=full, **variables)
    assert done.returncode == 2
    assert done.stderr.decode().strip().endswith("No space left on device.")


def test_closed_output_writes_the_files(folder):
    done = run(folder, *FIT, preexec=lambda: os.close(1))
    assert done.returncode == 0, done.stderr
    assert (folder / "model.shortlist").is_file()
    assert run(folder, "inspect", "model.shortlist").returncode == 0


def test_marks_are_ascii_where_the_output_is(monkeypatch, capsys):
    monkeypatch.setattr(screen, "_is_utf8", lambda: False)
    screen.show_text("a – b … ✓ ü")
    screen.show_json({"name": "ü"})
    assert capsys.readouterr().out == 'a - b ... x ü\n{\n  "name": "\\u00fc"\n}\n'


def test_a_stalled_read_under_a_memory_limit_ends_with_a_sentence(folder):
    code = (
        "import time, sys; from shortlist.cli import screen\n"
        "screen.STALLED_SECONDS = 0.5\n"
        "with screen.watch_memory():\n"
        "    time.sleep(60)\n"
    )
    limit = 64 << 30

    def limit_memory():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        timeout=50,
        check=False,
        preexec_fn=limit_memory,
        cwd=folder,
    )
    assert done.returncode == 2
    assert b"not enough memory" in done.stderr


def test_without_a_memory_limit_nothing_is_watched(monkeypatch):
    monkeypatch.setattr(screen, "STALLED_SECONDS", 0.0)
    with screen.watch_memory():
        pass
