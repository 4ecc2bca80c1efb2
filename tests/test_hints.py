"""What messages advise: no flag and no keyword that the command or function at hand does not have."""

import ast
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.app import COMMANDS
from shortlist.cli.app import flags_of_command as flags_of
from shortlist.core.options import list_options
from shortlist.data.read_options import CALL, ReadOptions

SOURCE = Path(sl.__file__).parent
FLAG = re.compile(r"(?<![\w-])--(?!help)([a-zA-Z]\w*)")
KEYWORD = re.compile(rf"(?<![\w.-])({'|'.join(ReadOptions.__dataclass_fields__)})=(?=['\"{{])")
PROGRAMS = ("curl", "createdb", "pip", "xdg-open")  # whose flags messages may name
SHARED = {"arguments", "cutoff_flags", "display", "output", "app", "flags"}  # parts of several commands
READING = set(list_options(ReadOptions, "flag"))
SERVICE = ("token", "activate", "forget", "refit")
flags_of_command = cache(lambda tokens: flags_of(list(tokens)))
ALL_FLAGS = {flag for name in COMMANDS for flag in flags_of_command((name,))}


def texts_of(path):
    """The texts of a module that are no docstrings; the values in f-strings are {}."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.Expr) or child in parts:
                continue
            if isinstance(child, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in child.values)
            elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield child.value


def named_flags(text, module):
    """(flag, flags that it may be): those of a named command, of the module's, or of any for shared parts."""
    named = re.findall(r"shortlist ((?:service )?[a-z]+)", text)
    commands = [name.split() for name in named if name.split()[0] in COMMANDS]
    allowed = {flag for command in commands for flag in flags_of_command(tuple(command))}
    if module == "service":
        allowed |= {flag for name in SERVICE for flag in flags_of_command((module, name))}
    elif module in COMMANDS:
        allowed |= set(flags_of_command((module,)))
    elif module in SHARED:
        allowed |= ALL_FLAGS
    return [(flag, allowed) for flag in FLAG.findall(text)]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_flags_in_messages_exist(path):
    is_command = path.parent.name == "cli"
    for text in texts_of(path):
        if any(program in text for program in PROGRAMS) or "var(--" in text or "{--" in text:
            continue
        for flag, allowed in named_flags(text, path.stem if is_command else ""):
            if path.name in ("charts.py", "datasets.py") or text.startswith("--"):
                continue
            assert flag in allowed, f"--{flag} in {text!r}"


@pytest.mark.parametrize("path", sorted((SOURCE / "data").glob("*.py")), ids=lambda path: path.name)
def test_the_options_of_readers_are_advised_as_calls(path):
    for text in texts_of(path):
        assert not KEYWORD.search(re.sub(r"\w+\(…, [^)]*\)", "", text)), text


BAD_FILES = {
    "encoding.csv": "user_id,item_id,name\nä,x,é\nb,y,ü\n".encode("cp1252") * 3,
    "utf16.csv": "user_id,item_id\na,x\nb,y\n".encode("utf-16"),
    "columns.csv": b"who,what\na,x\nb,y\n",
    "twice.csv": b"user,customer_id,item_id\na,b,x\nb,c,y\n",
    "header.csv": b"1,2\n3,4\n",
    "separator.csv": b"user_id item_id\na x\n",
    "time.csv": b"user_id,item_id,timestamp\na,x,soon\nb,y,later\n",
    "future.csv": b"user_id,item_id,timestamp\na,x,2090-01-01\nb,y,2090-01-02\n",
    "missing.csv": b"user_id,item_id\n,x\nb,y\n",
    "weight.csv": b"user_id,item_id,weight\na,x,many\nb,y,2\n",
    "events.csv": b"user_id,item_id,event\n" + b"".join(b"u%d,i%d,view\n" % (k, k % 7) for k in range(60)),
    "shop.sqlite": b"SQLite format 3\0",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a saved model, lists, interactions and bad files."""
    folder = tmp_path_factory.mktemp("hints")
    data = sl.load_dataset("sample")
    model = sl.PersonalFrequency().fit(data)
    model.set_cutoff(sl.cutoff.FixedN(N=3)).save(folder / "shop.shortlist")
    model.recommend(N=5).write(folder / "lists.csv")
    data.to_frame().write_csv(folder / "events.parquet.csv")
    for name, content in BAD_FILES.items():
        (folder / name).write_bytes(content)
    return folder


CALLS = {
    "check": ["check", "BAD"],
    "fit": ["fit", "BAD", "--out", "out.shortlist", "--quick"],
    "fit --items": ["fit", "events.parquet.csv", "--items", "BAD", "--out", "out.shortlist", "--quick"],
    "recommend --history": ["recommend", "shop.shortlist", "--N", "3", "--history", "BAD"],
    "recommend --items": [
        *("recommend", "shop.shortlist", "--N", "3", "--items", "BAD", "--max_per_group", "category=1")
    ],
    "allocate --items": ["allocate", "shop.shortlist", "--budget", "5", "--out", "o.csv", "--items", "BAD"],
    "allocate --test": ["allocate", "shop.shortlist", "--budget", "5", "--out", "o.csv", "--test", "BAD"],
    "cut": ["cut", "BAD", "--truth", "events.parquet.csv"],
    "cut --truth": ["cut", "lists.csv", "--truth", "BAD"],
    "evaluate": ["evaluate", "BAD", "--truth", "events.parquet.csv"],
    "evaluate --truth": ["evaluate", "lists.csv", "--truth", "BAD"],
}


@pytest.mark.parametrize("bad", BAD_FILES)
@pytest.mark.parametrize("call", CALLS)
def test_a_command_advises_only_its_own_flags(call, bad, world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    words = [bad if word == "BAD" else word for word in CALLS[call]]
    main(words)
    printed = capsys.readouterr().err
    assert not CALL.search(printed)
    for line in printed.splitlines():
        for flag, allowed in named_flags(line, words[0]):
            assert flag in allowed, line
    if call in ("cut", "evaluate", "fit --items"):  # whose flags for columns are about another file
        assert not set(FLAG.findall(printed)) & READING, printed


@pytest.mark.parametrize("name", ["columns.csv", "twice.csv"])
def test_functions_advise_only_their_own_keywords(name, world):
    table, lists = pl.read_csv(world / name), sl.RankedLists.read(world / "lists.csv")
    for call in (
        lambda: sl.Popularity().fit(table),
        lambda: sl.cut(lists, table),
        lambda: sl.cut(table, table),
        lambda: sl.evaluate(table, table),
        lambda: sl.RankedLists.from_frame(table),
    ):
        with pytest.raises(sl.errors.DataError) as caught:
            call()
        assert not KEYWORD.search(CALL.sub("", str(caught.value))), caught.value
    with pytest.raises(sl.errors.DataError) as caught:
        sl.RankedLists.from_frame(table)
    assert "read_interactions" not in str(caught.value)
    assert "rename the column" in str(caught.value)
