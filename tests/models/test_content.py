"""ContentProfile: new items, what is learned, and what is explained."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest

from shortlist.cutoff import ExpectedF1
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import load_model
from shortlist.models.content import ContentProfile, find_neighbors, neighborhood_rows
from shortlist.models.counting import Popularity

TOPICS = ["sea ship wave sail", "bread oven flour yeast", "star orbit comet moon"]


def library(seed=0, n_users=60, n_items=90):
    """Users who read one of three topics; words of a topic, and words that say nothing."""
    rng = np.random.default_rng(seed)
    words = [t.split() for t in TOPICS]
    texts = [
        " ".join([*rng.choice(words[i % 3], 3), *(f"noise{w}" for w in rng.integers(40, size=4))])
        for i in range(n_items)
    ]
    table = pl.DataFrame(
        {
            "item_id": [f"a{i:02}" for i in range(n_items)],
            "words": texts,
            "color": rng.choice(["r", "g"], n_items),
        }
    )
    rows = [
        (f"u{u:02}", f"a{3 * i + u % 3:02}")
        for u in range(n_users)
        for i in rng.permutation(n_items // 3 - 5)[: 4 + u % 5]
    ]
    return Interactions.from_tuples(rows), table


@pytest.fixture(scope="module")
def fitted():
    data, table = library()
    return ContentProfile(n_neighbors=5).fit(data, items=table)


def topic_of(item_id):
    return int(item_id[1:]) % 3


def test_new_items_are_ranked_by_their_words(fitted):
    data, _ = library()
    new = [f"a{i:02}" for i in range(75, 90)]
    assert not set(new) & set(data.items.values)
    lists = fitted.recommend(["u00", "u01", "u02"], candidates=new, N=5)
    for user in range(3):
        assert {topic_of(one) for one in lists[f"u{user:02}"].items} == {user}


def test_words_count_more_than_an_attribute_that_says_nothing(fitted):
    words, color, _ = fitted._state.weights.fields
    assert words > 5 * color


def test_explain_names_words_and_readers(fitted):
    table = fitted.explain("u00", N=1, candidates=["a75", "a78", "a81"])
    sources = [one["source"] for one in table["contributions"][0]]
    assert set(sources) & set(TOPICS[0].split())
    parts = fitted.contributions(fitted.build_request(["u00"]), np.array([3], np.int32))[0]
    assert any(source.startswith("users of a") for source, _ in parts)


def test_contributions_add_up_to_the_score(fitted):
    request = fitted.build_request(["u07"])
    scores = fitted.score(request).dense(len(fitted.items_))[0]
    items = np.argsort(-scores)[:4].astype(np.int32)
    for item, parts in zip(items, fitted.contributions(request, items), strict=True):
        assert sum(amount for _, amount in parts) == pytest.approx(scores[item], rel=1e-4)


def test_added_items_are_those_of_a_fit_with_them(tmp_path):
    data, table = library()
    model = ContentProfile(n_neighbors=5).fit(data, items=table)
    one = ContentProfile(n_neighbors=5).fit(data, items=table)
    one.add_items(table.tail(3).with_columns(pl.Series("item_id", ["x1", "x2", "x3"])))
    assert one.fingerprint_ == model.fingerprint_
    lists = one.recommend(N=3, candidates=["x1", "x2", "x3"])
    same = model.recommend(N=3, candidates=table["item_id"].tail(3).to_list())
    assert np.allclose(np.sort(lists.scores), np.sort(same.scores), rtol=1e-5)
    again = load_model(one.save(tmp_path / "m"))
    assert again.recommend(N=3, candidates=["x1", "x2", "x3"]).to_frame().equals(lists.to_frame())


def test_content_of_known_items_can_change():
    data, table = library()
    model = ContentProfile(n_neighbors=0).fit(data, items=table)
    before = model.recommend(["u00"], candidates=["a76"], N=1)["u00"].scores
    model.add_items(pl.DataFrame({"item_id": ["a76"], "words": ["sea ship wave"], "color": ["r"]}))
    after = model.recommend(["u00"], candidates=["a76"], N=1)["u00"].scores
    assert after[0] > (before[0] if len(before) else 0)


def test_items_are_added_while_others_request_lists():
    data, table = library()
    model = ContentProfile(n_neighbors=3).fit(data, items=table)

    def add(n):
        model.add_items(pl.DataFrame({"item_id": [f"n{n}"], "words": ["sea sail"], "color": ["r"]}))
        return len(model.recommend(["u00"], N=4)["u00"].items)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(add, range(12))) == {4}
    assert all(f"n{n}" in model.items_ for n in range(12))


def test_items_are_needed_and_refused_where_they_are_not_used():
    data, table = library()
    with pytest.raises(ConfigError, match="needs the content of items"):
        ContentProfile().fit(data)
    with pytest.raises(ConfigError, match="items must be None for Popularity"):
        Popularity().fit(data, items=table)
    model = ContentProfile(n_neighbors=0).fit(data, items=table)
    with pytest.raises(DataError, match="must hold text as in fit"):
        model.add_items(pl.DataFrame({"item_id": ["b1", "b2"], "words": [1.0, 2.0]}))


def test_columns_of_new_items_have_the_kinds_of_fit():
    """Two new items with two colors: no value repeats, so that the kind cannot be recognized."""
    data, table = library()
    codes = table.with_columns(pl.Series("code", range(90)) % 7)
    model = ContentProfile(n_neighbors=0).fit(
        data, items=Items.from_frame(codes, categories=["color", "code"])
    )
    new = pl.DataFrame(
        {"item_id": ["b1", "b2"], "words": ["sea", "oven"], "color": ["r", "g"], "code": [3, 5]}
    )
    model.add_items(new)
    at = model.items_.lookup(["b1", "b2"])
    labels = [
        model._state.space.labels(model._state.content[[int(row)]].indices.astype(np.int64)) for row in at
    ]
    assert [sorted(found) for found in labels] == [
        ["code: 3", "color: r", "sea"],
        ["code: 5", "color: g", "oven"],
    ]
    with pytest.raises(DataError, match="but was not read"):
        model.add_items(Items.from_frame(new))


def test_neighbors_against_the_dense_product(fitted):
    content = fitted._state.content
    product = (content @ content.T).toarray()
    allowed, diagonal = np.arange(0, 90, 2), np.diag(product).copy()
    np.fill_diagonal(product, -1)
    nearest = np.maximum(diagonal, product[:, allowed].max(axis=1))  # an item is the nearest to itself
    product[allowed, allowed] = nearest[allowed]
    found = find_neighbors(content, np.arange(90, dtype=np.int32), allowed, 4).toarray()
    for row in range(90):
        best = allowed[np.argsort(-product[row, allowed], kind="stable")[:4]]
        best = best[product[row, best] > 0]
        assert np.allclose(np.sort(found[row][found[row] > 0]), np.sort(product[row, best]), rtol=1e-5)
    rows = neighborhood_rows(
        find_neighbors(content, np.arange(90, dtype=np.int32), allowed, 4), np.ones(90, np.bool_), 4
    )
    assert np.allclose(rows.multiply(rows).sum(axis=1), 1, atol=1e-5)


def test_length_follows_the_candidates(fitted):
    """The same user gets more from a day with many articles of the topic, and none from a day without."""
    new = [f"a{i:02}" for i in range(75, 90)]
    truth = Interactions.from_tuples(
        [(f"u{u:02}", one) for u in range(60) for one in new if topic_of(one) == u % 3]
    )
    cut = ExpectedF1(calibration="platt", size="probabilities", n_candidates=15)
    cut.fit(fitted.recommend(candidates=new, N=15), truth)
    mine = [one for one in new if topic_of(one) == 0]
    other = [one for one in new if topic_of(one) == 1]
    few, many, none = (
        len(fitted.recommend(["u00"], candidates=day, cutoff=cut)["u00"])
        for day in (mine[:1], mine, other[:2])
    )
    assert (few, many) == (1, 5)
    assert none <= 1


def test_weights_of_rows_count():
    _, table = library()
    rows = [("u0", "a00", 1, 5.0), ("u0", "a01", 1, 1.0), ("u1", "a01", 1, 1.0), ("u1", "a02", 1, -3.0)]
    frame = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "weight"], orient="row")
    data = Interactions.from_frame(frame, negative_weights="keep")
    words = table.select("item_id", "words")
    model = ContentProfile(n_neighbors=0, weighting="linear").fit(data, items=words)
    plain = ContentProfile(n_neighbors=0).fit(data.where(data.weight > 0), items=words)

    def sea_to_bread(one):
        sea, bread = one.score(one.build_request(["u0"])).dense(90)[0, [3, 4]]
        return sea / bread

    assert sea_to_bread(model) > sea_to_bread(plain)  # the article about the sea has weight 5
    scores = model.score(model.build_request(["u1"])).dense(90)[0]
    assert (scores[[i for i in range(2, 90, 3) if np.isfinite(scores[i])]] < 0).any()
