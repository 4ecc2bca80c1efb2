"""Requests to a fitted model: lists, files of lists, explanations and similar items."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.calls import explain_call
from shortlist.core.estimator import check_whole
from shortlist.data.id_map import UNKNOWN
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.models.contract import FittedModel
from shortlist.recommend.batch import BatchRecommender, write_lists
from shortlist.recommend.explain import contributions_column, explain_list, similar_items
from shortlist.recommend.explore import Exploration, read_exploration
from shortlist.recommend.request import (
    CutoffChoice,
    Fallback,
    ListOptions,
    RecommendRequest,
    build_request,
)
from shortlist.recommend.retriever import build_index
from shortlist.types import Floats


@dataclass(kw_only=True, eq=False, repr=False)
class RequestMethods(FittedModel):
    """The public methods of a fitted model; all of them take the same request path."""

    @explain_call
    def recommend(
        self,
        users: Any = None,
        *,
        N: int | None = None,
        cutoff: CutoffChoice = "auto",
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        min_items: int = 0,
        max_items: int | None = None,
        at: Any = None,
        fallback: Fallback | None = None,
        explore: float | Exploration = 0.0,
        n_threads: int = 0,
    ) -> RankedLists:
        """Recommend a list to each user, best item first; equal scores are ordered by item.

        Without `N`, the length of each list is decided by the cutoff and may be 0. Every list carries the
        reason why it ends.

        Parameters
        ----------
        users
            One user id or several; None: all known users (with `history`: all its users). Unknown users get
            an empty list.
        N
            The same length for all users, instead of a cutoff.
        cutoff
            "auto": the cutoff saved with the model, else the model's boundary. "boundary": the model's
            boundary. Or a fitted cutoff.
        candidates
            The item ids that may be recommended: one collection for all users, a dictionary from user id to
            item ids, or one list per user. None: all items. Unknown ids are ignored with a warning.
        exclude
            Item ids that must not be recommended, in the same forms. Unknown ids are ignored with a warning.
        history
            Sessions: histories to use instead of the known ones, as a dictionary from user id to item ids, or
            as Interactions or a table with times. Nothing is stored. Unknown items are skipped with a
            warning.
        filter_seen
            Whether to leave out items that the user interacted with before; None: only if users do not repeat
            items in the data.
        min_items
            Extend shorter lists to this length with the next best candidates.
        max_items
            The maximum length of a list.
        at
            The prediction time. Later rows of the user are left out of the history: of seen items, counts and
            baskets. `TwoStage` uses nothing that happened later, `HRM` no later trend; popularity,
            neighbors and learned parameters come from all known events. A date, an ISO 8601 string or an
            epoch number, one or one per user; or Interactions, whose first row of each user gives the time.
            None: just after the last known event.
        fallback
            What to show instead of an empty list: "popular", or a function from user id to item ids.
        explore
            Share of lists that run a few items longer than the cutoff allows, so that a cutoff can learn from
            the log; `Exploration` sets the details. The lists carry `propensities`, which are below 1 for the
            added items.
        n_threads
            Number of threads; 0 uses every core. The lists do not depend on it.

        Returns
        -------
        One list per user, in the order of `users`.

        Raises
        ------
        ConfigError
            If an argument is invalid, or nothing decides the length.
        UnknownIdError
            If ids are integers and those of the data are strings, or the reverse; if no candidate is known.

        Examples
        --------
        >>> model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
        >>> lists = model.recommend(["u1", "u2"], N=3)
        >>> lists.lengths.tolist()
        [3, 3]
        >>> model.recommend(history={"session": ["i1", "i10"]}, N=2).lengths.tolist()
        [2]
        """
        return self._recommender(
            users,
            ListOptions(
                N=N,
                cutoff=cutoff,
                min_items=min_items,
                max_items=max_items,
                fallback=fallback,
                explore=read_exploration(explore),
            ),
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
            n_threads=n_threads,
        ).lists()

    @explain_call
    def recommend_to_file(
        self,
        path: str | Path,
        users: Any = None,
        *,
        N: int | None = None,
        cutoff: CutoffChoice = "auto",
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        min_items: int = 0,
        max_items: int | None = None,
        at: Any = None,
        fallback: Fallback | None = None,
        explore: float | Exploration = 0.0,
        n_threads: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Write the lists that `recommend` returns to a Parquet file, batch by batch.

        Memory does not grow with the number of users. The file appears at its path only when it is complete.

        Parameters
        ----------
        path
            A file name that ends in .parquet.
        users, N, cutoff, candidates, exclude, history, filter_seen, min_items, max_items
            As in `recommend`.
        at, fallback, explore, n_threads
            As in `recommend`.
        progress
            Called after each batch with the number of lists written and the total.

        Returns
        -------
        The path of the file.

        Examples
        --------
        >>> import tempfile
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = model.recommend_to_file(folder + "/lists.parquet", N=5)
        ...     lists = sl.RankedLists.read(path)
        """
        recommender = self._recommender(
            users,
            ListOptions(
                N=N,
                cutoff=cutoff,
                min_items=min_items,
                max_items=max_items,
                fallback=fallback,
                explore=read_exploration(explore),
            ),
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
            n_threads=n_threads,
        )
        return write_lists(path, recommender, progress)

    @explain_call
    def explain(
        self,
        user_id: Any,
        *,
        N: int | None = None,
        n_contributions: int = 3,
        cutoff: CutoffChoice = "auto",
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        at: Any = None,
    ) -> pl.DataFrame:
        """Explain one user's list: scores, probabilities, the cut, and what contributed to each score.

        Parameters
        ----------
        user_id
            A known user, or a user of `history`.
        N
            How many candidates to explain; None: the whole list and the next five candidates.
        n_contributions
            How many contributions to report per item.
        cutoff, candidates, exclude, history, filter_seen, at
            As in `recommend`. A model without cutoff and boundary shows the first ten items.

        Returns
        -------
        A table with rank, item_id, item_name (if known), score, boundary, margin (score − boundary),
        probability, shown, and contributions: the largest sources of the score and their amounts.

        Raises
        ------
        UnknownIdError
            If the user is unknown.

        Examples
        --------
        >>> model = sl.EASE().fit(sl.load_dataset("sample"))
        >>> table = model.explain("u1", N=3)
        >>> table["rank"].to_list()
        [1, 2, 3]
        """
        check_whole(0, n_contributions=n_contributions)
        if N is not None:
            check_whole(1, N=N)
        is_auto = isinstance(cutoff, str) and cutoff == "auto"
        has_length = self.cutoff_ is not None or self.has_boundary or not is_auto
        options = ListOptions(cutoff=cutoff) if has_length else ListOptions(N=N or 10)
        recommender = self._recommender(
            [user_id],
            options,
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
            n_threads=1,
        )
        frame, items = explain_list(recommender, N)
        found = self.contributions(recommender.request, items)
        return frame.with_columns(contributions_column(found, n_contributions))

    @explain_call
    def similar_items(self, item_id: Any, N: int = 10) -> pl.DataFrame:
        """The items with the most similar vectors, for factor models.

        Parameters
        ----------
        item_id
            A known item.
        N
            How many items to return.

        Returns
        -------
        A table with item_id, item_name (if known) and similarity, the cosine of the vectors.

        Raises
        ------
        ConfigError
            If the model has no item vectors.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.BPRMF(n_epochs=2).fit(data)
        >>> model.similar_items(data.items.values[0], N=3).height
        3
        """
        check_whole(1, N=N)
        state = self._fitted_state()
        item = state.history.items.index(item_id, "item id")
        vectors = self._item_vectors(state)
        if vectors is None:
            raise ConfigError(
                f"similar_items compares item vectors, but {type(self).__name__} has none; "
                "use a factor model such as BPRMF."
            )
        nearest, cosine = similar_items(vectors, item, N)
        frame = pl.DataFrame({"item_id": state.history.items.to_ids(nearest), "similarity": cosine})
        names = state.history.item_names
        return frame if names is None else frame.insert_column(1, names.gather(nearest).alias("item_name"))

    @explain_call
    def boundaries(self, users: Any = None) -> Floats | None:
        """The personal boundaries t_u that the model learned.

        Lists end at them if the model has `boundary="learned"`. The boundary of a list is `lists.boundary`.

        Parameters
        ----------
        users
            One known user id or several; None: all known users.

        Returns
        -------
        One boundary per user, or None if the model learns none.

        Examples
        --------
        >>> model = sl.DKBPRMF(n_epochs=2).fit(sl.load_dataset("sample"))
        >>> model.boundaries(["u1", "u2"]).shape
        (2,)
        """
        request = self.build_request(users)
        if not self.has_boundary:
            return None
        if (request.users == UNKNOWN).any():
            unknown = request.user_ids.gather(np.flatnonzero(request.users == UNKNOWN))[0]
            self.users_.index(unknown, "user id")  # raises and names similar ids
        return self.score(request).boundaries

    @explain_call
    def prepare(self, *, n_threads: int = 0) -> Self:
        """Build the item index of a factor model now, so that the first request does not wait for it.

        Parameters
        ----------
        n_threads
            Number of threads; 0 uses every core.

        Returns
        -------
        The model itself.

        Examples
        --------
        >>> model = sl.BPRMF(n_epochs=2).fit(sl.load_dataset("sample")).prepare()
        """
        users = self.users_.values.head(1024)
        factors = self.score(self.build_request(users)).factors
        if factors is not None and factors.index_cache is not None and factors.index_cache.index is None:
            factors.index_cache.index = build_index(factors, None, n_threads)
        return self

    def build_request(
        self, users: Any = None, *, history: Any = None, candidates: Any = None, at: Any = None
    ) -> RecommendRequest[Any]:
        """A request for `score`, with the arguments of `recommend`.

        Parameters
        ----------
        users, history, candidates, at
            As in `recommend`.

        Returns
        -------
        The request.

        Examples
        --------
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> model.score(model.build_request("u1")).values.shape[0]
        1
        """
        return build_request(
            self._fitted_state(),
            users,
            options=ListOptions(N=1),
            history=history,
            candidates=candidates,
            at=at,
        )

    def _recommender(self, users: Any, options: ListOptions, **request: Any) -> BatchRecommender[Any]:
        """The one path from arguments to lists."""
        return BatchRecommender(self, build_request(self._fitted_state(), users, options=options, **request))
