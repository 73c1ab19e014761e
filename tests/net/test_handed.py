"""What must be known before it can be said that coordinators have all events: against a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unisono.net.handed import Handed

STEPS = st.one_of(
    st.frozensets(st.sampled_from("abc")),  # one more is handed to these
    st.sampled_from("abc"),  # this one is gone, with all it had
    st.sampled_from("ABC").map(lambda name: (name.lower(),)),  # this one has flushed
)


@given(st.lists(STEPS, max_size=30))
def test_it_is_covered_if_every_event_is_with_somebody(steps: list[object]) -> None:
    handed = Handed()
    sent: dict[int, set[str]] = {}  # to whom, with whom it may still be
    for step in steps:
        if isinstance(step, frozenset):
            handed.publish(sorted(step))
            sent[handed.published] = set(step)
        elif isinstance(step, str):
            handed.gone(step)
            for to in sent.values():
                to.discard(step)
        else:
            assert isinstance(step, tuple)
            asked = {step[0]: handed.ranges[step[0]]} if step[0] in handed.ranges else {}
            said = handed.covered(asked, handed.published)
            with_it = all(step[0] in to for number, to in sent.items() if number > handed.confirmed)
            assert said <= with_it, "yes, though something may be lost"
            assert all(handed.has(to, asked[to]) for to in asked)
            if said:
                handed.confirm(handed.published)
    everybody = handed.covered(handed.ranges, handed.published)
    assert everybody <= all(to for number, to in sent.items() if number > handed.confirmed)
    assert len(handed.ranges) <= 3


def test_coordinators_one_after_the_other_have_it_together() -> None:
    handed = Handed()
    handed.publish("a")
    handed.publish("ab")
    handed.publish("b")
    assert handed.ranges == {"a": (1, 2), "b": (2, 3)}
    assert handed.covered(handed.ranges, 3)
    assert not handed.covered({"b": (2, 3)}, 3)
    handed.gone("a")
    assert not handed.covered(handed.ranges, 3)
    assert not handed.has("a", (1, 2))
    handed.confirm(3)
    assert handed.has("a", (1, 2)), "it does not matter any more"
    assert handed.covered({}, 3)


def test_who_was_left_out_once_begins_anew() -> None:
    handed = Handed()
    handed.publish("a")
    handed.publish("b")
    handed.publish("a")
    assert handed.ranges["a"] == (3, 3)
    assert not handed.covered(handed.ranges, 3)  # of 1 it is not known any more
