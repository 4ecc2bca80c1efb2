"""Conventional column names: which column of a table holds users, items, times, weights and baskets."""

import re
from typing import NamedTuple

import polars as pl


class ColumnNames(NamedTuple):
    """The name of each column in a table; None finds it by its conventional name or an alias, "" omits it."""

    user_id: str | None = None
    item_id: str | None = None
    timestamp: str | None = None
    weight: str | None = None
    basket_id: str | None = None
    item_name: str | None = None


def _combine(first: str, second: str) -> str:
    """Every word of `first` followed by every word of `second`."""
    return " ".join(a + b for a in first.split() for b in second.split())


# Compared in lower case without punctuation: userId, USER_ID and "user id:token" all become `userid`.
# The first alias is the conventional name.
ALIASES = ColumnNames(
    user_id="userid user uid username customerid customer custid customerno customernumber clientid "
    "visitorid memberid accountid reviewerid shopperid buyerid buyer householdkey householdid",
    item_id="itemid item iid itemcode itemno productid product productcode productno movieid movie articleid "
    "article articleno sku skuid trackid track songid song artistid artist bookid book asin parentasin "
    "newsid videoid gameid businessid poiid venueid stockcode",
    timestamp="timestamp time datetime date ts day tdat unixtime unixtimestamp unixreviewtime created "
    + _combine(
        "event order purchase transaction txn invoice sale sales creation review rating",
        "time date datetime timestamp ts dt",
    )
    + " "
    + _combine("created purchased ordered placed", "time date datetime timestamp ts")
    + " "
    + _combine(
        "created purchased ordered placed bought sold occurred happened rated reviewed watched played "
        "listened viewed clicked visited",
        "at on",
    )
    + " "
    + _combine("date", "created purchased ordered placed"),
    weight="weight rating ratings stars count quantity qty units plays playcount strength",
    basket_id="basketid basket orderid order orderno ordernumber ordernr invoiceid invoiceno invoicenumber "
    "invoice receiptid receiptno receiptnumber",
    item_name="itemname title itemtitle productname producttitle articlename movietitle trackname "
    "booktitle description productdescription itemdescription",
)
TYPE_SUFFIX = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole writes the type into the header
TIME_UNIT = re.compile(r"(?<=.)(ms|us|ns|utc|gmt)$")  # timestamp_ms, created_at_utc
# Words that show what a column holds if its name is no alias. An order number is never a user.
ROLE_WORDS = {
    "user_id": "user customer cust client member buyer account visitor shopper household person patron guest",
    "item_id": "item product sku article movie track song book asin ean isbn upc title game video",
    "basket_id": "order basket invoice receipt cart transaction session checkout",
    "weight": "rating quantity qty amount price count score total units",
}
TIME_WORDS = {"time", "timestamp", "datetime", "date", "day", "ts", "dt", "epoch", "when"}
# 2024-05-01 13:45, 1.5.2024, 5/1/24 1:45 PM, 01-May-2024
MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = rf"^\s*(\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,2}}[ -]{MONTH}[ -]\d{{2,4}})([T ,].*)?$"
FIRST_EPOCH = 1e8  # seconds: 1973; smaller numbers are not taken for times
DAYS = (19000101, 21001231)  # YYYYMMDD


def plain_name(name: str) -> str:
    """A column name without case, punctuation and RecBole type."""
    return re.sub(r"[^a-z0-9]", "", TYPE_SUFFIX.sub("", name).lower())


def is_alias(name: str, role: str) -> bool:
    """Whether a column name is an alias of a role; times may end in their unit."""
    plain, aliases = plain_name(name), ALIASES._asdict()[role].split()
    return plain in aliases or (role == "timestamp" and TIME_UNIT.sub("", plain) in aliases)


def name_words(name: str) -> list[str]:
    """The words of a column name in lower case: purchasedAt and PURCHASED_AT are purchased, at."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", TYPE_SUFFIX.sub("", name))
    return re.findall(r"[a-z]+|\d+", split.lower())


def belongs_to_other_role(name: str, role: str) -> bool:
    """Whether the name shows that the column holds something else, such as an order number for a user."""
    if any(is_alias(name, other) for other in ALIASES._fields if other != role):
        return True
    words = set(name_words(name))
    if words & set(ROLE_WORDS.get(role, "").split()):
        return False
    others = " ".join(found for other, found in ROLE_WORDS.items() if other != role)
    return bool(words & set(others.split())) or has_time_name(name)


def has_time_name(name: str) -> bool:
    """Whether the words of a column name are those of a time."""
    words = name_words(name)
    return bool(TIME_WORDS & set(words)) or (len(words) > 1 and words[-1] in ("at", "on"))


def looks_like_time(values: pl.Series) -> bool:
    """Whether the first values of a column are dates, or epoch numbers under the name of a time."""
    if values.dtype in (pl.Date, pl.Datetime):
        return True
    filled = values.drop_nulls()
    if not len(filled):
        return values.len() == 0 and has_time_name(values.name)  # a database: only the name is known
    if filled.dtype == pl.String and filled.str.contains(DATE).all():
        return True
    if not has_time_name(values.name) or not (filled.dtype == pl.String or filled.dtype.is_numeric()):
        return False
    numbers = filled.cast(pl.Float64, strict=False)
    if numbers.null_count():
        return False
    return bool((numbers >= FIRST_EPOCH).all() or numbers.is_between(*DAYS).all())
