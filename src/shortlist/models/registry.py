"""Models by name: the built-in ones, and those of other packages."""

from inspect import isabstract
from pathlib import Path

from shortlist import MODEL_MODULES
from shortlist.core.codec import load_estimator
from shortlist.core.estimator import load_plugins
from shortlist.errors import ConfigError
from shortlist.models.base import Recommender


def model_names() -> list[str]:
    """The names of all models: the built-in ones, then those of other packages."""
    load_plugins()
    foreign = [kind for kind in Recommender.classes.values() if not kind.__module__.startswith("shortlist.")]
    return [*MODEL_MODULES, *(kind.__name__ for kind in foreign if not isabstract(kind))]


def find_model_class(name: str) -> type[Recommender]:
    """The class of a model by name: a built-in one, one that is already imported, or an entry point.

    Raises
    ------
    ConfigError
        If there is no such model.
    """
    kind = Recommender.find_class(name)
    if kind is None:
        raise ConfigError(f"model must be the name of a model, got {name!r:.60}; import its module first.")
    return kind


def is_tried(name: str) -> bool:
    """Whether `shortlist.fit` tries the model if none is named; subclasses declare it anew."""
    return bool(vars(find_model_class(name)).get("is_tried_by_fit"))


def load_model(path: str | Path) -> Recommender:
    """Load a saved model of any class.

    Parameters
    ----------
    path
        A file written by `model.save` or `shortlist fit`.

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
    return load_estimator(path, Recommender)  # type: ignore[type-abstract]
