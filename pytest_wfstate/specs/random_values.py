"""Every value that a field can have: hypothesis strategies made of types, and of the fields of pydantic models.

Stores lose values at the edges of what they expect: the last bits of a float, the 64th of an integer, the space at the
end of a text. So edges are as frequent here as all other values together; `at_edge` makes each value one, so that a
few records have every edge in every field.
"""

from __future__ import annotations

import collections.abc
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, NaiveDatetime, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.specs.arguments import st

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["any_json", "any_record", "any_text", "any_value"]

M = TypeVar("M", bound=BaseModel)

_TEXTS = [
    *("", " ", " both ends ", "\t", "a\nb\r\nc", "0", "null", "'\"`;--", "%s{}\\", "\x01\x7f", "\ufeff", "\u2028"),
    *("Ünïcödé 漢字 🙂", "é", "e\u0301", "ǆ", "שלום", "\U0010ffff", "x" * 5000),
]
_INTEGERS = [0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 10**30]
_FLOATS = [0.1 + 0.2, 0.0, -0.5, 1 / 3, 5e-324, 1.7976931348623157e308, 1e22, 2.0**53, 123456789.12345679, 1e-7]
EDGES = len(_TEXTS)
"""How many records have every edge of every type."""
_DEEPEST = 100  # levels
_MOST = 3  # items of a list
_YEARS = (datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1))
_TIMES = [
    datetime.datetime(*parts)
    for parts in ((1999, 12, 31, 23, 59, 59, 999_999), (2038, 1, 19, 3, 14, 8, 1), (1970, 1, 1))
]
_ABSTRACT: dict[Any, Any] = {
    **dict.fromkeys([collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable], list),
    **dict.fromkeys([collections.abc.Collection], list),
    **dict.fromkeys([collections.abc.Set, collections.abc.MutableSet], set),
    **dict.fromkeys([collections.abc.Mapping, collections.abc.MutableMapping], dict),
}
"""What to make where any such collection is allowed."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Edge:
    """Which edge each value is, and in which models it is, the outermost first."""

    nth: int
    models: tuple[type, ...] = ()


_edge: contextvars.ContextVar[_Edge | None] = contextvars.ContextVar("edge", default=None)


@contextlib.contextmanager
def at_edge(nth: int) -> Iterator[None]:
    """Have strategies that are made and drawn from here return the n-th edge of each type."""
    with _at(_Edge(nth)):
        yield


@contextlib.contextmanager
def _at(edge: _Edge | None) -> Iterator[None]:
    token = _edge.set(edge)
    try:
        yield
    finally:
        _edge.reset(token)


def any_text() -> SearchStrategy[str]:
    """Return a strategy for texts without NUL, which not every database takes, and without lone surrogates."""
    return _texts({})


def any_json() -> SearchStrategy[Any]:
    """Return a strategy for JSON values: nested deeply, too, but without NaN and infinities."""
    kinds = {"none": st.none(), "flag": _booleans({}), "int": _integers({}), "float": _floats({}), "text": any_text()}
    edge = _edge.get()
    if edge is not None:
        depth = _DEEPEST * (edge.nth % 4) // 3
        leaf = st.fixed_dictionaries(kinds) if depth else _one_of(list(kinds.values()))
        return st.builds(_nested, st.just(depth), leaf)
    leaves = st.one_of(list(kinds.values()))
    keys = st.sampled_from(["a", "b", "", "ключ", "with space", "a.b", "$x"]) | st.text("abc", max_size=_MOST)
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=_MOST) | st.dictionaries(keys, inner, max_size=_MOST),
        max_leaves=2 * _MOST,
    )
    return values | st.builds(_nested, st.integers(1, _DEEPEST), leaves)


def any_record(model: type[M], /, **fields: Any) -> SearchStrategy[M]:
    """Return a strategy for records of a pydantic model: each field has every value that the model takes.

    `fields` says which values a field has instead: one, or those of a strategy. There is no NaN and no infinity.

    Raises:
        InvalidSetting: nothing is known about the type of a field.
    """
    from hypothesis.strategies import SearchStrategy

    given = {name: value if isinstance(value, SearchStrategy) else _fresh(value) for name, value in fields.items()}
    others = {name: _of_field(model, name, _edge.get()) for name in model.model_fields if name not in given}
    optional = {"extra": _extras(model)} if model.model_config.get("extra") == "allow" else {}
    made = st.fixed_dictionaries({**others, **given}).flatmap(
        lambda values: st.fixed_dictionaries(optional).map(
            lambda more: _validated(model, {**values, **more.get("extra", {})})
        )
    )
    return cast("SearchStrategy[M]", made.filter(lambda record: record is not None))


def any_record_like(record: M, kept: Collection[str], usual: Collection[str] = ()) -> SearchStrategy[M]:
    """Return a strategy for records in which each field is as in this one, or has another value that the model takes.

    What is one of the texts in `kept` stays as it is, and so do the fields named in `usual`.
    """
    model = type(record)
    fields = {name: getattr(record, name) for name in model.model_fields}
    return any_record(
        model,
        **{name: _fresh(value) if name in usual else _like(model, name, value, kept) for name, value in fields.items()},
    )


def any_value(kind: Any) -> SearchStrategy[Any]:
    """Return a strategy for the values of a type, as a field of a model may have it.

    Raises:
        InvalidSetting: nothing is known about the type.
    """
    return _of_type(kind, ())


def _like(model: type[BaseModel], name: str, value: Any, kept: Collection[str]) -> SearchStrategy[Any]:
    if not _holds(value, kept):
        values = _of_field(model, name, _edge.get())
        return values if _edge.get() else _fresh(value) | values
    return any_record_like(value, kept) if isinstance(value, BaseModel) else _fresh(value)


def _holds(value: Any, texts: Collection[str]) -> bool:
    """Whether one of these texts is in a value, however deep."""
    return any(text in texts for text in texts_in(value))


def texts_in(value: Any) -> Iterable[str]:
    """Yield all texts in a value, but for the keys of dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        for _, part in value:
            yield from texts_in(part)
    elif isinstance(value, (dict, list, tuple, set, frozenset)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_in(part)


def _fresh(value: Any) -> SearchStrategy[Any]:
    """Return a strategy for copies of a value, so that a store which changes one changes no other."""
    return st.builds(copy.deepcopy, st.just(value))


def _validated(model: type[M], values: dict[str, Any]) -> M | None:
    try:
        return model.model_validate(values, by_name=True, by_alias=False)
    except ValidationError:
        return None


def _extras(model: type[BaseModel]) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for the fields that a model takes without knowing them."""
    names = [name for name in ("extra", "sonst-etwas", "ещё") if name not in model.model_fields]
    return st.dictionaries(st.sampled_from(names), any_json(), max_size=1)


@functools.lru_cache(2048)
def _of_field(model: type[BaseModel], name: str, edge: _Edge | None) -> SearchStrategy[Any]:
    field = model.model_fields[name]
    if edge is not None:  # fields that are next to each other differ
        edge = _Edge(edge.nth + list(model.model_fields).index(name), (*edge.models, model))
    try:
        with _at(edge):
            values = _of_type(field.annotation, tuple(field.metadata))
    except InvalidSetting as unknown:
        raise InvalidSetting(f"field {name!r} of {model.__name__}: {unknown}") from None
    return values.filter(functools.partial(_is_valid, _adapter(model, name)))


@functools.lru_cache(512)
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    kind: Any = field.annotation
    for item in field.metadata:
        kind = Annotated[kind, item]
    return TypeAdapter(kind, config=None if _has_config(field.annotation) else ConfigDict(arbitrary_types_allowed=True))


def _has_config(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or hasattr(kind, "__pydantic_config__"))


def _is_valid(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _of_type(kind: Any, metadata: Sequence[Any]) -> SearchStrategy[Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _of_type(args[0], (*_flat(args[1:]), *metadata))
    if isinstance(kind, typing.NewType):
        return _of_type(kind.__supertype__, metadata)
    if hasattr(kind, "__value__"):  # type X = ...
        return _of_type(kind.__value__, metadata)
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return any_json()
    if kind in (None, type(None)):
        return st.none()
    if origin in (typing.Union, types.UnionType):
        deeper = [arg for arg in args if _may_recur(arg)]
        others = [_of_type(arg, metadata) for arg in args if arg not in deeper]
        if _edge.get() is None and deeper and others:
            return _seldom(_one_of([_of_type(arg, metadata) for arg in deeper]), _one_of(others))
        return _one_of([_of_type(arg, metadata) for arg in args if not _contains_itself(arg)])
    if origin is Literal:
        return _one_of(list(map(st.just, args)))
    return _of_class(_ABSTRACT.get(origin or kind, origin or kind), args, _limits(metadata), kind)


def _of_class(kind: Any, args: Sequence[Any], limits: dict[str, Any], whole: Any) -> SearchStrategy[Any]:
    """Return a strategy for the values of a class with type arguments."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        edge = _edge.get()
        return st.deferred(lambda: _of_model(kind, edge))  # it may contain itself
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _one_of(list(map(st.just, kind)))
    if kind is tuple and args and args[-1] is not Ellipsis:
        return st.tuples(*(_of_type(arg, ()) for arg in args))
    if kind in (list, set, frozenset, tuple, dict):
        sizes = _sizes(limits, is_empty=_contains_itself(whole))
        many = _collections(kind, args, sizes)
        is_bounded = _edge.get() is not None or sizes["min_size"] > 0 or not _may_recur(whole)
        return many if is_bounded else _seldom(many, st.builds(kind))
    known = _KNOWN.get(kind)
    return known(limits) if known else _from_hypothesis(whole)


def _collections(kind: Any, args: Sequence[Any], sizes: dict[str, Any]) -> SearchStrategy[Any]:
    if kind is dict:
        keys, values = args or (str, Any)
        return st.dictionaries(_of_type(keys, ()), _of_type(values, ()), **sizes)
    items = _of_type(args[0] if args else str if kind in (set, frozenset) else Any, ())
    return st.lists(items, unique=kind in (set, frozenset), **sizes).map(kind)


def _seldom(deeper: SearchStrategy[Any], others: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Return a strategy that seldom goes deeper: a model that contains itself several times would never end."""
    return st.sampled_from([others] * 9 + [deeper]).flatmap(lambda chosen: chosen)


@functools.lru_cache(512)
def _may_recur(kind: Any) -> bool:
    """Whether a type contains a model that contains itself."""
    return any(model in _models_in(_field_types(model)) for model in _models_in([kind]))


def _field_types(model: type[BaseModel]) -> list[Any]:
    return [field.annotation for field in model.model_fields.values()]


def _models_in(kinds: Iterable[Any]) -> set[type[BaseModel]]:
    """Return the models that values of some types can contain, however deep."""
    models: set[type[BaseModel]] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        waiting += [*typing.get_args(kind), *([kind.__value__] if hasattr(kind, "__value__") else [])]
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in models:
            models.add(kind)
            waiting += _field_types(kind)
    return models


@functools.lru_cache(512)
def _of_model(model: type[BaseModel], edge: _Edge | None) -> SearchStrategy[BaseModel]:
    with _at(edge):
        return any_record(model)


def _contains_itself(kind: Any) -> bool:
    """Whether a type contains a model that the value is in already: then an edge must not go deeper."""
    edge = _edge.get()
    return edge is not None and (kind in edge.models or any(map(_contains_itself, typing.get_args(kind))))


def _one_of(strategies: Sequence[SearchStrategy[Any]]) -> SearchStrategy[Any]:
    edge = _edge.get()
    return st.one_of(strategies) if edge is None else strategies[edge.nth % len(strategies)]


def _from_hypothesis(kind: Any) -> SearchStrategy[Any]:
    from hypothesis.errors import HypothesisException

    try:
        strategy = st.from_type(kind)
        strategy.validate()
    except (HypothesisException, TypeError) as error:
        raise InvalidSetting(
            f"no value of type {getattr(kind, '__name__', kind)} is known. Register a strategy for it with "
            "hypothesis.strategies.register_type_strategy, or write `values` of the operation."
        ) from error
    return strategy


def _flat(metadata: Iterable[Any]) -> list[Any]:
    """Return annotations, those in a `Field` one by one."""
    return [part for item in metadata for part in (item.metadata if isinstance(item, FieldInfo) else [item])]


def _limits(metadata: Iterable[Any]) -> dict[str, Any]:
    """Return what annotations say about sizes: `ge`, `max_length`, `pattern` and the like."""
    names = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
    found = {name: getattr(item, name, None) for item in _flat(metadata) for name in names if hasattr(item, name)}
    return {name: value for name, value in found.items() if value is not None}


def _sizes(limits: dict[str, Any], *, is_empty: bool) -> dict[str, Any]:
    low = limits.get("min_length", 0 if is_empty or _edge.get() is None else 1)
    return {"min_size": low, "max_size": min(limits.get("max_length", math.inf), low + _MOST)}


def _texts(limits: dict[str, Any]) -> SearchStrategy[str]:
    if "pattern" in limits:
        return st.from_regex(limits["pattern"])
    low, high = limits.get("min_length", 0), limits.get("max_length")
    edges = [text for text in _TEXTS if low <= len(text) <= (math.inf if high is None else high)]
    letters = st.characters(codec="utf-8", exclude_characters="\0")
    return _with_edges(edges, st.text(letters, min_size=low, max_size=high))


def _integers(limits: dict[str, Any]) -> SearchStrategy[int]:
    low, high = limits.get("ge"), limits.get("le")
    low = math.floor(limits["gt"]) + 1 if "gt" in limits else low if low is None else math.ceil(low)
    high = math.ceil(limits["lt"]) - 1 if "lt" in limits else high if high is None else math.floor(high)
    if "multiple_of" in limits:
        factor = int(limits["multiple_of"])
        inside = {"ge": None if low is None else -(-low // factor), "le": None if high is None else high // factor}
        return _integers({name: bound for name, bound in inside.items() if bound is not None}).map(factor.__mul__)
    ends = [bound for bound in (low, high) if bound is not None]
    edges = [
        number
        for number in dict.fromkeys([*ends, *_INTEGERS])
        if (low is None or number >= low) and (high is None or number <= high)
    ]
    return _with_edges(edges, st.integers(low, high))


def _floats(limits: dict[str, Any]) -> SearchStrategy[float]:
    low, high = limits.get("gt", limits.get("ge")), limits.get("lt", limits.get("le"))
    edges = [number for number in _FLOATS if (low is None or number > low) and (high is None or number < high)]
    numbers = st.floats(
        low,
        high,
        allow_nan=False,
        allow_infinity=False,
        exclude_min="gt" in limits,
        exclude_max="lt" in limits,
    )
    return _with_edges(edges, numbers)


def _decimals(limits: dict[str, Any]) -> SearchStrategy[decimal.Decimal]:
    low, high = limits.get("gt", limits.get("ge")), limits.get("lt", limits.get("le"))
    return st.decimals(low, high, allow_nan=False, allow_infinity=False)


def _booleans(_: dict[str, Any]) -> SearchStrategy[bool]:
    return _with_edges([False, True], st.booleans())


def _times(zone: datetime.tzinfo | None) -> Callable[[dict[str, Any]], SearchStrategy[datetime.datetime]]:
    return lambda _: _with_edges(_TIMES, st.datetimes(*_YEARS)).map(lambda time: time.replace(tzinfo=zone))


def _with_edges(edges: Sequence[Any], others: SearchStrategy[Any]) -> SearchStrategy[Any]:
    edge = _edge.get()
    if not edges:
        return others
    return st.sampled_from(edges) | others if edge is None else st.just(edges[edge.nth % len(edges)])


def _nested(depth: int, leaf: Any) -> Any:
    """Return a JSON value that is nested this deeply, in lists and objects in turn."""
    for level in range(depth):
        leaf = [leaf] if level % 2 else {"in": leaf}
    return leaf


_KNOWN: dict[Any, Callable[[dict[str, Any]], SearchStrategy[Any]]] = {
    str: _texts,
    bool: _booleans,
    int: _integers,
    float: _floats,
    decimal.Decimal: _decimals,
    datetime.datetime: _times(None),
    NaiveDatetime: _times(None),
    AwareDatetime: _times(datetime.UTC),
}
