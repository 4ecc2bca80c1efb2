"""The base class of models, cutoffs and calibrations: parameters, and what `fit` learned."""

from dataclasses import dataclass, fields
from functools import cache
from inspect import isfunction
from typing import Any, ClassVar, Final, Self, get_type_hints

from shortlist.core.options import check_keywords, check_options, explain_keywords, nearest_name
from shortlist.errors import ConfigError, NotFittedError, warn

ENTRY_POINTS = "shortlist"  # group in which other packages name their models, cutoffs and metrics
FITTED: Final[Any] = object()  # `threshold_: float = FITTED` declares an attribute that `fit` sets


@dataclass(kw_only=True, eq=False)
class Estimator:
    """The dataclass fields are the parameters; attributes that end in `_` hold what `fit` learned.

    A class declares these with their types, as in `threshold_: float = FITTED`; `core.codec` saves them,
    loads them and checks them by the declaration.

    Parameters are checked together whenever one of them is set: by the constructor, by `set_params` and by
    assignment. A parameter that is set afterwards makes the object unfitted.
    """

    kind: ClassVar[str] = "estimator"
    registry: ClassVar[dict[str, type["Estimator"]]] = {}  # by name, to restore saved objects
    _own_fitted: ClassVar[type] = object  # whose annotations are those of the fitted attributes

    def __init_subclass__(cls) -> None:
        Estimator.registry[cls.__name__] = cls
        annotations = vars(cls).get("__annotations__", {})
        names = [name for name in annotations if vars(cls).get(name) is FITTED]
        declared = {name: annotations.pop(name) for name in names}
        for name in declared:  # before the decorator `dataclass` takes it for a parameter
            delattr(cls, name)
        holder = type(cls.__name__, (), {"__annotations__": declared, "__module__": cls.__module__})
        cls._own_fitted = holder
        for name, method in list(vars(cls).items()):
            if isfunction(method) and method.__kwdefaults__ and not name.startswith("_"):
                setattr(cls, name, explain_keywords(method))

    def __new__(cls, *args: Any, **params: Any) -> Self:
        if not params.keys() <= cls.__dataclass_fields__.keys():
            check_keywords(cls.__name__, params, [field.name for field in fields(cls)])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._check_params()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__dataclass_fields__:
            object.__setattr__(self, name, value)
        elif name in vars(self):
            self._replace_params({name: value})
        else:  # in the constructor, which checks the parameters when all are set
            vars(self)[name] = self._convert_param(name, value)

    def _replace_params(self, changes: dict[str, Any]) -> None:
        """Set parameters if they are valid together with the others; else nothing changes."""
        changes = {name: self._convert_param(name, value) for name, value in changes.items()}
        trial = object.__new__(type(self))
        vars(trial).update(self.get_params() | changes)
        trial._check_params()
        vars(self).update(changes)
        self._forget()

    def _convert_param(self, name: str, value: Any) -> Any:
        """The value in the form in which the parameter is stored."""
        return value

    def _check_params(self) -> None:
        """Raise ConfigError for a parameter that its annotation does not allow, or a contradiction."""
        check_options(type(self), self.get_params())
        self._check_together()

    def _check_together(self) -> None:
        """Raise ConfigError for parameters that contradict each other."""

    @classmethod
    def find_class(cls, name: str) -> "type[Estimator] | None":
        """Return the class of this name, perhaps of another package; None if there is none.

        Parameters
        ----------
        name
            The name of a class.
        """
        if name not in Estimator.registry:
            load_plugins()
        return Estimator.registry.get(name)

    def _declared(self) -> dict[str, Any]:
        """The annotation of each attribute that `fit` sets, those of base classes first."""
        kind: Any = type(self)
        return _declared_attributes(kind)

    def _learned(self) -> dict[str, Any]:
        """What `fit` learned, by the names of `_declared`."""
        return self.fitted()

    def _restore(self, learned: dict[str, Any]) -> None:
        """Set what `fit` learned, as it was loaded from a file."""
        vars(self).update(learned)
        self._check_loaded()

    def _check_loaded(self) -> None:
        """Raise ModelFileError if loaded attributes contradict each other."""

    def _forget(self) -> None:
        """Remove what `fit` learned."""
        for name in self.fitted():
            delattr(self, name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep
            Ignored; accepted for compatibility with scikit-learn.
        """
        return {field.name: vars(self)[field.name] for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; the object becomes unfitted.

        The new values are checked together. If one of them is invalid, nothing changes.

        Parameters
        ----------
        **params
            New values by parameter name.
        """
        names = list(self.get_params())
        for name in params.keys() - set(names):
            near = nearest_name(name, names)
            advice = f"did you mean {near!r}?" if near else f"its parameters are {', '.join(names)}."
            raise ConfigError(f"{type(self).__name__} has no parameter {name!r:.60}; {advice}")
        self._replace_params(params)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy with the same parameters."""
        return type(self)(**self.get_params())

    def fitted(self) -> dict[str, Any]:
        """Return what `fit` learned, by attribute name; empty before `fit`."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def need(self, name: str) -> Any:
        """Return a fitted attribute, or raise NotFittedError.

        Parameters
        ----------
        name
            The name of the attribute.
        """
        if name not in vars(self):
            raise NotFittedError(
                f"{type(self).__name__} was used before it was fitted; call fit(scores, truth) first."
            )
        return vars(self)[name]


@cache
def _declared_attributes(kind: Any) -> dict[str, Any]:
    declared: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if "_own_fitted" in vars(base):
            declared |= get_type_hints(vars(base)["_own_fitted"], include_extras=True)
    return declared


@cache
def load_plugins() -> None:
    """Import the models, cutoffs and metrics that other packages name by entry points of `shortlist`."""
    from importlib.metadata import entry_points  # slow to import

    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # of the other package
            warn(f"the entry point {point.name!r} ({point.value}) cannot be imported: {error!r:.200}")
