"""Whom a site asks, and when it gives them up."""

from __future__ import annotations

from unisono.ens.scribe.messages import Contact
from unisono.ens.scribe.pastry import Ring


def named(count: int) -> list[Contact]:
    return [Contact(f"s{number}", 0, 1, (f"a{number}",)) for number in range(count)]


def test_who_is_named_often_is_asked_at_once_and_only_once() -> None:
    ring = Ring("here", 0, leaves=2)
    (one,) = named(1)
    for expected in ([one], [], [], []):  # all of it before any answer can have come
        ring.hear_of([one])
        assert ring.ask() == expected
        assert not ring.give_up()
    assert not ring.settled


def test_who_does_not_answer_is_asked_again_and_given_up() -> None:
    ring = Ring("here", 0, leaves=2)
    silent, speaks = named(2)
    ring.hear_of([silent, speaks])
    asked = [ring.ask()]
    ring.hear(speaks, 10)
    while not (given_up := ring.give_up()):
        asked.append(ring.ask(again=True))
    assert asked == [[silent, speaks], [silent], [silent]]
    assert given_up == [silent]
    assert ring.settled


def test_who_answers_and_has_no_place_is_not_given_up() -> None:
    ring = Ring("here", 0, leaves=1)
    many = named(40)
    ring.hear_of(many)
    for _ in range(8):
        assert not ring.give_up()
        for contact in ring.ask(again=True):
            ring.hear(contact, 10)
    assert ring.settled
    assert len(ring.known) < len(many)
