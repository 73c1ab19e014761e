"""Messages of the mesh: encoding and decoding are inverse, and what is not one changes nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core.wire import Rejected
from unisono.ens.scribe.messages import MESSAGES, Message, Part, decode, encode


def small(thing: Any) -> Any:
    """The same with numbers that fit into 64 bits."""
    if isinstance(thing, Part):
        return type(thing)(*(small(getattr(thing, field)) for field in thing.__struct_fields__))
    if isinstance(thing, tuple):
        return tuple(map(small, thing))
    return thing % 2**63 if type(thing) is int else thing


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind: Any = draw(st.sampled_from(MESSAGES))
    message: Message = small(draw(st.builds(kind)))
    return message


@given(messages())
def test_decoding_is_the_inverse_of_encoding(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    with suppress(Rejected):
        message = decode(data)
        assert decode(encode(message)) == message


@given(messages(), st.data())
def test_cut_and_changed_messages(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(Rejected):
        decode(cut)
