"""Text for people: escaped, bounded, without passwords."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import DataError, DataWarning, UnknownIdError
from shortlist.text import CONTROL, bounded, escape_html, json_safe, printable, redact, redact_uri

URIS = [  # the password contains "ter2"; most are malformed
    "postgresql://me:hunter2@host/db",
    "postgres://me:hunter2@host:5432/db?sslmode=disable",
    "postgresql://me:hun ter2@host/db",
    "postgresql://me:hun@ter2@host/db",
    "postgresql://me:hun@ter 2ter2@host/db",
    "postgresql://me:hun/ter2@host/db",
    "postgresql://me:hun#ter2@host/db",
    "postgresql://me:hun?ter2@host/db",
    "postgresql://me:hun%ter2@host/db",
    "postgresql://me:hun\nter2@host/db",
    "postgresql:/me:hunter2@host/db",
    "postgresql:me:hunter2@host",
    "postgresql://me:hunter2@/db",
    "postgresql://me:hunter2",
    "postgresql://:hunter2@host",
    "postgresql://host/db?password=hunter2",
    "postgresql://host/db?sslpassword=hun ter2&x=1",
    "postgresql://host:x/db?password=hunter2",
    "sqlite:///x.db?password=hunter2",
    "sqlite://me:hunter2@/x.db",
    "sqlite:/me:hunter2@x.db",
    "mysql+pymysql://me:hunter2@h/x",
    "https://me:hunter2@h/x",
    "POSTGRESQL://me:hunter2@h:5/db",
    "postgresql//me:hun ter2@host/db",
    "://me:hunter2@host/db",
    "me:hunter2@host/db",
    "host=localhost user=me password=hunter2",
]


@pytest.mark.parametrize("uri", URIS)
def test_no_uri_is_shown_with_its_password(uri):
    assert "ter2" not in redact_uri(uri)


@pytest.mark.parametrize("uri", [uri for uri in URIS if " " not in uri and "//" in uri[5:]])
def test_errors_and_warnings_hide_passwords_in_any_text(uri):
    for text in (f"{uri}: no such file; check the path.", f"got {uri!r}; pass another."):
        if "me:" in uri and uri.startswith(("postgresql//", "://")):
            continue  # without a scheme only `redact_uri` can know
        assert "ter2" not in str(DataError(text))
        assert "ter2" not in str(DataWarning(text))


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:x@host:5432/db?sslmode=require", "postgresql://…@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
        ("ev[1].csv", "ev[1].csv"),
        ("C:/data/x.csv", "C:/data/x.csv"),
        ("data@home/x.csv", "data@home/x.csv"),
    ],
)
def test_the_rest_stays_readable(uri, shown):
    assert redact_uri(uri) == shown
    assert redact(f"{shown}: no rows; add some.") == f"{shown}: no rows; add some."


def test_control_characters_are_escaped():
    assert printable("a\x1b[31m\r\n\t\x7f\x9b\u202e\u2066\ud800é😀") == (
        r"a\x1b[31m\r\n\t\x7f\x9b\u202e\u2066\ud800é😀"
    )
    assert printable("a\nb\r", keep="\n") == "a\nb\\r"
    assert escape_html("<b>\u202e") == r"&lt;b&gt;\u202e"


@given(st.text())
def test_nothing_that_controls_a_terminal_is_left(text):
    assert CONTROL.search(printable(text)) is None
    message = str(DataError(text))
    assert CONTROL.search(message) is None
    assert len(message) <= 500
    assert json.loads(json_safe(json.dumps(text, ensure_ascii=False))) == text


@given(st.text(max_size=2000), st.integers(10, 600))
def test_bounded_keeps_both_ends(text, limit):
    shown = bounded(text, limit)
    assert len(shown) <= limit
    assert shown == text or (text.startswith(shown[:3]) and text.endswith(shown[-3:]))


def test_errors_survive_pickling():
    error = UnknownIdError("unknown user 'a\x1b'", parameter="user")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.parameter) == (r"unknown user 'a\x1b'", "user")
