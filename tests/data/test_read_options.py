"""ReadOptions: the one declaration of the options of readers."""

from dataclasses import fields
from inspect import signature
from typing import get_args

import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.core.options import list_options
from shortlist.data.files import FORMATS
from shortlist.data.read_options import Format, ReadOptions, TableOptions, advise_reading, name_flags

DEFAULTS = {field.name: field.default for field in fields(ReadOptions)}


def test_the_reader_takes_every_option_with_the_same_default():
    shown = {name: value.default for name, value in signature(sl.read_interactions).parameters.items()}
    assert {name: shown[name] for name in DEFAULTS} == DEFAULTS
    options = {field.name for field in fields(TableOptions)}
    assert set(signature(sl.Interactions.from_frame).parameters) == {"frame", *options}


@pytest.mark.parametrize("command", ["check", "fit", "evaluate"])
def test_every_option_is_a_flag(command, capsys):
    main([command, "--help-all"])
    words = capsys.readouterr().out.split()
    assert {f"--{name}" for name in list_options(ReadOptions, "flag")} <= set(words)


def test_a_wrong_keyword_is_refused():
    with pytest.raises(TypeError, match=r"'separater'\. Did you mean 'separator'"):
        sl.read_interactions("events", separater=";")
    with pytest.raises(TypeError, match=r"'user'\. Did you mean 'user_id'"):
        sl.Interactions.from_frame(None, user="customer")
    with pytest.raises(TypeError, match=r"'max_item'\. Did you mean 'max_items'"):
        sl.Popularity().recommend(max_item=3)


def test_formats_are_those_of_files():
    assert set(get_args(Format)) == {*FORMATS.values()}


@pytest.mark.parametrize("value", ["cp1252", "a 'b' \"c\"", "event = 'purchase'", "x in (1, 2); y", ""])
def test_advice_becomes_flags_or_is_left_out(value):
    shown = value if value.isalnum() else repr(value)
    message = f"the rule, got x; convert it; or use {advise_reading(where=value)}."
    assert name_flags(message, ["where"]) == f"the rule, got x; convert it; or use --where {shown}."
    assert name_flags(message, ["query"]) == "the rule, got x; convert it."
    assert name_flags("the rule; got x.", []) == "the rule; got x."
