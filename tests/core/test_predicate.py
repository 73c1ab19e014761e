"""The predicate language: what it means, what it refuses, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.predicates import Tree, attributes, trees, written

from unisono.core.predicate import DEPTH_MAX, LENGTH_MAX, BadPredicate, Value, parse
from unisono.errors import BadInput

IBM: dict[str, Value] = {"symbol": "IBM", "change": 0.7, "lot": 100, "urgent": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symbol == 'IBM' and change > 0.5", True),
        ('symbol == "IBM" and change > 0.7', False),
        ("symbol != 'IBM' or lot >= 100", True),
        ("not symbol == 'IBM' or lot < 1e2", False),
        ("symbol in ('SUN', 'IBM')", True),
        ("symbol not in ('SUN', 'IBM')", False),
        ("lot in (1, 100.0)", True),
        ("symbol prefix 'I'", True),
        ("symbol prefix 'BM'", False),
        ("exists urgent and not exists price", True),
        ("urgent == true", True),
        ("urgent != false", True),
        ("symbol == 'IBM' or symbol == 'SUN' and lot == 0", True),
        ("(symbol == 'IBM' or symbol == 'SUN') and lot == 0", False),
        ("  lot\n==\t+100 ", True),
    ],
)
def test_what_matches(text: str, expected: bool) -> None:
    assert parse(text).matches(IBM) is expected


@pytest.mark.parametrize(
    "text",
    [
        "price > 1",
        "not price > 1",
        "price != 1",
        "price in (1, 2)",
        "price not in (1, 2)",
        "not (price == 1 and price == 2)",
        "symbol > 1",
        "lot == '100'",
        "urgent == 1",
        "lot prefix '1'",
        "not lot prefix '1'",
        "not (price == 1 or lot == 1)",
    ],
)
def test_an_unknown_attribute_or_another_type_does_not_match(text: str) -> None:
    """Nor does its opposite."""
    assert not parse(text).matches(IBM)


def test_what_is_known_decides_where_it_can() -> None:
    assert parse("price == 1 or lot == 100").matches(IBM)
    assert parse("not (price == 1 and lot == 0)").matches(IBM)


def test_quotes_and_backslashes_are_escaped() -> None:
    assert parse(r"name == 'it\'s'").matches({"name": "it's"})
    assert parse('name == "a\\\\b"').matches({"name": "a\\b"})
    assert parse("name == 'tab\there'").matches({"name": "tab\there"})


@pytest.mark.parametrize(
    ("text", "position", "fault"),
    [
        ("", 0, "attribute"),
        ("symbol", 6, "comparison"),
        ("symbol = 'IBM'", 7, "'='"),
        ("symbol == IBM", 10, "string in quotes"),
        ("symbol == 'IBM", 10, "without its end"),
        ("a == 1 b == 2", 7, "and, or"),
        ("a == 1 and", 10, "attribute"),
        ("(a == 1", 7, "')'"),
        ("a in 1", 5, "'('"),
        ("a in ()", 6, "string in quotes"),
        ("a in (1 2)", 8, "','"),
        ("a prefix 1", 9, "string"),
        ("a > true", 4, "== and !="),
        ("exists and", 7, "attribute"),
        ("a == 1e999", 5, "too large"),
        ("a == " + "9" * 40, 5, "digits"),
        ("a == 1\u2003", 6, "understood"),
        ("__import__('os')", 10, "comparison"),
        ("a not 1", 6, "in expected"),
    ],
)
def test_a_wrong_predicate_is_refused_with_the_position_of_the_fault(
    text: str, position: int, fault: str
) -> None:
    with pytest.raises(BadPredicate, match="position") as caught:
        parse(text)
    assert caught.value.position == position
    assert fault in str(caught.value)
    assert isinstance(caught.value, BadInput)


def test_size_and_depth_have_bounds() -> None:
    with pytest.raises(BadPredicate):
        parse("a == 1 and " * LENGTH_MAX + "a == 1")
    for opening in ("(", "not "):
        with pytest.raises(BadPredicate, match="deep"):
            parse(opening * (DEPTH_MAX + 5) + "a == 1" + ")" * (DEPTH_MAX + 5))
    with pytest.raises(BadPredicate):
        parse(7)  # type: ignore[arg-type]


# Meaning, against an evaluation of its own.


def comparable(one: object, other: object) -> bool:
    def kind(value: object) -> str:
        return "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"

    return kind(one) == kind(other)


def judged(tree: Tree, event: dict[str, Value]) -> float:
    """1 true, 0 false, 0.5 unknown: and is the least, or the greatest, not the rest to 1."""
    match tree:
        case ("compare", name, sign, value):
            if name not in event or not comparable(event[name], value):
                return 0.5
            one, other = event[name], value
            less, equal = (one < other, one == other)
            return float(
                {"==": equal, "!=": not equal, "<": less, "<=": less or equal}.get(
                    str(sign), not less if sign == ">=" else not (less or equal)
                )
            )
        case ("exists", name):
            return float(name in event)
        case ("in", name, list(found)):
            alike = [v for v in found if name in event and comparable(event[name], v)]
            return float(event[name] in alike) if alike else 0.5
        case ("prefix", name, begin):
            value = event.get(name)
            return float(value.startswith(begin)) if isinstance(value, str) else 0.5
        case ("not", part):
            return 1 - judged(part, event)
        case (word, one, other):
            both = judged(one, event), judged(other, event)
            return min(both) if word == "and" else max(both)
    raise AssertionError(tree)


@given(trees, attributes)
def test_it_means_what_three_valued_logic_says(tree: Tree, event: dict[str, Value]) -> None:
    assert parse(written(tree)).matches(event) is (judged(tree, event) == 1)


@given(trees, attributes)
def test_what_matches_is_possible(tree: Tree, event: dict[str, Value]) -> None:
    """For whoever knows only which attributes are there, and for whoever knows nothing."""

    def has(name: str, value: Value | None) -> bool:
        found = event.get(name)
        return found is not None and (
            value is None or (comparable(found, value) and found == value)
        )

    predicate = parse(written(tree))
    assert predicate.possible(has) or not predicate.matches(event)
    assert predicate.possible(lambda name, value: True) or not predicate.matches(event)


# Anything may be handed in.

words = st.sampled_from(
    [
        "and",
        "or",
        "not",
        "in",
        "prefix",
        "exists",
        "true",
        "(",
        ")",
        ",",
        "==",
        "<",
        "a",
        "'x'",
        "1",
    ]
)


@given(st.one_of(st.text(), st.lists(words, max_size=12).map(" ".join), st.binary().map(str)))
def test_no_input_raises_anything_else(text: str) -> None:
    position = 0
    try:
        predicate = parse(text)
        assert predicate.matches({"a": 1}) in (True, False)
        assert predicate.possible(lambda name, value: True) in (True, False)
    except BadPredicate as error:
        position = error.position
    assert 0 <= position <= len(text)
