"""Files of every format give the same rows; invalid files give clear errors."""

import gzip
import sqlite3
import subprocess
import sys
from contextlib import closing

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data.files import read_interactions
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError

FRAME = pl.DataFrame(
    {
        "user_id": ["ann", "ann", "bob", "eve"],
        "item_id": [7, 8, 7, 9],
        "timestamp": [1_700_000_000, 1_700_000_060, 1_700_000_000, 1_700_000_120],
        "weight": [1.0, 0.5, 2.0, 1.0],
        "note": ["a", "b", None, "d"],
    }
)
EXPECTED = Interactions.from_frame(FRAME).fingerprint


def write_inter(path):
    """RecBole's atomic file."""
    typed = {"user_id": "user_id:token", "item_id": "item_id:token"}
    typed |= {"timestamp": "timestamp:float", "weight": "rating:float", "note": "note:token_seq"}
    FRAME.rename(typed).write_csv(path, separator="\t")


WRITERS = {
    ".csv": FRAME.write_csv,
    ".tsv": lambda path: FRAME.write_csv(path, separator="\t"),
    ".inter": write_inter,
    ".parquet": FRAME.write_parquet,
    ".jsonl": FRAME.write_ndjson,
    ".ndjson": FRAME.write_ndjson,
}


@pytest.fixture
def write(tmp_path):
    """Write a text or bytes file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def error_of(*args, error=DataError, **given):
    with pytest.raises(error) as caught:
        read_interactions(*args, **given)
    return str(caught.value)


@pytest.mark.parametrize("extension", WRITERS)
class TestFormats:
    def test_plain(self, tmp_path, extension):
        path = tmp_path / f"events{extension}"
        WRITERS[extension](path)
        assert read_interactions(path).fingerprint == EXPECTED
        assert read_interactions(str(path)).fingerprint == EXPECTED

    def test_gzip(self, tmp_path, extension):
        path = tmp_path / f"events{extension}"
        WRITERS[extension](path)
        packed = tmp_path / f"events{extension}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert read_interactions(packed).fingerprint == EXPECTED

    def test_zstd(self, tmp_path, extension):
        pa = pytest.importorskip("pyarrow", reason="needs something that writes zstd")
        path = tmp_path / f"events{extension}"
        WRITERS[extension](path)
        packed = tmp_path / f"events{extension}.zst"
        with pa.CompressedOutputStream(str(packed), "zstd") as stream:
            stream.write(path.read_bytes())
        assert read_interactions(packed).fingerprint == EXPECTED

    def test_folder_pattern_and_list(self, tmp_path, extension):
        for name in ("a", "b/c"):
            path = tmp_path / "events" / f"{name}{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[extension](path)
        (tmp_path / "events" / "_SUCCESS").touch()
        (tmp_path / "events" / ".hidden.csv").write_text("x")
        (tmp_path / "events" / "notes.txt").write_text("x")
        paths = [tmp_path / f"events/a{extension}", tmp_path / f"events/b/c{extension}"]
        for source in (tmp_path / "events", tmp_path / f"events/**/*{extension}", paths):
            data = read_interactions(source)
            assert data.duplicates == 4
            assert data.n_rows == 4

    def test_truncated_gzip(self, tmp_path, extension):
        path = tmp_path / f"events{extension}"
        WRITERS[extension](path)
        packed = tmp_path / f"cut{extension}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes() * 50)[:-12])
        message = error_of(packed)
        assert message.startswith(f"{packed}: the compressed file is truncated")
        assert "export it again" in message

    def test_empty_file(self, tmp_path, extension):
        path = tmp_path / f"empty{extension}"
        path.touch()
        assert error_of(path).startswith(f"{path}: the file is empty")


class TestText:
    def test_ids_written_as_integers_are_integers(self, write):
        data = read_interactions(write("e.csv", "user_id,item_id\n1,10\n-2,0\n"))
        assert data.users.values.to_list() == [-2, 1]
        assert data.items.values.to_list() == [0, 10]

    @pytest.mark.parametrize("odd", ["007", "+7", "7.0", "x", "-0", "99999999999999999999", " 7"])
    def test_one_unusual_spelling_keeps_all_ids_strings(self, write, odd):
        data = read_interactions(write("e.csv", f"user_id,item_id\n1,10\n{odd},11\n"))
        assert sorted(data.users.values.to_list()) == sorted(["1", odd])
        assert data.items.values.dtype == pl.Int64

    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=30, unique=True))
    def test_integers_of_any_size_round_trip(self, tmp_path_factory, ids):
        path = tmp_path_factory.mktemp("ints") / "e.csv"
        pl.DataFrame({"user_id": ids, "item_id": ids}).write_csv(path)
        assert read_interactions(path).users.values.to_list() == sorted(ids)

    @pytest.mark.filterwarnings("ignore:100% of the users")
    def test_unusual_spelling_may_come_late(self, write):
        rows = "".join(f"{number},1\n" for number in range(1, 3000))
        assert (
            read_interactions(write("e.csv", f"user_id,item_id\n{rows}0042,2\n")).users.values.dtype
            == pl.String
        )

    def test_byte_order_mark_and_windows_lines(self, write):
        data = read_interactions(write("e.csv", b"\xef\xbb\xbfuser_id,item_id\r\na,x\r\nb,y\r\n"))
        assert data.items.values.to_list() == ["x", "y"]

    def test_separator_and_header_may_be_given(self, write):
        path = write("u.data", "1|5|880000000\n2|6|880000001\n")
        data = read_interactions(path, format="csv", separator="|", header="user_id,item_id,timestamp")
        assert data.n_rows == 2

    def test_custom_time_format(self, write):
        path = write("e.csv", "user_id,item_id,date\na,1,31.12.2023\nb,2,1.1.2024\n")
        assert read_interactions(path, time_format="%d.%m.%Y").n_baskets == 2

    def test_only_needed_columns_are_checked(self, write):
        path = write("e.csv", "user_id,item_id,weight,junk\na,1,heavy,\nb,2,light,x\n")
        assert read_interactions(path, weight="").n_rows == 2


class TestParquet:
    def test_only_needed_columns_are_read(self, tmp_path, monkeypatch):
        path = tmp_path / "e.parquet"
        FRAME.write_parquet(path)
        seen = []
        collect = pl.LazyFrame.collect
        monkeypatch.setattr(
            pl.LazyFrame,
            "collect",
            lambda self, **given: seen.append(self.explain()) or collect(self, **given),
        )
        assert read_interactions(path).fingerprint == EXPECTED
        plans = "\n".join(seen)
        assert "PROJECT 1/5 COLUMNS" in plans
        assert "note" not in plans

    def test_row_groups_and_parts_are_joined_in_order(self, tmp_path):
        rows = pl.DataFrame(
            {"user_id": range(100), "item_id": range(100, 0, -1), "timestamp": range(500, 600)}
        )
        for part in range(2):
            rows[part * 50 : part * 50 + 50].write_parquet(tmp_path / f"{part}.parquet", row_group_size=7)
        assert read_interactions(tmp_path).fingerprint == Interactions.from_frame(rows).fingerprint

    def test_string_ids_that_look_like_integers_stay_strings(self, tmp_path):
        path = tmp_path / "e.parquet"
        pl.DataFrame({"user_id": ["1", "2"], "item_id": ["3", "4"]}).write_parquet(path)
        assert read_interactions(path).users.values.to_list() == ["1", "2"]


class TestInvalidFiles:
    def test_missing_file(self, tmp_path, write):
        write("events.parquet", "x")
        message = error_of(tmp_path / "event.parquet")
        assert message == f"{tmp_path / 'event.parquet'}: no such file; did you mean 'events.parquet'?"
        assert "does not exist either" in error_of(tmp_path / "no" / "events.csv")
        assert "no such file; check the path" in error_of(tmp_path / "zzz.csv")

    def test_directory_without_data(self, tmp_path):
        (tmp_path / "readme.txt").write_text("hello")
        assert error_of(tmp_path).startswith(f"{tmp_path}: a folder must hold data files (.csv")

    def test_pattern_that_matches_nothing(self, tmp_path):
        assert "a pattern must match at least one file" in error_of(tmp_path / "*.csv")

    def test_no_files_at_all(self):
        assert "empty list" in error_of([])

    def test_header_only(self, write):
        assert "at least one row, got a header" in error_of(write("e.csv", "user_id,item_id\n"))

    def test_header_only_parquet(self, tmp_path):
        FRAME.clear().write_parquet(tmp_path / "e.parquet")
        assert "at least one row, got a header" in error_of(tmp_path / "e.parquet")

    def test_missing_column_names_the_file(self, write):
        path = write("e.csv", "user_id,articel_no\na,b\n")
        message = error_of(path)
        assert message.startswith(f"{path}: the table must have a column 'item_id'")
        assert "'articel_no'" in message

    def test_ambiguous_columns(self, write):
        message = error_of(write("e.csv", "user,item,movie\na,b,c\n"))
        assert "got 'item' or 'movie'; name one by read_interactions(…, item_id='item')" in message

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("user_id,item_id\na,1\n,2\n", "column 'user_id', row 2: an id must not be empty"),
            ("user_id,item_id\na,1\nb\n", "column 'item_id', row 2: an id must not be empty"),
            ("user_id,item_id,weight\na,1,1\nb,2,nan\n", "column 'weight', row 2: a weight must be a finite"),
            ("user_id,item_id,weight\na,1,inf\nb,2,1\n", "column 'weight', row 1: a weight must be a finite"),
            ("user_id,item_id,weight\na,1,1\nb,2,\n", "column 'weight', row 2: a weight must be a finite"),
            ("user_id,item_id,ts\na,1,5\nb,2,soon\n", "column 'ts', row 2: all times must have one format"),
            (
                "user_id,item_id,ts\na,1,5\nb,2,2024-01-01\n",
                "column 'ts', row 2: all times must have one format",
            ),
            (
                "user_id,item_id\na,1\nb,2,3\n",
                'the file must be a well-formed text table, got "found more fields',
            ),
            ("user_id,item_id\na,1\na,2\n", "at least two users, got 1"),
            ("user_id,item_id\na,1\nb,1\n", "at least two items, got 1"),
        ],
    )
    def test_invalid_rows_are_named(self, write, content, expected):
        path = write("e.csv", content)
        message = error_of(path)
        assert message.startswith(str(path))
        assert expected in message

    def test_few_rows_are_accepted_if_not_for_training(self, write):
        assert read_interactions(write("e.csv", "user_id,item_id\na,1\n"), training=False).n_rows == 1

    @pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
    def test_other_separators_are_recognized(self, write, mark, name):
        path = write("e.csv", f"user_id{mark}item_id\na{mark}b\nc{mark}d\n")
        data = read_interactions(path)
        assert data.source.notes == (f"the columns are separated by {name}.",)
        assert read_interactions(path, separator=mark).source.notes == ()
        message = error_of(path, separator=",")
        assert f"must be separated by commas, got a header separated by {name}" in message
        assert f"separator={mark!r}" in message

    def test_no_header(self, write):
        message = error_of(write("e.tsv", "196\t242\t3\n186\t302\t3\n"))
        assert "the first line must name the columns, got 196, 242, 3; add a header" in message

    def test_other_encodings(self, write):
        text = "user_id,item_id\nMüller,1\nb,2\n"
        for encoding, note in (("latin-1", "read as cp1252"), ("utf-16", "UTF-16"), ("utf-8-sig", None)):
            data = read_interactions(write("e.csv", text.encode(encoding)))
            assert "Müller" in data.users.values
            assert (note is None) == (data.source.notes == ())
            assert note is None or note in data.source.notes[0]
        assert "must be UTF-8" in error_of(write("e.csv", text.encode("utf-16-le")))

    def test_unclosed_quote(self, write):
        assert "the file must be a well-formed text table" in error_of(
            write("e.csv", 'user_id,item_id\na,"1\nb,2\n')
        )

    def test_parquet_that_is_not_parquet(self, write):
        path = write("e.parquet", "user_id,item_id\na,1\n" * 20)
        assert error_of(path).startswith(f"{path}: the file is not valid Parquet")

    def test_lines_that_are_not_json(self, write):
        path = write("e.jsonl", '{"user_id": 1, "item_id": 2}\n[1, 2]\nhello\n')
        assert f"{path}: the file must be lines of JSON objects with the same types, got " in error_of(path)

    def test_times_in_two_formats_in_json(self, write):
        rows = '{"user_id": 1, "item_id": 2, "ts": 5}\n{"user_id": 2, "item_id": 3, "ts": "2024-01-01"}\n'
        assert "row 2: all times must have one format" in error_of(write("e.jsonl", rows))

    def test_two_formats_in_one_folder(self, tmp_path):
        FRAME.write_csv(tmp_path / "a.csv")
        FRAME.write_parquet(tmp_path / "b.parquet")
        assert "all files must have one format, got csv, parquet" in error_of(tmp_path)

    def test_unknown_extension_and_format(self, write):
        path = write("e.xlsx", "x")
        assert "must end in one of .csv" in error_of(path)
        assert "format must be one of" in error_of(path, format="xlsx", error=ConfigError)

    def test_query_on_a_file(self, write):
        assert "needs a database" in error_of(write("e.csv", "x"), query="select 1", error=ConfigError)


def test_reading_imports_neither_pandas_nor_arrow(tmp_path):
    FRAME.write_csv(tmp_path / "e.csv")
    FRAME.write_parquet(tmp_path / "e.parquet")
    code = f"""
import sys
from shortlist.data.files import read_interactions
read_interactions({str(tmp_path / "e.csv")!r}), read_interactions({str(tmp_path / "e.parquet")!r})
print(sorted({{"pandas", "pyarrow"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TestMissingIds:
    """Rows without a user or an item."""

    TEXT = 'user_id,item_id,quantity\nann,tea,1\n,jam,2\nbob,,1\nbob,jam,3\n"",oil,1\n'

    def test_the_error_names_the_option(self, write):
        message = error_of(write("e.csv", self.TEXT))
        assert "row 2" in message
        assert "missing='drop'" in message
        assert "missing='drop'" in message

    @pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
    def test_rows_are_dropped_and_counted(self, write, tmp_path, kind):
        path = write("e.csv", self.TEXT)
        if kind != "csv":
            table, path = pl.read_csv(path), tmp_path / f"e.{kind}"
            (table.write_parquet if kind == "parquet" else table.write_ndjson)(path)
        data = read_interactions(path, missing="drop")
        assert data.to_frame().select("user_id", "item_id").rows() == [("ann", "tea"), ("bob", "jam")]
        assert data.weight.tolist() == [1, 3]
        assert "3 of 5 rows have no 'user_id' or 'item_id' and were dropped." in data.source.notes

    def test_integers_stay_integers(self, write):
        data = read_interactions(write("e.csv", "user_id,item_id\n1,5\n,6\n2,6\n"), missing="drop")
        assert data.users.values.to_list() == [1, 2]

    def test_nothing_is_noted_if_nothing_is_missing(self, write):
        data = read_interactions(write("e.csv", "user_id,item_id\na,5\nb,6\n"), missing="drop")
        assert not any("dropped" in note for note in data.source.notes)

    def test_a_database(self, tmp_path):
        uri = f"sqlite:///{tmp_path / 'shop.db'}"
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            connection.execute("create table orders (user_id text, item_id text)")
            connection.executemany("insert into orders values (?, ?)", [("a", "x"), (None, "y"), ("b", "y")])
        assert read_interactions(uri, query="select * from orders", missing="drop").n_rows == 2
        with pytest.raises(ConfigError, match="encoding needs a text table"):
            read_interactions(uri, query="select * from orders", encoding="cp1252")

    def test_wrong_options(self, write):
        with pytest.raises(DataError, match="leaves none"):
            read_interactions(write("e.csv", "user_id,item_id\n,5\n,6\n"), missing="drop")
        with pytest.raises(ConfigError, match="missing must be one of error, drop"):
            read_interactions(write("e.csv", "user_id,item_id\na,5\n"), missing="keep")


class TestEncoding:
    """Text files that are not UTF-8."""

    TEXT = "user_id,item_id\nMüller,1\nŽižek,2\n"

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp1250", "iso8859-2"])
    def test_names_survive(self, write, encoding):
        data = read_interactions(write("e.csv", self.TEXT.encode(encoding)), encoding=encoding)
        assert data.users.values.to_list() == ["Müller", "Žižek"]

    def test_compressed(self, write):
        path = write("e.csv.gz", gzip.compress(self.TEXT.encode("cp1250")))
        assert read_interactions(path, encoding="cp1250").users.values[1] == "Žižek"

    def test_errors(self, write, tmp_path):
        path = write("e.csv", self.TEXT.encode("cp1250"))
        assert "encoding=" in read_interactions(path).source.notes[0]
        with pytest.raises(DataError, match="must be ascii text, got other bytes at byte 17"):
            read_interactions(path, encoding="ascii")
        with pytest.raises(ConfigError, match="encoding must be one that Python knows"):
            read_interactions(path, encoding="klingon")
        pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2]}).write_parquet(tmp_path / "e.parquet")
        with pytest.raises(ConfigError, match="encoding needs a text table"):
            read_interactions(tmp_path / "e.parquet", encoding="cp1252")
