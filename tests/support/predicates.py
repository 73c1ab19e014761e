"""Random predicates, as trees and as text, and attributes for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from unisono.core.predicate import Value

NAMES = ("a", "b", "c.d")
values = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.5]),
    st.text("xy'\\", max_size=2),
)
attributes = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)
Tree = tuple[Any, ...]


def literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


@st.composite
def compared(draw: st.DrawFn) -> Tree:
    name, value = draw(st.sampled_from(NAMES)), draw(values)
    signs = ["==", "!="] if isinstance(value, bool) else ["==", "!=", "<", "<=", ">", ">="]
    return ("compare", name, draw(st.sampled_from(signs)), value)


trees: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(
        compared(),
        st.tuples(st.just("exists"), st.sampled_from(NAMES)),
        st.tuples(st.just("in"), st.sampled_from(NAMES), st.lists(values, min_size=1, max_size=3)),
        st.tuples(st.just("prefix"), st.sampled_from(NAMES), st.text("xy", max_size=1)),
    ),
    lambda parts: st.one_of(
        st.tuples(st.just("not"), parts),
        st.tuples(st.sampled_from(["and", "or"]), parts, parts),
    ),
    max_leaves=6,
)


def written(tree: Tree) -> str:
    match tree:
        case ("compare", name, sign, value):
            return f"{name} {sign} {literal(value)}"
        case ("exists", name):
            return f"exists {name}"
        case ("in", name, list(found)):
            return f"{name} in ({', '.join(map(literal, found))})"
        case ("prefix", name, begin):
            return f"{name} prefix {literal(begin)}"
        case ("not", part):
            return f"not ({written(part)})"
        case (word, one, other):
            return f"({written(one)}) {word} ({written(other)})"
    raise AssertionError(tree)
