"""MatrixBlend against the scores of the two models."""

import numpy as np
import pytest

from shortlist.errors import ConfigError
from shortlist.models.als import ALS
from shortlist.models.gfcf import GFCF
from shortlist.models.matrix_blend import MatrixBlend
from tests.models.cases import bits, crowd, dense
from tests.threads import on_threads


@pytest.mark.parametrize("max_memory", [0, 1])
@pytest.mark.parametrize("weight", [0.1, 0.3, 1.0])
def test_scores_are_the_sum(weight, max_memory):
    data, settings = crowd(), {"n_factors": 40, "seed": 3}
    blend = MatrixBlend(weight=weight, reg=0.02, low_pass=0.5, max_memory=max_memory, **settings).fit(data)
    scores = [
        dense(model.fit(data)).astype(float)
        for model in (GFCF(low_pass=0.5, max_memory=max_memory, **settings), ALS(reg=0.02, **settings))
    ]
    expected = sum(
        share * values / values.std() for share, values in zip((1 - weight, weight), scores, strict=True)
    )
    np.testing.assert_allclose(dense(blend), expected, atol=2e-4)


def test_number_of_threads_changes_nothing():
    few, many = on_threads(1, 3, run=lambda: MatrixBlend(n_factors=40, max_memory=0).fit(crowd()))
    assert bits(few) == bits(many)
    lists = on_threads(1, 3, run=lambda: few.recommend(N=5))
    assert (lists[0].scores == lists[1].scores).all()


def test_weight_is_a_share():
    with pytest.raises(ConfigError, match="weight must"):
        MatrixBlend(weight=1.5).fit(crowd())
