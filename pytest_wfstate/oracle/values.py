"""Values: whether two of them are the same, for the states of a reference and for the results of calls.

Both are taken apart in one way, whatever their type: into their type and what they hold, which for an object is what
pickle would keep of it, and all attributes besides. A type that cannot be taken apart is refused: taking two of its
values for equal would hide a bug, and taking them for different would invent one.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import decimal
import enum
import fractions
import functools
import json
import threading
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from pytest_wfstate.contracts.base import ANY_TIME, GeneratedValues
from pytest_wfstate.contracts.clock import milliseconds, seconds
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.errors import CannotCompare

_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
"""They are not copied with what refers to them, so each is equal to itself alone."""
_STATELESS = (type(threading.Lock()), type(threading.RLock()), GeneratedValues)
"""No call is in progress when values are compared, so no lock is held; and generated values belong to no state."""
_ATOMS = frozenset([int, bool, bytes])
_BY_VALUE = frozenset([complex, decimal.Decimal, fractions.Fraction])
_TIMES = ("date", "time", "datetime", "timedelta")

Label = Any
"""Where a part is: the index of an item, the key of an entry, or the name of an attribute behind a dot."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """A value taken apart."""

    kind: Hashable
    """Its type, and everything of it that is not a part."""
    ordered: Sequence[tuple[Label, Any]] = ()
    keyed: Sequence[tuple[Any, Any]] = ()
    """Entries of a dict."""
    unordered: Sequence[Any] = ()
    """Items of a set."""


def plain(value: Any, normalise: Callable[[Any], Any] = lambda record: record, *, keeps_tuples: bool = False) -> Any:
    """Return a copy of a result to compare and to keep: a record of this package as JSON, a tuple as a list.

    Raises:
        CannotCompare: it holds something that cannot be compared.
    """
    if value is None or type(value) in _ATOMS or type(value) in (str, float):
        return value
    if isinstance(value, BaseModel):
        value = normalise(value)
        if isinstance(value, Record):
            return json.loads(value.model_dump_json(warnings=False))  # it may not be valid any more
    if type(value) in (list, tuple):
        items = [plain(item, normalise, keeps_tuples=keeps_tuples) for item in value]
        return tuple(items) if keeps_tuples and type(value) is tuple else items
    if type(value) is dict:
        return {key: plain(item, normalise, keeps_tuples=keeps_tuples) for key, item in value.items()}
    form, name = frozen(value), f"{type(value).__module__}.{type(value).__qualname__}"
    try:
        copied = copy.deepcopy(value)
    except Exception as error:
        raise CannotCompare(
            f"it is of type {name}, which cannot be copied: {error}. Use "
            "plain data instead, or write __setstate__() of its class, which takes what __getstate__() returns."
        ) from error
    if frozen(copied) != form:
        raise CannotCompare(
            f"it is of type {name}, which is not copied in full: copy.deepcopy() returns something else. Use plain "
            "data instead, or write __deepcopy__() of its class."
        )
    return copied


Same = Callable[[Any, Any], bool]
"""Whether the second value is the first."""


def alike(expected: Any, seen: Any, *, in_order: bool = True) -> bool:
    """Whether a plain result is the expected one: of the same type, and equal, as all their parts are.

    So 0, 0.0 and False differ. NaN equals NaN. The time of the reference equals any time. Fields of a dataclass that
    `compare=False` leaves out are left out. Unless `in_order`, a list may be in any order.
    """
    one, other = _type_of(expected), _type_of(seen)
    if one != other:
        return False
    if (one in (str, int, float) or _is_time(one)) and (expected == seen or expected in _any_times()):
        return True
    if one in _BY_VALUE or _is_time(
        one
    ):  # those that are written differently can be equal: Decimal("1.0") and ("1.00")
        return frozen(expected) == frozen(seen) or bool(expected == seen)
    if one is list and not in_order:
        return match(expected, seen, alike)
    return _parts_are_same(expected, seen, alike)


def exactly(expected: Any, seen: Any) -> bool:
    """Whether a result is the expected one to the last bit: for `same=` of a contract.

    A list and a tuple differ, as do 0.0 and -0.0, Decimal("1.0") and Decimal("1.00"), and one moment in two time zones.
    NaN equals NaN. The time of the reference equals any time.
    """
    kind = _type_of(expected)
    if kind != _type_of(seen):
        return False
    if kind is float or kind in _BY_VALUE or _is_time(kind):
        return frozen(expected) == frozen(seen) or (kind not in _BY_VALUE and expected in _any_times())
    if kind in (str, int) and expected in _any_times():
        return True
    return _parts_are_same(expected, seen, exactly)


def _parts_are_same(expected: Any, seen: Any, same: Same) -> bool:
    """Whether two values of one type hold the same."""
    kind = type(expected)
    if kind in (list, tuple):
        return len(expected) == len(seen) and all(map(same, expected, seen))
    if kind is dict and _has_texts_as_keys(expected) and _has_texts_as_keys(seen):
        return expected.keys() == seen.keys() and all(same(part, seen[key]) for key, part in expected.items())
    mine, theirs = parts(expected), parts(seen)
    return (
        mine.kind == theirs.kind
        and _all_same(_compared(expected, mine.ordered), _compared(seen, theirs.ordered), same)
        and _all_same(_by_key(expected, mine.keyed), _by_key(seen, theirs.keyed), same)
        and match(mine.unordered, theirs.unordered, same)
    )


def frozen(value: Any) -> Hashable:
    """Return something hashable that is equal for two values if no code can tell them apart.

    That is more than equality: an object that occurs twice differs from two equal ones, 1.0 from 1 and True, -0.0 from
    0.0, Decimal("1.0") from Decimal("1.00"), and dicts whose entries are in another order differ, too.

    Raises:
        CannotCompare: it holds something that cannot be compared.
    """
    try:
        return _Freezer()(value)
    except _HidesItsState as hidden:
        raise CannotCompare(str(hidden)) from hidden.__cause__


def memo_key(value: Any) -> Hashable:
    """Return what is equal for the same values alone, as `frozen` does, but for JSON in less time."""
    is_text = is_json(value) or (type(value) is tuple and all(map(is_json, value)))
    return (memo_key, repr(value)) if is_text else frozen(value)


def is_json(value: Any) -> bool:
    """Whether a value is made of nothing but what JSON has."""
    if type(value) is dict:
        return all(type(key) is str and is_json(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_json, value))
    return value is None or type(value) in (str, int, float, bool)


def parts(value: Any) -> Parts:
    """Take a value apart, which `frozen` has seen before."""
    kind = _type_of(value)
    if value is None or kind is str or kind in _ATOMS:
        return Parts((kind, value))
    if kind is float:
        return Parts((kind, value.hex()))  # tells NaN from nothing else, and -0.0 from 0.0
    if kind in (list, tuple):
        return Parts(kind, ordered=list(enumerate(value)))
    if kind is dict:
        return Parts(kind, keyed=list(value.items()))
    if isinstance(value, _BY_IDENTITY):
        return Parts((kind, value))
    if isinstance(value, _STATELESS):
        return Parts(kind)
    if isinstance(value, types.MethodType):
        return Parts((kind, value.__func__), ordered=[(".__self__", value.__self__)])
    if isinstance(value, enum.Enum):
        return Parts(kind, ordered=[(".value", value.value)])  # its other attributes belong to its class
    if kind in (set, frozenset):
        return Parts(kind, unordered=list(value))
    return _object_parts(value)


def _object_parts(value: Any) -> Parts:
    """Take an object apart: into its contents and state, as pickle does, and all attributes that pickle leaves out."""
    kind, layout = _type_of(value), _layout(type(value))  # type: ignore[arg-type] # a type is hashable
    try:
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):  # the name of a global
            return Parts((kind, reduced))
        make, args, state, items, entries = (*reduced, None, None, None)[:5]
        state = layout.state(value, state)
    except Exception as error:
        raise _HidesItsState(type(value), str(error)) from error
    if isinstance(state, tuple) and len(state) == 2 and all(part is None or isinstance(part, dict) for part in state):
        state = {**(state[0] or {}), **(state[1] or {})}  # attributes, and slots
    is_set = isinstance(value, (set, frozenset))
    ordered: list[tuple[Label, Any]] = [(".__reduce__", arg) for arg in args if arg is not type(value) and not is_set]
    attributes = dict(value.__dict__) if layout.has_dict else {}
    if isinstance(state, dict) and all(isinstance(name, str) for name in state):
        attributes |= state
    elif state is not None:
        ordered.append((".__getstate__()", state))
    ordered += _attributes(value, attributes)
    ordered += _slots(value, layout)
    ordered += enumerate(items or ())
    made_by = None if make is type(value) else make
    return Parts((kind, made_by), ordered, list(entries or ()), list(value) if is_set else ())


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """Where the objects of a type keep what they hold.

    One of its classes may say what they hold. It knows nothing of what others add to it.
    """

    state: Callable[[Any, Any], Any]
    """Given an object and its state as pickle has it, what that class says."""
    slots: tuple[tuple[str, Any], ...]
    """The slots that others add, with their descriptors: a class and its base can have one of the same name."""
    has_dict: bool
    """Whether others add a `__dict__`."""


@functools.lru_cache(1024)
def _layout(kind: type) -> _Layout:
    spokesman = BaseModel if issubclass(kind, BaseModel) else next(filter(_says_what_it_holds, kind.__mro__), None)
    own = spokesman.__mro__ if spokesman else ()
    others = [base for base in kind.__mro__ if base not in own]
    members = [pair for base in others if "__slots__" in vars(base) for pair in vars(base).items()]
    slots = tuple(pair for pair in members if isinstance(pair[1], types.MemberDescriptorType))
    return _Layout(_state_by(spokesman), slots, _have_dict(others) and not _have_dict(own))


def _have_dict(bases: Iterable[type]) -> bool:
    return any("__dict__" in vars(base) for base in bases)


def _says_what_it_holds(base: type) -> bool:
    """Whether a class itself has a method that pickle asks, and that leaves out nothing by mistake.

    That of a dataclass leaves out what its bases hold, that of Counter all attributes.
    """
    methods = [vars(base).get(name) for name in ("__reduce_ex__", "__reduce__", "__getstate__")]
    written = [method for method in methods if method and getattr(method, "__module__", "") != "dataclasses"]
    return base not in (object, collections.Counter) and bool(written)


def _state_by(spokesman: type | None) -> Callable[[Any, Any], Any]:
    if spokesman is None:
        return lambda _, __: None
    if spokesman is BaseModel:  # whichever fields were set, a model is the same
        return lambda value, _: {
            **value.__dict__,
            **(value.__pydantic_extra__ or {}),
            **(value.__pydantic_private__ or {}),
        }
    getstate: Any = getattr(spokesman, "__getstate__", None) if "__getstate__" in vars(spokesman) else None
    return (lambda value, _: getstate(value)) if getstate else (lambda _, state: state)


def _slots(value: Any, layout: _Layout) -> Iterator[tuple[Label, Any]]:
    for name, descriptor in layout.slots:
        with contextlib.suppress(AttributeError):  # empty
            yield f".{name}", descriptor.__get__(value)


def _type_of(value: Any) -> type:
    """Return the type of a value. A frozen clock makes times of its own types; they are the same."""
    kind = type(value)
    if kind.__module__ != "freezegun.api":
        return kind
    return next((base for base in kind.__mro__ if base.__module__ == "datetime"), kind)


def _attributes(value: Any, state: dict[Any, Any]) -> list[tuple[Label, Any]]:
    """Return attributes by name, without those that only cache what others say."""
    cached = _cached_properties(type(value))  # type: ignore[arg-type] # a type is hashable
    return [(f".{name}", state[name]) for name in sorted(state) if name not in cached]


@functools.lru_cache(1024)
def _cached_properties(kind: type) -> frozenset[str]:
    attributes = ((name, attribute) for base in kind.__mro__ for name, attribute in vars(base).items())
    return frozenset(name for name, attribute in attributes if isinstance(attribute, functools.cached_property))


def _is_time(kind: type) -> bool:
    return kind.__module__ == "datetime" and kind.__name__ in _TIMES


def _compared(value: Any, ordered: Sequence[tuple[Label, Any]]) -> dict[Hashable, Any]:
    ignored = (
        {f".{field.name}" for field in dataclasses.fields(value) if not field.compare}
        if dataclasses.is_dataclass(value)
        else ()
    )
    return {(number, label): part for number, (label, part) in enumerate(ordered) if label not in ignored}


def _by_key(value: Any, keyed: Sequence[tuple[Any, Any]]) -> dict[Hashable, Any]:
    in_order = isinstance(value, collections.OrderedDict)
    return {(number if in_order else None, frozen(key)): item for number, (key, item) in enumerate(keyed)}


def _has_texts_as_keys(value: dict[Any, Any]) -> bool:
    """Whether equal keys are the same: those that are not texts may be, as 1 and True are, equal and different."""
    return all(type(key) is str for key in value)


def _all_same(expected: dict[Hashable, Any], seen: dict[Hashable, Any], same: Same) -> bool:
    return expected.keys() == seen.keys() and all(same(part, seen[label]) for label, part in expected.items())


def match(expected: Sequence[Any], seen: Sequence[Any], same: Same) -> bool:
    """Whether each item can be paired with one that is the same. There can be a choice: see `_any_times`."""
    partner: dict[int, int] = {}

    def pair(index: int, tried: set[int]) -> bool:
        for other, item in enumerate(seen):
            if other not in tried and same(expected[index], item):
                tried.add(other)
                if other not in partner or pair(partner[other], tried):
                    partner[other] = index
                    return True
        return False

    if len(expected) != len(seen):
        return False
    in_order = all(map(same, expected, seen))  # most often, and trying all pairs takes long
    return in_order or all(pair(index, set()) for index in range(len(expected)))


@functools.cache
def _any_times() -> frozenset[Any]:
    """Return what the time of the reference looks like in results."""
    text = ANY_TIME.isoformat()
    written = (text, text.replace("+00:00", "Z"), ANY_TIME.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    return frozenset(
        [ANY_TIME, ANY_TIME.date(), seconds(ANY_TIME), milliseconds(ANY_TIME), ANY_TIME.timestamp(), *written]
    )


class _HidesItsState(Exception):
    """An object cannot be taken apart. `path` is where it is, from the inside out."""

    def __init__(self, kind: type, reason: str) -> None:
        super().__init__(kind, reason)
        self.path: list[str] = []

    def __str__(self) -> str:
        kind, reason = self.args
        return (
            f"{''.join(reversed(self.path)) or 'it'} is of type {kind.__module__}.{kind.__qualname__}: {reason}. "
            "Use plain data instead, or write __getstate__() of its class, which returns what it holds."
        )


class _Freezer:
    """Freezes one value, with a number for each object in it that occurs again."""

    def __init__(self, numbers: dict[int, int] | None = None) -> None:
        self._numbers = {} if numbers is None else numbers
        self._kept: list[Any] = []  # so that no part that was made to be frozen leaves its address to another

    def __call__(self, value: Any) -> Hashable:
        kind = type(value)
        if value is None or kind is str:
            return value  # type: ignore[no-any-return]
        if kind in _ATOMS:
            return (kind, value)  # 1, 1.0 and True are equal to Python
        if kind is tuple:
            return (kind, self._each(enumerate(value)))
        if _has_identity(kind):  # type: ignore[arg-type] # a type is hashable
            if id(value) in self._numbers:
                return (_Again, self._numbers[id(value)])
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
        if kind is list:
            return (kind, self._each(enumerate(value)))
        if kind is dict:
            return (kind, *self._keys_and_items(value.items()))
        taken = parts(value)
        labels = tuple(label for label, _ in taken.ordered)
        rest = (*self._keys_and_items(taken.keyed), self._unordered(taken.unordered))
        return (taken.kind, labels, self._each(taken.ordered), *rest)

    def _keys_and_items(self, entries: Collection[tuple[Any, Any]]) -> tuple[Hashable, Hashable]:
        return (self._each((key, key) for key, _ in entries), self._each(entries)) if entries else ((), ())

    def _each(self, labelled: Iterable[tuple[Label, Any]]) -> tuple[Hashable, ...]:
        label, forms = None, []
        try:
            for label, part in labelled:  # noqa: B007 - the handler needs it
                forms.append(self(part))
        except _HidesItsState as hidden:
            hidden.path.append(label if isinstance(label, str) and label.startswith(".") else f"[{label!r}]")
            raise
        return tuple(forms)

    def _unordered(self, items: Sequence[Any]) -> Hashable:
        if not items:
            return ()
        if all(type(item) is str for item in items):
            return frozenset(items)
        # The numbers must not depend on the order in which a set happens to yield its items.
        ordered = sorted(items, key=lambda item: hash(_Freezer(dict(self._numbers))(item)))
        return self._each((item, item) for item in ordered)


class _Again:
    """Marks an object that has occurred before."""


@functools.lru_cache(1024)
def _has_identity(kind: type) -> bool:
    """Whether objects of a type can be told apart although they are equal: by changing one, or by `is`."""
    by_identity: object = object.__hash__
    return kind.__hash__ is None or (kind.__hash__ is by_identity and not issubclass(kind, _BY_IDENTITY))
