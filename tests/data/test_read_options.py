"""ReadOptions: the one definition of options for readers, training from files and the command line."""

from dataclasses import fields
from inspect import signature
from typing import get_args

import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.data.columns import Format, ReadKeywords, ReadOptions
from shortlist.data.sources import FORMATS
from shortlist.recommend.request import RequestKeywords, RequestOptions

DEFAULTS = {field.name: field.default for field in fields(ReadOptions)}


def test_the_reader_takes_every_option_with_the_same_default():
    given = {name: value.default for name, value in signature(sl.read_interactions).parameters.items()}
    assert {name: given[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("command", ["check", "fit", "evaluate"])
def test_every_option_is_a_flag(command, capsys):
    main([command, "--help"])
    words = capsys.readouterr().out.split()
    assert {f"--{name}" for name in DEFAULTS} <= set(words)


@pytest.mark.parametrize(
    ("options", "keywords"), [(ReadOptions, ReadKeywords), (RequestOptions, RequestKeywords)]
)
def test_keywords_are_the_options(options, keywords):
    assert list(keywords.__annotations__) == [field.name for field in fields(options)]


def test_a_wrong_keyword_is_refused():
    with pytest.raises(TypeError, match="separater"):
        sl.read_interactions("events", separater=";")
    with pytest.raises(TypeError, match="max_item"):
        sl.Popularity().recommend(max_item=3)


def test_formats_are_those_of_files():
    assert set(get_args(Format)) == {*FORMATS.values()}
