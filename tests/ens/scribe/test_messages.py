"""Messages of the mesh: encoding and decoding are inverse, and what is not one changes nothing."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nonsense import nonsense

from unisono.core.wire import Rejected
from unisono.ens.scribe import messages as m
from unisono.ens.scribe.messages import Message, decode, encode

WORDS = ("", "a", "b", "\x00", "\u2713" * 20)


def messages() -> st.SearchStrategy[Message]:
    return st.randoms(use_true_random=False).map(lambda rng: nonsense(rng, WORDS))


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


HOME = m.Contact("rome", 0, 1, ("a",))


@pytest.mark.parametrize(
    "message",
    [
        m.Views(m.View("rome", 1, ())),
        m.Ping(0, "rome", m.Contact("rome", 0, 1, ()), 0),
        m.Ping(8, "rome", HOME, 0),
        m.Ping(-1, "rome", HOME, 0),
        m.Path(0, "t", "rome", (), True),
        m.Offers(0, "t", ()),
        m.Found("rome", HOME, (), 0, 1, 1000, 4),
        m.Found("rome", HOME, (), 2, 1, 0, 4),
        m.Up(0, m.Item("t", "a", 1, b""), HOME, hops=-1),
        m.Views(m.View("rome", 1 << 63, (m.Member("a", "a", True),))),
    ],
)
def test_what_nobody_could_act_on_is_refused(message: Message) -> None:
    with pytest.raises(Rejected, match="malformed"):
        decode(encode(message))
