"""The command line in any environment: encodings, widths, closed or full output, no variables."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shortlist as sl
from shortlist.cli import output

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
    env = {name: value for name, value in env.items() if value is not None}
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
    "C.UTF-8": {"LC_ALL": "C.UTF-8"},
    "a locale that is not installed": {"LC_ALL": "xx_YY.UTF-8", "LANG": "xx_YY.UTF-8"},
    "decimal comma": {"LC_NUMERIC": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
    "Turkish": {"LANG": "tr_TR.UTF-8", "LANGUAGE": "tr"},
    "UTF-8 mode": {"PYTHONUTF8": "1"},
    "ascii output": {"PYTHONIOENCODING": "ascii"},
    "ascii output that may replace": {"PYTHONIOENCODING": "ascii:replace"},
    "latin-1 output": {"PYTHONIOENCODING": "latin-1"},
    "cp1252 output": {"PYTHONIOENCODING": "cp1252"},
    "utf-16 output": {"PYTHONIOENCODING": "utf-16"},
    "no columns": {"COLUMNS": "0"},
    "two columns": {"COLUMNS": "2"},
    "a million columns": {"COLUMNS": "1000000"},
    "columns that are no number": {"COLUMNS": "wide", "LINES": "-1"},
    "another time zone": {"TZ": "Pacific/Kiritimati"},
    "a time zone that does not exist": {"TZ": "Nowhere/Land"},
    "a time zone with a shift": {"TZ": "XYZ+13:45"},
    "hash seed": {"PYTHONHASHSEED": "1"},
    "another hash seed": {"PYTHONHASHSEED": "4294967295"},
    "unbuffered": {"PYTHONUNBUFFERED": "1"},
    "optimized": {"PYTHONOPTIMIZE": "2"},
    "development mode": {"PYTHONDEVMODE": "1"},
    "no bytecode": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"},
    "colors": {"FORCE_COLOR": "1", "TERM": "xterm-256color"},
    "a dumb terminal": {"TERM": "dumb", "NO_COLOR": "1"},
    "one thread": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    "many threads": {"OMP_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "1", "POLARS_MAX_THREADS": "3"},
}
PLACES = (
    "no home",
    "a home that cannot be written",
    "a compile cache that cannot be written",
    "umask",
    "user",
)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model, fitted in the environment of the tests, and the lists that it gives there."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "café.csv").write_text(EVENTS, encoding="utf-8")
    assert run(folder, *FIT).returncode == 0
    lists = read_lists(folder)
    assert lists == {"a": ["x", "y", "ü"], "b": ["x", "y", "ü"]}
    return folder, lists


def read_lists(folder, **options):
    """The lists that the command line prints as JSON."""
    done = run(folder, "recommend", "model.shortlist", "--N", "3", "--json", *KEEP, **options)
    assert done.returncode == 0, done.stderr
    encoding = "utf-16" if options.get("PYTHONIOENCODING") == "utf-16" else "utf-8"
    return {row["user_id"]: row["items"] for row in json.loads(done.stdout.decode(encoding))}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_lists_are_the_same_in_every_environment(fitted, name):
    folder, lists = fitted
    assert read_lists(folder, **ENVIRONMENTS[name]) == lists


@pytest.mark.parametrize("name", PLACES)
def test_lists_are_the_same_at_every_place(fitted, tmp_path, name):
    """Where nothing can be kept between two runs, or files are private, or the user is an ordinary one."""
    folder, lists = fitted
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    variables = {"HOME": None, "XDG_CACHE_HOME": None} if name == "no home" else {}
    if name == "a home that cannot be written":
        variables = {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none/cache"}
    if name == "a compile cache that cannot be written":
        variables = {"NUMBA_CACHE_DIR": str(closed)}

    def prepare():
        os.umask(0o777 if name == "umask" else 0o022)
        if name == "user" and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65_534)
            os.setuid(65_534)

    if name == "user" and os.geteuid() == 0:
        if not os.access(sys.executable, os.X_OK) or Path(sys.executable).resolve().is_relative_to("/root"):
            pytest.skip("the interpreter is in a folder of root")
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        variables = {"HOME": str(closed), "NUMBA_CACHE_DIR": None}
    assert read_lists(folder, preexec=prepare, **variables) == lists


@pytest.mark.parametrize("name", ["empty", "C locale without coercion", "POSIX", "latin-1 output"])
def test_files_with_other_names_are_read_and_lists_are_shown(folder, name):
    variables = ENVIRONMENTS[name]
    done = run(folder, *FIT, **variables)
    assert done.returncode == 0, done.stderr
    shown = run(folder, "recommend", "model.shortlist", "--user", "b", "--N", "3", *KEEP, **variables)
    assert shown.returncode == 0, shown.stderr
    assert b"user b: 3 items" in shown.stdout


def test_thirty_environments():
    assert len(ENVIRONMENTS) + len(PLACES) >= 30


@pytest.mark.parametrize("columns", ["0", "1", "2", "7"])
def test_help_ends_on_a_narrow_terminal(folder, columns):
    done = run(folder, "fit", "--help", COLUMNS=columns)
    assert done.returncode == 0
    assert b"Usage: shortlist fit" in done.stdout


@pytest.mark.resources
@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_full_output_is_one_sentence(folder, variables):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run(folder, "inspect", "Popularity", stdout=full, **variables)
    assert done.returncode == 2
    assert done.stderr.decode().strip().endswith("No space left on device.")


def test_closed_output_writes_the_files(folder):
    done = run(folder, *FIT, preexec=lambda: os.close(1))
    assert done.returncode == 0, done.stderr
    assert (folder / "model.shortlist").is_file()
    assert run(folder, "inspect", "model.shortlist").returncode == 0


def test_marks_are_ascii_where_the_output_is(monkeypatch, capsys):
    monkeypatch.setattr(output, "_is_utf8", lambda: False)
    output.show_text("a – b … ✓ ü")
    output.show_json({"name": "ü"})
    assert capsys.readouterr().out == 'a - b ... x ü\n{\n  "name": "\\u00fc"\n}\n'


def test_a_full_disk_for_the_report_does_not_lose_the_model(tmp_path, monkeypatch, capsys):
    from shortlist.cli import main
    from shortlist.reports import model_report

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "report.html")

    monkeypatch.setattr(model_report, "write_model_report", fail)
    path = tmp_path / "shop.shortlist"
    words = ["fit", "sample", "--model", "Popularity", "--out", str(path), "--test", str(tmp_path / "t.csv")]
    assert main([*words, "--report", str(tmp_path / "report.html")]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert len(sl.load_model(path).users_) == 300
