"""Recommender: the base class of every model. Saving and loading; see `LearningMethods` for learning."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any, ClassVar, Self

from shortlist.core.checks import check_text, file_error
from shortlist.core.estimator import FILE_ERRORS, describe_error, pack, unpack
from shortlist.core.serialization import Arrays, Artifact, load_artifact, save_artifact
from shortlist.cutoff.base import Cutoff
from shortlist.data.data_source import source_from_notes
from shortlist.data.restore import restore_interactions
from shortlist.data.stored_rows import StoredRows, restore_totals, store_history
from shortlist.errors import ModelFileError
from shortlist.models.learning import LearningMethods
from shortlist.models.selection import SelectionReport

# the built-in models, each imported when it is first needed
MODEL_MODULES = {
    "DKHRM": "shortlist.models.factorization.hrm",
    "DKBPRMF": "shortlist.models.factorization.mf",
    "HRM": "shortlist.models.factorization.hrm",
    "BPRMF": "shortlist.models.factorization.mf",
    "LogMF": "shortlist.models.factorization.mf",
    "CRRMF": "shortlist.models.factorization.mf",
    "ContentProfile": "shortlist.models.content.profile",
    "TwoStage": "shortlist.models.two_stage.two_stage",
    "TIFUKNN": "shortlist.models.tifuknn",
    "UPCF": "shortlist.models.upcf",
    "EASE": "shortlist.models.ease",
    "PersonalFrequency": "shortlist.models.counting",
    "Popularity": "shortlist.models.counting",
    "PrecomputedScores": "shortlist.models.precomputed",
}


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(LearningMethods):
    """Base class of all models: fit, recommend, explain, save.

    A subclass implements `_learn`, `score`, `_to_arrays` and `_from_arrays`.
    """

    classes: ClassVar[dict[str, type["Recommender"]]] = {}  # classes that are already imported, by name
    earlier_params: ClassVar[dict[str, Any]] = {}  # parameters that files of earlier versions lack

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Recommender.classes[cls.__name__] = cls

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; a fitted model becomes unfitted.

        The new values are checked together; if one is invalid, nothing changes. Assignment
        (`model.n_factors = 32`) does the same for one parameter, except that a new `n_threads` keeps the fit.

        Parameters
        ----------
        **params
            New values by parameter name.

        Returns
        -------
        The model itself.

        Raises
        ------
        ConfigError
            If there is no such parameter, or a value is invalid.

        Examples
        --------
        >>> sl.BPRMF().set_params(n_factors=32).n_factors
        32
        """
        return super().set_params(**params)

    def save(self, path: str | Path) -> Path:
        """Save the model, its cutoff and its history to one file; nothing in it is pickled.

        Parameters
        ----------
        path
            The file to write, for example `shop.shortlist`. An older model there is replaced in one step.

        Returns
        -------
        The path of the file.

        Examples
        --------
        >>> import tempfile
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = model.save(folder + "/shop.shortlist")
        ...     same = sl.load_model(path)
        """
        state = self._fitted_state()
        return save_artifact(path, self._artifact(state, store_history(state.history)))

    def _artifact(self, state: Any, rows: StoredRows) -> Artifact:
        """The contents of a file with this state and the rows of its history."""
        own, notes = self._to_arrays(state)
        arrays = {f"model.{name}": array for name, array in own.items()} | rows.arrays
        series, notes = dict(rows.series), {**notes, **rows.notes, "fingerprint": state.fingerprint}
        if state.cutoff is not None:
            notes["cutoff"] = pack(state.cutoff, "cutoff", arrays, series)
        if state.selection is not None:
            notes["selection"] = asdict(state.selection)
        return Artifact("model", type(self).__name__, self._json_params(), arrays, series, notes)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a model of this class.

        Parameters
        ----------
        path
            A file written by `save`.

        Returns
        -------
        The model.

        Raises
        ------
        ModelFileError
            If the file is missing, damaged, or holds another class.

        Examples
        --------
        >>> import tempfile
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     same = sl.Popularity.load(model.save(folder + "/shop.shortlist"))
        """
        model = load_model(path)
        if not isinstance(model, cls):
            raise ModelFileError(
                f"{path} holds a {type(model).__name__}, not a {cls.__name__}; use load_model."
            )
        return model


def _is_model(name: str) -> bool:
    return name in MODEL_MODULES or (
        name in Recommender.classes and not isabstract(Recommender.classes[name])
    )


def find_model_class(name: str) -> type[Recommender]:
    """The class of a model by name."""
    if name in MODEL_MODULES:
        import_module(MODEL_MODULES[name])
    return Recommender.classes[name]


def load_model(path: str | Path) -> Recommender:
    """Load a saved model of any class.

    Parameters
    ----------
    path
        A file written by `model.save` or `shortlist fit`, or a folder written by `fit_to_folder`. Its
        shards become one model; pass the path of a shard to load its users alone.

    Returns
    -------
    The model, with its cutoff and history. Every byte is verified and nothing is unpickled.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged or was written by another version.

    Examples
    --------
    >>> import tempfile
    >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     same = sl.load_model(model.save(folder + "/shop.shortlist"))
    """
    if Path(path).is_dir():
        return _load_folder(Path(path))
    artifact = load_artifact(path, "model")
    if not _is_model(artifact.name):
        raise ModelFileError(f"{path} holds a {artifact.name}, unknown to this version; update shortlist.")
    try:
        return _restore(artifact)
    except FILE_ERRORS as error:
        raise describe_error(path, error) from None


def _load_folder(folder: Path) -> Recommender:
    """The model whose shards are in a folder."""
    from shortlist.models.factorization.shards import find_shards, join_shards

    whole: Recommender = join_shards([load_model(path) for path in find_shards(folder)], folder)
    return whole


def _restore(artifact: Artifact) -> Recommender:
    """The model that an artifact describes."""
    kind = find_model_class(artifact.name)
    model = kind(**{**kind.earlier_params, **artifact.params})
    arrays, series, notes = artifact.arrays, artifact.series, artifact.notes
    history = replace(
        restore_interactions(arrays, series),
        source=source_from_notes(notes),
        has_basket_order=notes.get("has_basket_order") is not False,
    )
    own = {n.removeprefix("model."): a for n, a in arrays.items() if n.startswith("model.")}
    state = replace(model._from_arrays(history, own, notes), fingerprint=_fingerprint(notes))
    totals = restore_totals(arrays, notes, history)
    if totals is not None:
        state = replace(state, history=replace(state.history, counted=totals))
    if "cutoff" in notes:
        state = replace(state, cutoff=_restore_cutoff(notes["cutoff"], arrays, series))
    if "selection" in notes:
        state = replace(state, selection=SelectionReport.from_notes(notes["selection"]))
    model._state = state
    return model


def _fingerprint(notes: dict[str, Any]) -> str | None:
    return None if notes.get("fingerprint") is None else check_text(notes, "fingerprint")


def _restore_cutoff(packed: Any, arrays: Arrays, series: Mapping[str, Any]) -> Cutoff:
    cutoff = unpack(packed, arrays, series)
    if not isinstance(cutoff, Cutoff):
        raise file_error("cutoff", "must be a cutoff")
    return cutoff
