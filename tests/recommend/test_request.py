"""The words of implicit, mapped."""

import pytest

from shortlist.errors import ConfigError
from shortlist.recommend import renamed


def test_aliases_become_our_words_and_the_rest_stays():
    given = {"userid": 3, "N": 5, "filter_already_liked_items": False, "items": [1], "filter_items": [2]}
    assert renamed(given) == {"users": 3, "N": 5, "filter_seen": False, "candidates": [1], "exclude": [2]}
    assert "userid" in given


def test_both_words_for_one_thing_are_refused():
    with pytest.raises(ConfigError, match="filter_seen"):
        renamed({"filter_seen": True, "filter_already_liked_items": True})
