"""Features of items: TF-IDF worked by hand, and the other kinds."""

import numpy as np
import polars as pl
import pytest

from shortlist.content.features import FeatureSpace
from shortlist.core.codec import Contents, RecordForm, Scope
from shortlist.data.items import Items
from shortlist.errors import DataError


def features(**columns):
    table = pl.DataFrame({"item_id": list(range(len(next(iter(columns.values())))))} | columns)
    return Items.from_frame(table)


def test_tf_idf_by_hand():
    table = pl.DataFrame({"item_id": [0, 1, 2], "words": ["sea sea lake", "lake tree", "lake"]})
    items = Items.from_frame(table, text=["words"])
    space, matrix = FeatureSpace.fit(items)
    idf = {"lake": np.log(4 / 4), "sea": np.log(4 / 2), "tree": np.log(4 / 2)}
    raw = np.array(
        [[idf["lake"], (1 + np.log(2)) * idf["sea"], 0], [idf["lake"], 0, idf["tree"]], [idf["lake"], 0, 0]]
    )
    norms = np.linalg.norm(raw, axis=1)
    mean = norms[norms > 0].mean()
    lengths = np.where(norms > 0, 0.15 * mean + 0.85 * norms, 1)
    assert np.allclose(matrix.toarray(), raw / lengths[:, None], atol=1e-6)
    assert space.labels(np.array([0, 1, 2])) == ["lake", "sea", "tree"]


def test_new_items_get_the_same_features():
    table = pl.DataFrame(
        {
            "item_id": range(6),
            "words": ["red sea", "blue sea", "old red map", None, "sea", "map of blue"],
            "brand": ["x", "y", "x", None, "y", "x"],
            "tags": [["a"], ["b", "a"], [], None, ["b"], ["c"]],
            "price": [1.0, 2.0, None, 4.0, 8.0, 9.0],
            "vector": [[1.0, 2.0], None, [0.0, 1.0], [2.0, 2.0], [1.0, 0.0], [3.0, 4.0]],
        }
    )
    items = Items.from_frame(table, text=["words"])
    space, matrix = FeatureSpace.fit(items)
    with pytest.raises(DataError, match=r"column 'brand' must hold categories as in fit, but was not read"):
        space.transform(Items.from_frame(table[2:5], text=["words"]))
    again = space.transform(Items.from_frame(table[2:5], text=["words"], categories=["brand"]))
    assert np.array_equal(again.toarray(), matrix[2:5].toarray())
    unknown = pl.DataFrame({"item_id": [9], "words": ["never seen"], "brand": ["z"]})
    found = space.transform(Items.from_frame(unknown, text=["words"], categories=["brand"]))
    assert found.nnz == 0
    blocks = [matrix[:, a:b].toarray() for a, b in zip(space.starts, space.starts[1:], strict=False)]
    for block in blocks[1:]:
        lengths = np.linalg.norm(block, axis=1)
        assert np.allclose(lengths[lengths > 0], 1, atol=1e-6)


def test_numbers_lie_between_two_knots():
    space, matrix = FeatureSpace.fit(features(price=[0.0, 1.0, 2.0, 3.0, 4.0]))
    new = space.transform(features(price=[0.5, -9.0, 99.0, None])).toarray()
    near, low, high, none = new
    assert np.count_nonzero(near) <= 2
    assert np.array_equal(low, matrix.toarray()[0])
    assert np.array_equal(high, matrix.toarray()[4])
    assert not none.any()


@pytest.mark.parametrize("n", [1, 5])
def test_space_survives_its_arrays(n):
    items = features(words=["red sea", "blue sea", "red map"] * n, price=[1.0, 2.0, 3.0] * n)
    space, matrix = FeatureSpace.fit(items)
    contents = Contents({}, {})
    packed = RecordForm(FeatureSpace).write(space, "space", contents)
    again = RecordForm(FeatureSpace).read(packed, "space", contents, Scope())
    assert np.array_equal(again.transform(items).toarray(), matrix.toarray())
