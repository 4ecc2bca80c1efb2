"""Random flags, damaged files, full disks, interrupts: a result or one sentence, and no damaged output.

Bounded and seeded. SHORTLIST_FUZZ=20 runs twenty times as many cases, SHORTLIST_FUZZ_SEED=3 other ones.
"""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.app import build

TIMES = int(os.environ.get("SHORTLIST_FUZZ", "1"))
SEED = int(os.environ.get("SHORTLIST_FUZZ_SEED", "0"))
GOOD, INVALID_INPUT, INTERRUPTED = 0, 2, 130
TINY = ["--set", "n_factors=8"]
SMALL = ["--set", "n_epochs=1", *TINY]
MODELS = ("DKHRM", "DKBPRMF", "HRM", "LogMF", "PersonalFrequency", "Popularity")
VALUES = (
    "", " ", "-", "--", "-1", "0", "1", "2", "3", "0.5", "nan", "inf", "-inf", "1e309", "1e-320", "٣", "true",
    "null", "[]", "{}", "=", "a=b", "a=", "=b", "é\u202e", "u1", "i2", ".", "..", "/", "/nowhere/x",
    "/dev/null", "events.csv", "model", "lists.csv", "*", "**/*", "[", "%", "x" * 300, "sqlite:///events.csv",
    "postgresql://nobody@localhost:1/x", "http://x", "uniform", "auto", "none", "popular", "random", "tpe",
)  # fmt: skip
SLOW = ("n_epochs", "trials", "jobs", "folds", "seeds")  # large values are valid, but slow
COMMANDS = ("fit", "recommend", "evaluate", "inspect")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Valid events, lists, models and parameters; tests damage copies."""
    folder = tmp_path_factory.mktemp("originals")
    rng = random.Random(7)
    rows = [
        (f"u{user}", f"i{rng.randrange(12)}", day * 86_400 + user)
        for user in range(14)
        for day in range(4)
        for _ in range(3)
    ]
    events = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row").unique()
    events.write_csv(folder / "events.csv")
    events.write_parquet(folder / "events.parquet")
    events.write_ndjson(folder / "events.jsonl")
    (folder / "many").mkdir()
    for part in range(2):
        events.filter(pl.int_range(pl.len()) % 2 == part).write_parquet(folder / "many" / f"{part}.parquet")
    (folder / "tuned.toml").write_text('model = "DKBPRMF"\n\n[params]\nn_factors = 8\nn_epochs = 1\n')
    (folder / "new.txt").write_text("i1\ni2\n")
    here = Path.cwd()
    os.chdir(folder)
    try:
        for words in (
            ["fit", "events.csv", "--out", "model", "--test", "held.parquet", "--model", "DKBPRMF", *SMALL],
            ["fit", "events.csv", "--out", "counted", "--model", "PersonalFrequency"],
            *(["recommend", "model", "--out", f"lists.{ending}"] for ending in ("parquet", "csv", "jsonl")),
        ):
            assert main(words) == GOOD
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def workdir(originals, tmp_path, monkeypatch):
    """A fresh copy of all files as the working directory, without a network."""
    shutil.copytree(originals, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SHORTLIST_TRACEBACK", raising=False)
    return tmp_path / "w"


def restore(originals: Path) -> None:
    """Restore all files in the working directory."""
    for path in Path().iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(originals, Path(), dirs_exist_ok=True)


def run(words: list[str], capsys, codes=(GOOD, INVALID_INPUT)) -> int:
    """Run a command: a documented exit code, one sentence if it failed, no traceback, no temporary files."""
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    message = f"{words} ended with {code}: {err[-600:]}"
    assert code in codes, message
    assert "Traceback" not in out + err, message
    errors = [line for line in err.splitlines() if line.startswith("shortlist: ")]
    assert len(errors) == (code != GOOD), message
    if code != GOOD:
        assert err.splitlines()[-1] == errors[0], message
    if code == GOOD and "--json" in words and not {"--help", "-h", "--version"} & set(words):
        json.loads(out)
    left = [str(path) for path in Path().rglob(".*") if path.name not in (".", "..")]
    if code == INTERRUPTED:  # the file may be created just before the interrupt; the next writer removes it
        left = [name for name in left if not name.endswith(".tmp")]
    assert left == [], f"{message}: left behind {left}"
    return code


def contents(path: str) -> dict[str, bytes]:
    """Every file at a path, by name."""
    root = Path(path)
    files = sorted(root.rglob("*")) if root.is_dir() else [root]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


# ------------------------------------------------------------------ damaged files
TEMPLATES = [
    ("fit {events} --model {model} --out out", ("events.csv", "events.parquet", "events.jsonl", "many")),
    ("fit {events} --model {model} --out model --quick --json", ("events.csv", "events.parquet", "many")),
    ("fit events.csv --config {events} --out out --quick", ("tuned.toml",)),
    ("recommend {events} --out lists.csv", ("model", "counted")),
    ("recommend {events} --user u1 --json", ("model", "counted")),
    ("recommend {events} --out out.parquet --N 3", ("model", "counted")),
    ("recommend model --N 2 --candidates {events}", ("new.txt",)),
    ("inspect {events} --json", ("model", "counted")),
    ("evaluate {events} --truth held.parquet --json", ("lists.parquet", "lists.csv", "lists.jsonl")),
    (
        "evaluate lists.csv --truth {events} --history events.csv",
        ("held.parquet", "events.csv", "events.jsonl"),
    ),
    ("evaluate a={events} lists.csv --truth held.parquet --out out.md", ("lists.parquet", "lists.jsonl")),
    ("fit {events} --model PersonalFrequency --trials 2 --out out", ("events.csv", "many")),
]


def flip_bits(body: bytes, rng: random.Random) -> bytes:
    found = bytearray(body)
    for _ in range(rng.choice([1, 1, 3, 30])):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def insert_bytes(body: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + rng.randbytes(rng.choice([1, 4, 60])) + body[at:]


def drop_bytes(body: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(body))
    return body[:at] + body[at + rng.choice([1, 8, 200]) :]


def shuffle_lines(body: bytes, rng: random.Random) -> bytes:
    lines = body.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines[: rng.randrange(len(lines) + 1)])


def replace_value(body: bytes, rng: random.Random) -> bytes:
    words = [b"", b"null", b"-1", b"1e400", b"9" * 30, b'"', b",,,,", b"{}", b"\xff\xfe", b"\x00", b"NaN"]
    cell = rng.choice(body.replace(b",", b"\n").split(b"\n")) or b"\n"
    return body.replace(cell, rng.choice(words))


def swap_file(_: bytes, rng: random.Random) -> bytes:
    return rng.choice([file for file in sorted(Path().rglob("*")) if file.is_file()]).read_bytes()


DAMAGES = {
    "cut": lambda body, rng: body[: rng.randrange(len(body) + 1)],
    "flip": flip_bits,
    "noise": lambda _, rng: rng.randbytes(rng.choice([1, 7, 100, 4000])),
    "insert": insert_bytes,
    "drop": drop_bytes,
    "empty": lambda *_: b"",
    "shuffle": shuffle_lines,
    "value": replace_value,
    "swap": swap_file,
    "folder": None,
    "missing": None,
}


def damage(path: Path, rng: random.Random) -> str:
    """Damage one file at or below the path; returns what was done."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]
    file, how = rng.choice(files), rng.choice(list(DAMAGES))
    body = file.read_bytes() if DAMAGES[how] is None else DAMAGES[how](file.read_bytes(), rng)
    file.unlink()
    if how == "folder":
        file.mkdir()
    elif how != "missing":
        file.write_bytes(body)
    return f"{file}: {how}"


@pytest.mark.fuzz
def test_damaged_files(originals, workdir, capsys):
    rng = random.Random(SEED)
    failed = 0
    for number in range(80 * TIMES):
        restore(originals)
        template, slots = rng.choice(TEMPLATES)
        slot = rng.choice(slots)
        done = damage(Path(slot), rng)
        words = template.format(events=slot, model=rng.choice(MODELS)).split()
        if (
            words[0] == "fit"
            and "--config" not in words
            and not {"Popularity", "PersonalFrequency"} & set(words)
        ):
            words += SMALL
        target = next((words[k + 1] for k, word in enumerate(words) if word == "--out"), "nothing")
        before = contents(target)
        try:
            code = run(words, capsys)
        except AssertionError as error:
            raise AssertionError(f"case {number} of seed {SEED}, {done}: {error}") from None
        failed += code != GOOD
        assert code == GOOD or contents(target) == before, f"case {number}: {done}: {words} touched {target}"
    assert failed > 20 * TIMES  # otherwise the damage was too small


# ------------------------------------------------------------------ random flags
def flags_of(command: str) -> list[str]:
    """Every flag of a command, as the parser knows it."""
    names = [
        name for one in build()[command].assemble_argument_collection() for name in one.parameter.name or ()
    ]
    return sorted({name for name in names if name.startswith("--")})


@pytest.mark.fuzz
def test_random_flags(originals, workdir, capsys):
    rng = random.Random(SEED + 1)
    flags = {command: flags_of(command) for command in COMMANDS}
    firsts = {
        "fit": ["events.csv"], "recommend": ["model"], "inspect": ["model"],
        "evaluate": ["lists.csv", "--truth", "held.parquet"],
    }  # fmt: skip
    for number in range(80 * TIMES):
        restore(originals)
        command = rng.choice(COMMANDS)
        words = [command, *firsts[command]]
        if command == "fit":
            words += rng.choice([SMALL, ["--model", "Popularity"], ["--model", "PersonalFrequency"]])
        if rng.random() < 0.2:
            words[1 : 1 + len(firsts[command])] = [rng.choice(VALUES) for _ in range(rng.randrange(4))]
        for _ in range(rng.choice([1, 1, 2, 3])):
            flag = rng.choice(flags[command]) if rng.random() < 0.95 else "--" + rng.choice(VALUES)
            words.append(flag)
            if rng.random() < 0.85:
                wild = flag.lstrip("-").replace("-", "_") not in SLOW
                words.append(rng.choice(VALUES if wild else ("-1", "0", "x", "", "nan", "1")))
        try:
            run(words, capsys)
        except AssertionError as error:
            raise AssertionError(f"case {number} of seed {SEED}: {error}") from None


@pytest.mark.fuzz
def test_random_words(workdir, capsys):
    rng = random.Random(SEED + 2)
    known = [*COMMANDS, "service", "forget", "--help", "--version", "-h", "--json"]
    for _ in range(60 * TIMES):
        run([rng.choice([*known, *VALUES]) for _ in range(rng.randrange(5))], capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["demo", "--report", "events.csv/report.html"],
        ["demo", "--report", "many"],
        ["fit", "events.csv", "--report", "many", "--model", "Popularity"],
        ["recommend", "model", "--out", "/dev/null"],
        ["recommend", "model", "--out", "many"],
        ["fit", "events.csv", "--out", "/dev/full"],
        ["fit", "events.csv", "--test", "many", "--model", "Popularity"],
        ["evaluate", "lists.csv", "--truth", "held.parquet", "--out", "model"],
    ],
)
def test_unwritable_paths(workdir, capsys, words, monkeypatch):
    monkeypatch.setattr(sl, "load_dataset", lambda name, **_: sl.read_interactions("events.csv"))
    before = contents(".")
    assert run(words, capsys) == INVALID_INPUT
    assert contents(".") == before
    assert Path("/dev/null").is_char_device()
    assert Path("/dev/full").is_char_device()


# ------------------------------------------------------------------ disks
COUNTED = ["--model", "PersonalFrequency"]
WRITERS = {
    "fit": (["fit", "events.csv", "--out", "model", "--test", "held.csv", *COUNTED], "model"),
    "report": (["fit", "events.csv", "--out", "fresh", "--report", "new.txt", *COUNTED], "new.txt"),
    "parquet": (["recommend", "model", "--out", "lists.parquet", "--N", "2"], "lists.parquet"),
    "csv": (["recommend", "model", "--out", "lists.csv", "--N", "3"], "lists.csv"),
    "jsonl": (["recommend", "model", "--out", "lists.jsonl", "--N", "4"], "lists.jsonl"),
    "evaluate": (["evaluate", "lists.csv", "--truth", "held.parquet", "--out", "new.txt"], "new.txt"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_full_disk(originals, workdir, capsys, name):
    """No file may exceed a few bytes; the error is the one of a full disk."""
    words, target = WRITERS[name]
    assert run(words, capsys) == GOOD  # compiles everything
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 10, 300, 3000):
        restore(originals)
        before = contents(target)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            code = run(words, capsys)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert code == INVALID_INPUT or limit >= 300
        assert code == GOOD or contents(target) == before


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("call", ["mkdir", "replace", "rename"])
def test_read_only_file_system(workdir, capsys, monkeypatch, name, call):
    """A folder that cannot be written to, or a file system that turns read-only during the run."""
    words, target = WRITERS[name]
    before = contents(target)

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(f"pathlib.Path.{call}", refuse)
    code = run(words, capsys)
    assert code == INVALID_INPUT or call == "rename"
    assert code == GOOD or contents(target) == before


# ------------------------------------------------------------------ Ctrl-C
def interrupt(number, frame):
    """Act like Ctrl-C during a command; after the command, an interrupt would end the test process.

    Not inside pydantic: its compiled code returns a result beside the interrupt.
    """
    handler = signal.getsignal(signal.SIGINT)
    if frame is not None and frame.f_globals.get("__name__", "").startswith("pydantic"):
        signal.setitimer(signal.ITIMER_PROF, 0.001)
    elif handler is not signal.default_int_handler:
        handler(number, frame)


@pytest.mark.fuzz
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an interrupt in C or Rust code
@pytest.mark.parametrize("name", WRITERS)
def test_interrupted_at_any_time(originals, workdir, capsys, name):
    """An alarm that acts like Ctrl-C, at times spread over the whole run.

    Times are those of the processor: on a busy machine, a run may take several times as long as another.
    """
    words, target = WRITERS[name]
    rng, stopped = random.Random(SEED + 3), 0
    before = contents(target)
    assert run(words, capsys) == GOOD
    after = contents(target)
    assert after != before
    restore(originals)
    began = time.process_time()
    assert run(words, capsys) == GOOD  # timed without imports and compilation
    seconds = time.process_time() - began
    usual = signal.signal(signal.SIGPROF, interrupt)
    try:
        for number in range(40 * TIMES):
            if number >= 4 * TIMES and stopped:
                break
            restore(originals)
            # An interrupt while a command ends can leave its handler behind; it would act after the next.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_PROF, rng.uniform(0.1, 1) * seconds)
            code = run(words, capsys, codes=(GOOD, INTERRUPTED))
            signal.setitimer(signal.ITIMER_PROF, 0)
            stopped += code == INTERRUPTED
            assert contents(target) == after or (code == INTERRUPTED and contents(target) == before)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, usual)
    assert stopped


@pytest.mark.parametrize("after", ["validating", "lists"])
def test_ctrl_c_in_another_process(workdir, after):
    """A signal to a separate process, during training and during writing."""
    many = [
        "fit",
        "events.csv",
        "--model",
        "DKBPRMF",
        "--set",
        "n_epochs=1000000",
        "tol=0",
        "patience=1000000",
        "--out",
        "model",
    ]
    code = (
        "import sys, pathlib, shortlist.cli as cli\n"
        "def slow(temporary, target):\n"
        "    import time; print('lists', file=sys.stderr, flush=True); time.sleep(30)\n"
        "pathlib.Path.replace = slow\n"
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    words = many if after == "validating" else ["recommend", "model", "--out", "lists.csv"]
    target = "model" if after == "validating" else "lists.csv"
    before = contents(target)
    started = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    assert any(line.startswith(after) for line in started.stderr)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == INTERRUPTED
    assert err.splitlines()[-1] == "shortlist: interrupted by Ctrl-C."
    assert "Traceback" not in err
    assert contents(target) == before
    assert not list(Path().rglob(".*"))
