"""When two values are the same: as states of a reference, and as results of calls."""

from __future__ import annotations

import array
import collections
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import pathlib
import threading
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import CannotCompare, samples
from pytest_wfstate.contracts.base import ANY_TIME
from pytest_wfstate.contracts.moments import Moment
from pytest_wfstate.faults.frozen_clock import FrozenClock
from pytest_wfstate.oracle.values import alike, frozen, memo_key, plain

UTC = datetime.UTC
CET = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ZERO = 0


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclasses.dataclass
class Row:
    key: Any
    note: Any = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    key: Any


class Slots:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class Plain:
    def __init__(self, held: Any) -> None:
        self.held = held

    def look(self) -> Any:
        return self.held

    @functools.cached_property
    def text(self) -> str:
        return str(self.held)


class Text(str):
    """Text of a type of its own."""


class Model(pydantic.BaseModel):
    held: Any
    other: int = 0


# Values that are easily taken for each other, by == or by what they look like.
ATOMS = [
    *(None, "", "0", b"0", Text("0"), bytearray(b"0"), array.array("b", b"0"), array.array("B", b"0")),
    *(0, False, 0.0, -0.0, 1, True, 1.0, math.nan, math.inf, 0j, Number.ZERO, Colour.RED, Colour.BLUE),
    *(decimal.Decimal(0), decimal.Decimal("0.0"), decimal.Decimal("NaN"), fractions.Fraction(0), fractions.Fraction(1)),
    *(NOON, NOON.astimezone(CET), NOON.replace(tzinfo=None), NOON.date(), NOON.time(), NOON.replace(fold=1)),
    *(datetime.timedelta(0), datetime.timedelta(1), uuid.UUID(int=0), uuid.UUID(int=1)),
    *(pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("a"), pathlib.Path("a"), pathlib.Path("b")),
    *(range(0), range(1, 1), range(2), ValueError("a"), ValueError("b"), KeyError("a"), int, str, len),
]
HASHABLE = [atom for atom in ATOMS if not isinstance(atom, (bytearray, array.array))]


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=2)
    makers = [
        *(list, tuple, collections.deque, lambda items: collections.deque(items, 3)),
        *(
            lambda items: Row(items),
            lambda items: Slots(items),
            lambda items: Plain(items),
            lambda items: Point(items[0], 1),
        ),
        *(lambda items: Model(held=items), lambda items: Frozen(tuple(items)), lambda items: ValueError(*items)),
        lambda items: dict(enumerate(items)),
        lambda items: dict(reversed(list(enumerate(items)))),
        lambda items: collections.OrderedDict(enumerate(items)),
        lambda items: collections.defaultdict(list, enumerate(items)),
    ]
    keys = st.lists(st.sampled_from(HASHABLE), max_size=3)
    of_keys = [set, frozenset, dict.fromkeys, collections.Counter]
    return st.one_of(
        st.builds(lambda make, items: make(items if len(items) else [0]), st.sampled_from(makers), lists),
        st.builds(lambda make, items: make(items), st.sampled_from(of_keys), keys),
    )


values = st.recursive(st.sampled_from(ATOMS), containers, max_leaves=6)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type, and so is everything in them: written without `frozen`."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return bool(one.hex() == other.hex())
    if isinstance(one, (decimal.Decimal, range)):
        return repr(one) == repr(other)
    if isinstance(one, (datetime.datetime, datetime.time)):
        return repr(one) == repr(other)
    if isinstance(one, dict):
        return getattr(one, "default_factory", 0) == getattr(other, "default_factory", 0) and same(
            list(one.items()), list(other.items())
        )
    if isinstance(one, (set, frozenset)):
        return len(one) == len(other) and all(any(same(item, mine) for mine in other) for item in one)
    if isinstance(one, array.array):
        return one.typecode == other.typecode and same(list(one), list(other))
    if isinstance(one, collections.deque):
        return one.maxlen == other.maxlen and same(list(one), list(other))
    if isinstance(one, BaseException):
        return same(one.args, other.args)
    if isinstance(one, (Row, Plain, Model)):
        return same(vars(one), vars(other))
    if isinstance(one, (Slots, Frozen)):
        return same(getattr(one, "held", None), getattr(other, "held", None)) and same(
            getattr(one, "key", None), getattr(other, "key", None)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class TestStates:
    @settings(max_examples=500, deadline=None)
    @given(values, values)
    def test_freeze_equal_exactly_if_they_are_the_same(self, one: Any, other: Any) -> None:
        assert (frozen(one) == frozen(other)) == same(one, other)

    @settings(max_examples=300, deadline=None)
    @given(values)
    def test_freeze_to_the_same_as_their_copies(self, value: Any) -> None:
        form = frozen(copy.deepcopy(value))
        assert frozen(value) == form
        assert hash(frozen(value)) == hash(form)

    @pytest.mark.parametrize("one", range(len(ATOMS)))
    def test_no_two_values_are_taken_for_each_other(self, one: int) -> None:
        assert [other for other, atom in enumerate(ATOMS) if frozen([atom]) == frozen([ATOMS[one]])] == [one]

    def test_an_object_that_occurs_twice_differs_from_two_equal_ones(self) -> None:
        shared: list[int] = []
        assert frozen([shared, shared]) != frozen([[], []])
        assert frozen([shared, shared]) == frozen([shared, shared])
        assert frozen([Point(1), Point(1)]) == frozen([Point(1)] * 2)  # nobody can change them

    def test_a_value_may_contain_itself(self) -> None:
        one: list[Any] = [1]
        one.append(one)
        other: list[Any] = [1]
        other.append(other)
        assert frozen(one) == frozen(other) != frozen([1, [1, one]])

    def test_a_set_keeps_apart_who_is_in_it(self) -> None:
        first, second = Plain(1), Plain(1)
        assert frozen([{first}, first]) != frozen([{first}, second])
        assert frozen({first, second}) != frozen({first})
        assert frozen([{first, Plain(2)}, first]) == frozen([{Plain(2), second}, second])

    def test_a_method_belongs_to_its_object(self) -> None:
        one, other = [1], [2]
        assert frozen(Plain(one).look) != frozen(Plain(other).look)
        assert frozen(Plain(one).look) == frozen(Plain([1]).look)

    def test_a_lock_holds_nothing(self) -> None:
        assert frozen(threading.Lock()) == frozen(threading.Lock()) != frozen(threading.RLock())

    def test_what_a_property_caches_makes_no_difference(self) -> None:
        one, other = Plain(1), Plain(1)
        assert one.text == "1"
        assert frozen(one) == frozen(other)

    def test_a_type_that_hides_what_it_holds_is_refused_with_its_place(self) -> None:
        def endless() -> Iterator[int]:
            yield 1

        with pytest.raises(CannotCompare) as caught:
            frozen({"a": [0, Row(endless())]})
        assert str(caught.value).startswith("['a'][1].key is of type builtins.generator: cannot pickle")


# For each base that a class may have, two values with other contents.
BASES: dict[type, tuple[Any, Any]] = {
    object: (None, None),
    BaseException: ("a", "b"),
    OSError: (1, 2),
    pydantic.BaseModel: (None, None),
    **{kind: ([1], [2]) for kind in (list, tuple, set, frozenset, collections.deque, collections.Counter, bytearray)},
    **{kind: ({"a": 1}, {"a": 2}) for kind in (dict, collections.OrderedDict)},
    collections.defaultdict: (list, set),
    **dict.fromkeys((str, int, float, decimal.Decimal, fractions.Fraction, pathlib.PurePosixPath), ("1", "2")),
    uuid.UUID: ("0" * 32, "1" * 32),
    datetime.timedelta: (1, 2),
}


def subclasses(base: type) -> Iterator[tuple[type, tuple[str, ...]]]:
    """Yield every kind of class over this one, and the names of its attributes."""

    def over(bases: type, *slots: str | None, **members: Any) -> type:
        # A dataclass without a docstring asks for its signature, which Python 3.11.2 cannot tell of built-in types.
        own = {"__doc__": "Over a base."} | ({"__slots__": slots} if None not in slots else {})
        return type("Over", (bases,), own | members)

    fields = {"__annotations__": {"field": int}}
    yield over(base, None), ("own",)
    if base is not pydantic.BaseModel:
        yield dataclasses.dataclass(init=False)(over(base, None, **fields)), ("own", "field")
    if base.__itemsize__:
        return  # as int and tuple, whose subclasses cannot have slots
    yield over(base, "own"), ("own",)
    below = over(base, "below")
    yield over(below, None), ("below", "own")
    yield over(below, "own"), ("below", "own")
    yield over(over(below, "below"), None), ("below",)
    if base is not pydantic.BaseModel:
        for frozen_ in {False, base.__flags__ & _IS_MADE_IN_PYTHON == 0}:
            made: type = dataclasses.dataclass(init=False, slots=True, frozen=frozen_)(over(below, None, **fields))
            yield made, ("below", "field")


_IS_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE; such a base sets attributes, which a frozen dataclass refuses


def instance(kind: type, content: Any, **attributes: int) -> Any:
    made: Any = kind() if content is None else kind(content)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_whatever_an_object_holds_and_wherever_is_compared(base: type) -> None:
    content, other = BASES[base]
    for kind, names in subclasses(base):
        attributes = dict.fromkeys(names, 1)
        whole = instance(kind, content, **attributes)
        assert frozen(whole) == frozen(instance(kind, content, **attributes))
        assert alike(whole, instance(kind, content, **attributes))
        differ = [instance(kind, content, **attributes | {name: 2}) for name in names]
        differ += [instance(kind, other, **attributes)] if other is not None else []
        differ += [instance(kind, content, **dict.fromkeys(names[1:], 1))]
        assert [part for part in differ if frozen(part) == frozen(whole) or alike(whole, part)] == [], kind.__mro__
        with contextlib.suppress(CannotCompare):  # some are not copied in full
            assert frozen(plain(whole)) == frozen(whole)


def test_a_class_may_say_what_it_holds_but_not_what_others_add() -> None:
    class Says:
        def __init__(self, held: int, cached: int) -> None:
            self.held, self.cached = held, cached

        def __getstate__(self) -> int:
            return self.held

    class Other:
        __slots__ = ("other",)

    @dataclasses.dataclass(init=False)
    class Adds(Says, Other):
        __slots__ = ("added",)

    def adds(held: int, cached: int, added: int, other: int) -> Adds:
        made = Adds(held, cached)
        made.added, made.other = added, other  # type: ignore[attr-defined]
        return made

    whole = frozen(adds(1, 1, 1, 1))
    assert whole == frozen(adds(1, 2, 1, 1))
    assert whole not in (frozen(adds(2, 1, 1, 1)), frozen(adds(1, 1, 2, 1)), frozen(adds(1, 1, 1, 2)))


class TestMemoKeys:
    @settings(max_examples=300, deadline=None)
    @given(values, values)
    def test_are_equal_only_for_the_same_value(self, one: Any, other: Any) -> None:
        assert memo_key(one) != memo_key(other) or same(one, other)

    @pytest.mark.parametrize("one", range(len(ATOMS)))
    def test_no_two_values_have_the_same(self, one: int) -> None:
        assert [other for other, atom in enumerate(ATOMS) if memo_key([atom]) == memo_key([ATOMS[one]])] == [one]


class TestResults:
    @settings(max_examples=500, deadline=None)
    @given(values)
    def test_a_copy_is_alike(self, value: Any) -> None:
        assert alike(plain(value), plain(copy.deepcopy(value)))

    @settings(max_examples=500, deadline=None)
    @given(values, values)
    def test_results_of_other_types_or_values_differ(self, one: Any, other: Any) -> None:
        if same(plain(one), plain(other)):
            assert alike(plain(one), plain(other))
        elif type(plain(one)) is not type(plain(other)):
            assert not alike(plain(one), plain(other))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            *((0, False), (1, True), (1, 1.0), ("1", 1), ("a", b"a"), (b"a", bytearray(b"a")), (0, None)),
            *(([1], [True]), ({"a": 0}, {"a": None}), ({1: "a"}, {True: "a"}), ({1}, {True}), ({1}, frozenset({1}))),
            *((Point(1), (1, 0)), (Row(1), Row(True)), (Slots(1), Slots(2)), (Model(held=1), Model(held=1.0))),
            *((Model(held=1), {"held": 1, "other": 0}), (ValueError("a"), ValueError("b")), (Colour.RED, 1)),
            *((math.nan, 0.0), (math.nan, None), (collections.deque([1]), collections.deque([2]))),
            (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
        ],
    )
    def test_differ(self, one: Any, other: Any) -> None:
        assert not alike(plain(one), plain(other))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            *((math.nan, math.nan), (0.0, -0.0), (decimal.Decimal("1.0"), decimal.Decimal("1.00"))),
            *((NOON, NOON.astimezone(CET)), ((1, 2), [1, 2]), ([(1,)], ([1],)), ({"a": 1, "b": 2}, {"b": 2, "a": 1})),
            *((Row(1, note="x"), Row(1, note="y")), (Model(held=1), Model(held=1, other=0)), ({1, 2}, {2, 1})),
        ],
    )
    def test_are_alike(self, one: Any, other: Any) -> None:
        assert alike(plain(one), plain(other))

    @pytest.mark.parametrize("seen", [17, 1.5, "2026-01-01T12:00:00Z", NOON, NOON.date()])
    def test_the_time_of_the_reference_is_any_time(self, seen: Any) -> None:
        times = {
            int: int(ANY_TIME.timestamp()),
            float: ANY_TIME.timestamp(),
            str: ANY_TIME.isoformat(),
            datetime.datetime: ANY_TIME,
            datetime.date: ANY_TIME.date(),
        }
        expected = times[type(seen)]
        assert alike({"at": expected}, {"at": seen})
        assert alike(plain(Row(expected)), plain(Row(seen)))
        assert not alike({"at": expected}, {"at": None})
        assert not alike({"at": seen}, {"at": expected})

    def test_times_of_a_frozen_clock_are_times(self, frozen_clock: FrozenClock) -> None:
        real = NOON.fromisoformat(str(frozen_clock.now))
        assert type(frozen_clock.now) is not type(real)
        assert alike(Row(frozen_clock.now), Row(real))
        assert alike(frozen_clock.now.date(), real.date())
        assert frozen([frozen_clock.now]) == frozen([real])
        assert alike(ANY_TIME, frozen_clock.now)

    @pytest.mark.parametrize("kind", [Moment, datetime.datetime])
    def test_the_time_of_the_reference_is_any_time_as_records_write_it(self, kind: Any) -> None:
        assert alike(pydantic.TypeAdapter(kind).dump_python(ANY_TIME, mode="json"), "2026-01-01T12:00:00Z")

    def test_lists_may_be_compared_in_any_order(self) -> None:
        assert not alike([2, 1], [1, 2])
        assert alike([2, 1], [1, 2], in_order=False)
        assert alike([{1}, b"a", None], [None, {1}, b"a"], in_order=False)
        assert not alike([2, 1, 1], [2, 2, 1], in_order=False)
        assert not alike([2, 1], [2, 1, 1], in_order=False)

    def test_items_in_any_order_are_paired_so_that_all_find_a_partner(self) -> None:
        time = int(ANY_TIME.timestamp())
        assert alike([time, 17], [17, 18], in_order=False)
        assert not alike([time, 17], [18, 19], in_order=False)

    def test_a_result_is_kept_as_it_was(self) -> None:
        result = Row([1])
        kept = plain(result)
        result.key.append(2)
        assert kept == Row([1])

    def test_a_record_of_this_package_is_json(self) -> None:
        assert plain(samples.resume_point("a"))["run_id"] == "a"

    def test_a_result_that_cannot_be_compared_is_refused(self) -> None:
        with pytest.raises(CannotCompare, match=r"is of type builtins\.generator"):
            plain([iter([1]), (number for number in [1])])

    def test_a_result_that_cannot_be_copied_is_refused(self) -> None:
        class Shown:
            def __getstate__(self) -> int:  # which nothing takes back
                return 1

        with pytest.raises(CannotCompare, match=r"\.Shown, which cannot be copied: .*write __setstate__\(\)"):
            plain(Shown())
