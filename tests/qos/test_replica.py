"""Copies of a manager: a majority before anyone is told, no answer to managers of older views."""

from __future__ import annotations

import pytest

from unisono.core.effects import Effect, Send, Store
from unisono.core.limits import Limits
from unisono.qos.membership import Membership
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.manager import TopicManager
from unisono.qos.total_order.order import Orders, TopicOrder, ranking
from unisono.qos.total_order.replica import Held, Parts, Replica, load_held
from unisono.qos.total_order.state import ManagerState
from unisono.qos.views import NewView, Past, View

NAMES = ("a", "b", "c")
MANAGER, COPY, _ = ranking("t", NAMES)


def request(turn: int) -> msg.RequestStamp:
    return msg.RequestStamp("t", 1, f"e{turn}", "p", turn)


def replica(durable: bool = False) -> Replica:
    state = ManagerState("t")
    manager = TopicManager(state, Orders(TopicOrder()), True, Limits())
    return Replica(Held(1, 0, state), manager, durable)


def stamps(leader: Replica) -> list[str]:
    return [m.event_id for _, m in leader.told() if isinstance(m, msg.StampReady)]


def test_letters_wait_for_a_majority() -> None:
    leader = replica()
    leader.lead_fresh(("x", "y"))
    leader.take(request(1))
    assert stamps(leader) == []
    leader.copied("x", 1)
    assert stamps(leader) == ["e1"]
    leader.copied("y", 1)
    assert stamps(leader) == []  # told once


def test_what_comes_while_a_batch_is_under_way_makes_the_next() -> None:
    leader = replica()
    leader.lead_fresh(("x", "y"))
    sent = [leader.take(request(turn)) for turn in (1, 2, 3)]
    assert [len(effects) for effects in sent] == [2, 0, 0]
    copies = [e.message for e in leader.copied("x", 1) if isinstance(e, Send)]
    assert [(m.index, len(m.entries)) for m in copies if isinstance(m, msg.Copy)] == [(2, 2)] * 2


def test_a_long_queue_reaches_the_copies_whole_and_in_order() -> None:
    leader, copy = replica(), replica()
    leader.lead_fresh(("x",))
    sent = [effect for turn in range(1, 3001) for effect in leader.take(request(turn))]
    for _ in range(3):
        for effect in sent:
            assert isinstance(effect, Send) and isinstance(effect.message, msg.Copy)
            assert copy.follow(effect.message) == []
        sent = leader.copied("x", copy.held.index)
    assert sent == [] and len(stamps(leader)) == 3000
    assert copy.held == leader.held


def test_a_copy_that_lags_is_sent_what_it_lacks_or_everything() -> None:
    leader, copy = replica(), replica()
    leader.lead_fresh(("x", "y"))
    for turn in range(1, 301):
        leader.take(request(turn))
        leader.copied("x", turn)
    leader.again()  # what was under way has its time
    for effect in leader.again():
        assert isinstance(effect, Send) and effect.to == "y"
        assert isinstance(effect.message, msg.Copy)
        copy.follow(effect.message)
    assert copy.held == leader.held
    for turn in range(301, 1001):
        leader.take(request(turn))
        leader.copied("x", turn)
    leader.copied("y", copy.held.index)
    leader.again()
    assert {type(e.message) for e in leader.again() if isinstance(e, Send)} == {msg.Adopt}


def test_asking_again_leaves_nothing_behind() -> None:
    """What is taken while a batch is under way goes out with its confirmation, whenever a period
    ends (once it waited for the next period)."""
    leader = replica()
    leader.lead_fresh(("x",))
    leader.take(request(1))
    leader.take(request(2))
    assert leader.again() == []
    sent = [e.message for e in leader.copied("x", 1) if isinstance(e, Send)]
    assert [(m.index, len(m.entries)) for m in sent if isinstance(m, msg.Copy)] == [(2, 1)]


def test_parts_of_two_states_are_not_put_together() -> None:
    parts = Parts()
    older, newer = (
        [msg.Adopt(1, "t", index, n, 2, b"%d" % index) for n in (0, 1)] for index in (3, 4)
    )
    assert parts.whole("a", older[0]) is None
    assert parts.whole("a", newer[1]) is None
    assert parts.whole("a", older[1]) is None
    assert parts.whole("b", newer[0]) is None
    assert parts.whole("a", newer[0]) == b"44"


def test_a_copy_that_misses_something_says_so_and_takes_nothing_twice() -> None:
    copy = replica()
    first, late = msg.Copy(1, "t", 1, (request(1),)), msg.Copy(1, "t", 2, (request(2),))
    assert copy.follow(late) is None
    assert copy.follow(first) == []
    assert copy.follow(late) == []
    assert copy.held.index == 2 and copy.held.state.number == 2
    assert copy.follow(first) == [] and copy.held.index == 2  # a duplicate


def answers(effects: object) -> list[Effect]:
    assert isinstance(effects, list)
    return [e for e in effects if isinstance(e, Send) and isinstance(e.message, msg.Copied)]


def test_a_manager_that_returns_late_gets_no_answer() -> None:
    """Fencing: the copy follows view 2, so the manager of view 1 never has a majority."""
    members = Membership(COPY, Limits(), initial=View("bus", 1, NAMES, replicas=3))
    layer = TotalOrder(COPY, members)
    layer.start(0)
    first = msg.Copy(1, "t", 1, (request(1),))
    assert len(answers(layer.receive(first, MANAGER, 1))) == 1
    rest = tuple(name for name in NAMES if name != MANAGER)
    layer.receive(NewView(View("bus", 2, rest, (Past(1, NAMES),), replicas=3)), rest[-1], 2)
    second = msg.Copy(1, "t", 2, (request(2),))
    assert answers(layer.receive(second, MANAGER, 3)) == []
    assert layer.replicas["t"].held.state.number == 1


def test_a_new_epoch_is_stored_whole() -> None:
    """Else a restart under the order after the next could not load it, and would know nothing."""
    copy = replica(durable=True)
    stored = copy.follow(msg.Copy(1, "t", 1, (request(1), request(2), msg.Close("t", 1, 0))))
    assert stored is not None
    following = copy.follow(msg.Copy(1, "t", 4, (msg.Open("t", 1, 1, (), {}, {}, ()),)))
    assert following is not None
    kept = {e.key: e.value for e in (*stored, *following) if isinstance(e, Store)}
    ((held, entries),) = load_held({k: v for k, v in kept.items() if v is not None})
    assert held.state.epoch.number == 1 and entries == []


def test_without_a_majority_no_more_than_a_backlog_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unisono.qos.total_order.replica._BACKLOG", 5)
    leader = replica()
    leader.lead_fresh(("x", "y"))
    for turn in range(1, 6):
        assert not leader.full
        leader.take(request(turn))
    assert leader.full
    leader.copied("x", 3)
    assert not leader.full
