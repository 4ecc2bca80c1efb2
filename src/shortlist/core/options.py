"""Options: declared once, as the fields of a dataclass, each with its rule and one line of help.

`lr: Annotated[float, Above(0), AtMost(10), Help("Step size.")] = 0.05` is such a declaration. Checks and
their messages, flags, settings, bodies of HTTP and rows of the docs follow from it. pydantic checks the
values; it is imported with the first check.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from functools import cache, reduce, wraps
from inspect import Parameter, getdoc, isfunction, signature
from numbers import Real
from operator import or_
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from shortlist.errors import ConfigError, NotFittedError, warn
from shortlist.text import short_repr

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Note = TypeVar("Note")
Result = TypeVar("Result", covariant=True)
OptionNames = ParamSpec("OptionNames")
MAX_WHOLE = 2**31 - 1
MAX_SEED = 2**63 - 1
MAX_NUMBER = 1e12  # sums and products of larger ones could overflow in single precision
MAX_MONEY = 1e300
SMALLEST = 1e-9  # the least number that counts as above 0


# ---------------------------------------------------------------------- constraints
@dataclass(frozen=True, repr=False)
class Bound:
    """A number that limits the values."""

    value: float
    name: ClassVar[str]  # in pydantic
    words: ClassVar[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value:.10g})"


class AtLeast(Bound):
    """The lowest value."""

    name, words = "ge", "at least"


class Above(Bound):
    """All values are higher."""

    name, words = "gt", "above"


class AtMost(Bound):
    """The highest value."""

    name, words = "le", "at most"


class Below(Bound):
    """All values are lower."""

    name, words = "lt", "below"


class MaxLength(Bound):
    """The highest number of characters."""

    name, words = "max_length", "at most"


class Choices(NamedTuple):
    """The texts that are allowed, if other packages can add to them."""

    names: Callable[[], Iterable[str]]

    def check(self, value: str) -> str:
        """The text; ValueError if it is not allowed."""
        if value not in self.names():
            raise ValueError("not one of the choices")
        return value


@dataclass(frozen=True, eq=False)
class Help:
    """What an option means, in one line, and an example of its value."""

    text: str
    example: Any = None


class Rare(Help):
    """The help of an option that is rarely needed: `--help-all` shows its flag."""


class Only(NamedTuple):
    """Where an option is offered beside Python, if not everywhere: as a "flag", in bodies of "http"."""

    places: tuple[str, ...] = ()


class Form(NamedTuple):
    """The type of an option as a flag or over HTTP, if it is not that of Python; the help of the flag."""

    flag: Any = None
    http: Any = None
    help: str = ""


Count = Annotated[int, AtLeast(1), AtMost(MAX_WHOLE)]
Several = Annotated[int, AtLeast(2), AtMost(MAX_WHOLE)]
Whole = Annotated[int, AtLeast(0), AtMost(MAX_WHOLE)]
Seed = Annotated[int, AtLeast(0), AtMost(MAX_SEED)]
Positive = Annotated[float, AtLeast(SMALLEST), AtMost(MAX_NUMBER)]
NotNegative = Annotated[float, AtLeast(0), AtMost(MAX_NUMBER)]
Fraction = Annotated[float, Above(0), AtMost(1)]
Probability = Annotated[float, AtLeast(0), AtMost(1)]
Confidence = Annotated[float, Above(0), Below(1)]
Dimensions = Annotated[int, AtLeast(1), AtMost(4096)]
Gain = Annotated[float, Above(0), AtMost(MAX_MONEY)]
Cost = Annotated[float, AtLeast(0), AtMost(MAX_MONEY)]
HIDDEN_BOUNDS = (
    MAX_WHOLE,
    MAX_SEED,
    MAX_NUMBER,
    MAX_MONEY,
)  # which a message names only if they are exceeded


def split_annotation(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """(type, constraints) of an annotation."""
    if get_origin(annotation) is Annotated:
        kind, *constraints = get_args(annotation)
        return kind, tuple(constraints)
    return annotation, ()


def find_note(annotation: Any, kind: type[Note]) -> Note | None:
    """The first constraint of a class."""
    return next((note for note in split_annotation(annotation)[1] if isinstance(note, kind)), None)


def describe_rule(annotation: Any, value: Any = None) -> str:
    """What the values must be, such as "a number above 0 and at most 10"."""
    rules = dict.fromkeys(_list_rules(annotation, (), value))
    return " or ".join(rules) or "None"


def _list_rules(annotation: Any, outer: tuple[Any, ...], value: Any) -> list[str]:
    kind, inner = split_annotation(annotation)
    constraints = (*outer, *inner)
    if get_origin(kind) in (Union, UnionType):
        return [rule for part in get_args(kind) for rule in _list_rules(part, constraints, value)]
    choices = next((c for c in constraints if isinstance(c, Choices)), None)
    if get_origin(kind) is Literal or (kind is str and choices is not None):
        names = get_args(kind) if choices is None else tuple(choices.names())
        return [repr(names[0]) if len(names) == 1 else f"one of {', '.join(map(str, names))}"]
    if kind in (int, float):
        bounds = [c for c in constraints if isinstance(c, Bound) and not _is_hidden(c, value)]
        return [f"a {'whole ' if kind is int else ''}number{_describe_bounds(bounds)}"]
    name = TYPE_NAMES.get(get_origin(kind) or kind, f"a {getattr(kind, '__name__', kind)}")
    return [name] if name else []


TYPE_NAMES = {
    bool: "True or False",
    str: "a text",
    NoneType: "",
    tuple: "a list",
    list: "a list",
    Mapping: "a dictionary",
    Callable: "a function",
}


def _is_hidden(bound: Bound, value: Any) -> bool:
    return bound.value in HIDDEN_BOUNDS and not (is_number(value) and value > bound.value)


def _describe_bounds(bounds: list[Bound]) -> str:
    if [bound.name for bound in bounds] == ["ge", "le"] and bounds[0].value != SMALLEST:
        return f" between {bounds[0].value:.10g} and {bounds[1].value:.10g}"
    texts = [
        "above 0" if bound.value == SMALLEST else f"{bound.words} {bound.value:.10g}" for bound in bounds
    ]
    text = " and ".join(texts)
    return f" of {text}" if text.startswith("at ") else f" {text}" if text else ""


# ---------------------------------------------------------------------- checks
def check_value(annotation: Any, /, **values: Any) -> None:
    """Raise ConfigError for a value that the annotation does not allow: `check_value(Count, N=0)`."""
    for name, value in values.items():
        if _find_invalid(_build_validator(((name, annotation),)), {name: value}) is not None:
            raise _invalid(name, annotation, value, "correct it")


def check_options(declaration: type, values: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first value that the fields of a declaration do not allow."""
    name = _find_invalid(_validator_of(declaration), values)
    if name is not None:
        default = {field.name: field.default for field in fields(declaration)}[name]
        advice = "correct it" if default is MISSING else f"the default is {default!r}"
        if default is None:
            advice = "leave it out for the default"
        raise _invalid(name, annotations_of(declaration)[name], values[name], advice)


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """The base of declarations whose values are checked together; 3.0 is accepted as 3, a list as a tuple."""

    def __post_init__(self) -> None:
        declaration: Any = type(self)
        for name, kind in _convertible(declaration).items():
            value = getattr(self, name)
            if kind is tuple and isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            elif kind is int and is_number(value) and float(value).is_integer():
                object.__setattr__(self, name, int(value))
        check_options(declaration, vars(self))


@cache
def _convertible(declaration: Any) -> dict[str, type]:
    """The options that are whole numbers or tuples, or None: name → int or tuple."""
    parts = {
        name: [get_origin(kind) or kind for kind in _list_types(annotation)]
        for name, annotation in annotations_of(declaration).items()
    }
    return {name: kind for name, kinds in parts.items() for kind in (int, tuple) if kind in kinds}


def _list_types(annotation: Any) -> list[Any]:
    """The types of a union, without their constraints; of another annotation, its type."""
    kind, _ = split_annotation(annotation)
    if get_origin(kind) in (Union, UnionType):
        return [part for entry in get_args(kind) for part in _list_types(entry)]
    return [kind]


def _invalid(name: str, annotation: Any, value: Any, advice: str) -> ConfigError:
    rule = describe_rule(annotation, value)
    return ConfigError(f"{name} must be {rule}, got {short_repr(value)}; {advice}.", parameter=name)


def _find_invalid(validate: Callable[[Any], Any], values: Mapping[str, Any]) -> str | None:
    """The name of the first invalid value."""
    try:
        validate(values)
        return None
    except ValueError:  # of pydantic, which knows no scalars of NumPy
        pass
    try:
        validate({name: _plain(value) for name, value in values.items()})
        return None
    except ValueError as error:
        return str(cast(Any, error).errors(include_url=False, include_context=False)[0]["loc"][0])


def _plain(value: Any) -> Any:
    """A scalar of NumPy as a number, text or truth value of Python."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def annotations_of(declaration: type) -> dict[str, Any]:
    """The annotation of each field, with its constraints."""
    annotations = {field.name: field.type for field in fields(declaration)}
    if any(isinstance(annotation, str) for annotation in annotations.values()):
        hints = get_type_hints(declaration, include_extras=True)
        return {name: hints[name] for name in annotations}
    return annotations


@cache
def _validator_of(declaration: type) -> Callable[[Any], Any]:
    return _build_validator(tuple(annotations_of(declaration).items()))


@cache
def _build_validator(annotations: tuple[tuple[str, Any], ...]) -> Callable[[Any], Any]:
    """A function that raises ValidationError for a mapping with invalid values."""
    from pydantic import ConfigDict, TypeAdapter, with_config
    from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

    values = TypedDict("Values", {name: strict_type(annotation) for name, annotation in annotations})  # type: ignore[misc]
    config = ConfigDict(strict=True, allow_inf_nan=False)
    return TypeAdapter(with_config(config)(values)).validator.validate_python


def strict_type(annotation: Any, outer: tuple[Any, ...] = ()) -> Any:
    """The annotation for pydantic: constraints belong to the numbers or texts of a union."""
    from pydantic import AfterValidator, Field, InstanceOf

    kind, inner = split_annotation(annotation)
    constraints = (*outer, *inner)
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, [strict_type(part, constraints) for part in get_args(kind)])
    limits: dict[str, Any] = {c.name: c.value for c in constraints if isinstance(c, Bound)}
    if kind in (int, float) or (kind is str and limits):
        return Annotated[kind, Field(**limits)]
    if get_origin(kind) in (list, dict, Mapping):
        return get_origin(kind)[*map(strict_type, get_args(kind))]
    choices = next((choices for choices in constraints if isinstance(choices, Choices)), None)
    if kind is str and choices is not None:
        return Annotated[str, AfterValidator(choices.check)]
    if isinstance(kind, type) and get_origin(kind) is None and kind not in PLAIN_TYPES:
        return InstanceOf[kind]  # type: ignore[valid-type, misc]
    return kind


PLAIN_TYPES = (Any, bool, str, int, float, bytes, tuple, list, dict, NoneType, object)


def is_number(value: Any) -> bool:
    """Whether the value is a number in the range of floats; True and False are none."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 1000
    return isinstance(value, Real)


def is_finite(value: Any) -> bool:
    """Whether the value is a finite number."""
    return is_number(value) and math.isfinite(value)


# ---------------------------------------------------------------------- wrong names
SYNONYMS = {  # what other libraries call it
    "N": ("k", "n", "top_k", "topk", "top_n", "n_items", "num_items"),
    "n_neighbors": ("k",),
    "n_factors": ("factors", "dim", "dimensions", "embedding_dim"),
    "n_epochs": ("epochs", "iterations", "n_iter"),
    "lr": ("learning_rate",),
    "reg": ("regularization", "l2"),
    "seed": ("random_state",),
    "filter_seen": ("filter_already_liked_items", "filter_viewed", "remove_seen"),
    "read_interactions": ("read_csv", "read_parquet", "read_json", "read_table", "load_csv"),
}


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The allowed name that an unknown one probably means."""
    by_case = {allowed.lower(): allowed for allowed in names}
    plain = name.lower().replace("-", "_")
    for allowed, synonyms in SYNONYMS.items():
        if plain in synonyms and allowed in by_case.values():
            return allowed
    close = get_close_matches(plain, by_case, 1)
    return by_case[close[0]] if close else None


def check_keywords(function: str, keywords: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise TypeError for a keyword that a function does not have, and name the nearest one."""
    allowed = list(allowed)
    unknown = next((name for name in keywords if name not in allowed), None)
    if unknown is None:
        return
    near = nearest_name(unknown, allowed)
    advice = f"Did you mean {near!r}?" if near else f"Its keywords are {', '.join(allowed)}."
    if not allowed:
        advice = "It has none; a class with parameters needs @dataclass(kw_only=True, eq=False, repr=False)."
    raise TypeError(f"{function}() got an unexpected keyword argument {unknown!r:.60}. {advice}")


def explain_keywords(function: AnyFunction) -> AnyFunction:
    """The same function, whose error for an unknown keyword names the nearest one."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # the call itself failed
                shown = [name for name in signature(function).parameters if name != "self"]
                check_keywords(function.__name__, keywords, shown)
            raise

    return cast("AnyFunction", call)


# ---------------------------------------------------------------------- descriptions
class OptionRow(NamedTuple):
    """An option in words."""

    name: str
    rule: str
    default: str
    help: str


def list_options(declaration: type, place: str | None = None) -> dict[str, Field[Any]]:
    """The fields of a declaration by name; with a place ("flag" or "http"), those that are offered there."""
    annotations = annotations_of(declaration)
    limits = {
        name: [note.places for note in split_annotation(annotation)[1] if isinstance(note, Only)]
        for name, annotation in annotations.items()
    }
    return {
        field.name: field
        for field in fields(declaration)
        if place is None or all(place in places for places in limits[field.name])
    }


def find_default(declaration: type, name: str) -> Any:
    """The default of an option; MISSING if it has none."""
    return next(field.default for field in fields(declaration) if field.name == name)


def describe_options(declaration: type, place: str | None = None) -> list[OptionRow]:
    """What the docs say about the options: name, rule, default and help."""
    annotations, texts = annotations_of(declaration), help_texts(declaration)
    return [
        OptionRow(
            name,
            describe_rule(annotations[name]),
            "" if field.default is MISSING else repr(field.default),
            texts.get(name, ""),
        )
        for name, field in list_options(declaration, place).items()
    ]


def help_texts(declaration: type) -> dict[str, str]:
    """One line of help for each field: of its declaration, or the first sentence in the docstring."""
    _, _, section = (getdoc(declaration) or "").partition("Parameters\n----------\n")
    texts = {}
    for names, text in re.findall(r"^(\w[\w, ]*)\n((?:    .*\n?)+)", section, re.MULTILINE):
        sentence = re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]
        texts.update(dict.fromkeys(names.split(", "), sentence))
    notes = {name: find_note(annotation, Help) for name, annotation in annotations_of(declaration).items()}
    return texts | {name: note.text for name, note in notes.items() if note is not None}


class TakesOptions(Protocol[OptionNames, Result]):
    """A function whose keywords are the fields of a declaration; type checkers and editors read this."""

    @overload
    def __call__(
        self,
        first: Any = None,
        second: Any = None,
        /,
        *args: OptionNames.args,
        **options: OptionNames.kwargs,
    ) -> Result: ...

    @overload
    def __call__(self, *args: Any, **options: Any) -> Result: ...


def take_options(
    declaration: Callable[OptionNames, Any],
) -> Callable[[Callable[..., Result]], TakesOptions[OptionNames, Result]]:
    """Give a function the fields of a declaration as keywords; it gets them as its argument `options`.

    help() and completion show the fields. A wrong keyword raises TypeError that names the nearest one.
    """
    options = fields(cast("Any", declaration))
    names = {option.name for option in options}

    def decorate(function: Callable[..., Result]) -> TakesOptions[OptionNames, Result]:
        plain = signature(function)
        arguments = [argument for name, argument in plain.parameters.items() if name != "options"]
        first = [argument for argument in arguments if argument.kind != Parameter.KEYWORD_ONLY]
        last = [argument for argument in arguments if argument.kind == Parameter.KEYWORD_ONLY]
        keywords = [
            Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
            for option in options
        ]
        shown = plain.replace(parameters=[*first, *keywords, *last])

        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Result:
            check_keywords(function.__name__, keywords, [name for name in shown.parameters if name != "self"])
            chosen = {name: keywords.pop(name) for name in names & keywords.keys()}
            return function(*args, **keywords, options=declaration(**chosen))  # type: ignore[call-arg]

        call.__signature__ = shown  # type: ignore[attr-defined]
        return cast("TakesOptions[OptionNames, Result]", call)

    return decorate


# ---------------------------------------------------------------------- models and cutoffs
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
