"""Profiles of users: the content of their items, and what users with common items interacted with."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack

from shortlist.content.space import FeatureSpace
from shortlist.data.interactions import Interactions
from shortlist.models.content.neighbors import expand_histories, no_entries
from shortlist.models.counting import decayed_counts
from shortlist.models.weighting import COUNT_ROWS, WeightTransform
from shortlist.types import Doubles, Floats, Ints


class ProfileRules(NamedTuple):
    """How a history becomes a profile."""

    decay: float  # how much an item counts one basket later
    damping: float  # exponent of the summed features
    transform: WeightTransform = COUNT_ROWS  # what every row counts


class Catalog(NamedTuple):
    """What profiles and items are made of; the columns are the features of the content, then the items."""

    space: FeatureSpace
    content: csr_array  # (n_items, n_features)
    readers: csr_array  # (n_users, n_items) interactions of all users, normalized

    @property
    def owner(self) -> Ints:
        """(n_columns,) the field of each column; the neighborhood counts as one more field."""
        n_fields, n_items = len(self.space.fields), self.content.shape[0]
        return np.concatenate([self.space.owner, np.full(n_items, n_fields, np.int32)])


def history_matrix(history: Interactions, rules: ProfileRules) -> csr_array:
    """(n_users, n_items) how much each item of a user counts."""
    indptr, items = history.item_sets
    values = decayed_counts(history, rules.decay, rules.transform)
    return csr_array((values, items, indptr), shape=(history.n_users, history.n_items))


def build_queries(
    history: Interactions,
    rules: ProfileRules,
    catalog: Catalog,
    weights: Floats,  # (n_fields + 1,) of each field and of the neighborhood
) -> csr_array:
    """(n_users, n_columns) profiles; each field has unit length times its weight."""
    rows = history_matrix(history, rules)
    profiles = _content_profiles(rows, rules, catalog, weights[:-1])
    if not weights[-1]:
        near = no_entries(rows.shape[0], catalog.content.shape[0])
    else:
        near = expand_histories(rows, catalog.readers, rules.damping)
        near.data *= weights[-1]
    return csr_array(hstack([profiles, near], format="csr", dtype=np.float32))


def _content_profiles(rows: csr_array, rules: ProfileRules, catalog: Catalog, weights: Floats) -> csr_array:
    """(n_users, n_features) the sum of the users' items, dampened and normalized field by field."""
    summed = csr_array(rows @ catalog.content)
    summed.sort_indices()
    values = np.sign(summed.data) * np.abs(summed.data.astype(np.float64)) ** rules.damping
    n_fields = weights.size
    row = np.repeat(np.arange(summed.shape[0]), np.diff(summed.indptr))
    key = row * n_fields + catalog.space.owner[summed.indices]
    norms: Doubles = np.sqrt(np.bincount(key, weights=values**2, minlength=summed.shape[0] * n_fields))
    scale = np.tile(weights.astype(np.float64), summed.shape[0]) / np.where(norms > 0, norms, 1)
    return csr_array(
        ((values * scale[key]).astype(np.float32), summed.indices, summed.indptr), shape=summed.shape
    )
