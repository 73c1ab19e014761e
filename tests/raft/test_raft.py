"""What Raft's papers say of one voter, claim by claim: messages in, what is asked for out."""

from __future__ import annotations

from random import Random

import msgspec
from support.raft_cluster import Cluster, Faults

from unisono.core.effects import Effect, Send, SetTimer, Store
from unisono.core.machine import Outbox
from unisono.core.observations import Observed
from unisono.raft.followers import Flush
from unisono.raft.keep import STORE_BALLOT, Ballot, Keep
from unisono.raft.log import Base, Log
from unisono.raft.messages import (
    Appended,
    AppendEntries,
    Configuration,
    Entry,
    Kind,
    Mismatch,
    RaftMessage,
    RequestVote,
    TimeoutNow,
    Vote,
)
from unisono.raft.observations import LeaderElected, MessageRefused, OtherLog
from unisono.raft.raft import Election, Raft, Role

PERIOD = 1_000_000
A, B, C = "abc"


def entry(term: int, data: bytes = b"x") -> Entry:
    return Entry(term, Kind.DATA, data)


def voter(
    *entries: Entry, voters: str = "abc", term: int = 0, durable: bool = False, voted: str = ""
) -> tuple[Raft, Outbox]:
    out = Outbox()
    base = Base(configuration=Configuration(tuple(voters)))
    ballot = Ballot("log", term, voted)
    raft = Raft(
        out, A, "log", Log(base, entries), Random(1), period_us=PERIOD, ballot=ballot,
        durable=durable,
    )  # fmt: skip
    raft.start(0)
    out.take()
    return raft, out


def sent(effects: list[Effect]) -> list[tuple[str, RaftMessage]]:
    return [(e.to, e.message) for e in effects if isinstance(e, Send)]  # type: ignore[misc]


def lead(raft: Raft, out: Outbox, now: int = 10 * PERIOD) -> None:
    """Elected by b."""
    raft.fire(Election(), now)
    raft.receive(Vote("log", raft.term + 1, True, True), B, now)
    raft.receive(Vote("log", raft.term, False, True), B, now)
    assert raft.role is Role.LEADER
    out.take()


def test_a_silent_leader_is_stood_against_only_if_a_majority_would_vote() -> None:
    """Pre-vote (thesis 9.6): the term does not rise before."""
    raft, out = voter(term=3)
    raft.fire(Election(), 10 * PERIOD)
    asked = RequestVote("log", 4, 0, 0, True)
    assert sent(out.take()) == [(B, asked), (C, asked)]
    assert raft.role is Role.PRE_CANDIDATE and raft.term == 3
    raft.receive(Vote("log", 4, True, True), B, 10 * PERIOD)
    asked = RequestVote("log", 4, 0, 0, False)
    assert sent(out.take()) == [(B, asked), (C, asked)]
    raft.receive(Vote("log", 4, False, True), C, 10 * PERIOD)
    assert raft.leads and raft.leader == A and raft.term == 4


def test_a_vote_is_stored_before_it_is_told() -> None:
    raft, out = voter(durable=True)
    raft.receive(RequestVote("log", 5, 0, 0, False), B, 10 * PERIOD)
    effects = sorted(out.take(), key=lambda effect: effect.rank)
    kinds = [type(effect) for effect in effects if isinstance(effect, Store | Send)]
    assert kinds == [Store, Store, Send]  # the term, the vote, then the answer
    stored = [effect for effect in effects if isinstance(effect, Store)][-1]
    assert stored.key == STORE_BALLOT and stored.value is not None
    assert msgspec.msgpack.decode(stored.value, type=Ballot) == Ballot("log", 5, B)


def test_one_vote_a_term() -> None:
    raft, out = voter()
    raft.receive(RequestVote("log", 5, 0, 0, False), B, 10 * PERIOD)
    raft.receive(RequestVote("log", 5, 9, 4, False), C, 10 * PERIOD)
    raft.receive(RequestVote("log", 5, 0, 0, False), B, 10 * PERIOD)
    votes = [message for _, message in sent(out.take())]
    assert [vote.granted for vote in votes if isinstance(vote, Vote)] == [True, False, True]


def test_a_vote_over_a_restart() -> None:
    raft, out = voter(term=5, voted=B)
    raft.receive(RequestVote("log", 5, 9, 4, False), C, 10 * PERIOD)
    assert sent(out.take()) == [(C, Vote("log", 5, False, False))]


def test_who_lacks_entries_gets_no_vote() -> None:
    """Section 5.4.1: the last term counts, then the length."""
    for last_index, last_term, granted in (
        (9, 1, False),
        (1, 2, False),
        (2, 2, True),
        (1, 3, True),
    ):
        raft, out = voter(entry(1), entry(2), term=3)
        raft.receive(RequestVote("log", 4, last_index, last_term, False), B, 10 * PERIOD)
        assert sent(out.take()) == [(B, Vote("log", 4, False, granted))]


def test_who_hears_a_leader_does_not_vote_against_it() -> None:
    """Thesis 4.2.3; but for whom the leader itself told to stand."""
    raft, out = voter()
    raft.receive(AppendEntries("log", 1, 0, 0, (), 0), B, 10 * PERIOD)
    out.take()
    for pre in (True, False):
        raft.receive(RequestVote("log", 2, 9, 9, pre), C, 11 * PERIOD)
    assert sent(out.take()) == [] and raft.term == 1
    raft.receive(RequestVote("log", 2, 9, 9, False, transfer=True), C, 11 * PERIOD)
    assert sent(out.take()) == [(C, Vote("log", 2, False, True))]


def test_a_follower_takes_what_fits_and_says_where_it_does_not() -> None:
    raft, out = voter(entry(1), entry(1))
    raft.receive(AppendEntries("log", 2, 4, 2, (entry(2),), 0), B, 0)
    assert sent(out.take()) == [(B, Mismatch("log", 2, 4, 2))]
    raft.receive(AppendEntries("log", 2, 1, 1, (entry(2), entry(2)), 0), B, 0)
    assert sent(out.take()) == [(B, Appended("log", 2, 3))]
    assert [raft.log[i].term for i in (1, 2, 3)] == [1, 2, 2]


def test_a_late_append_takes_nothing_away() -> None:
    """Section 5.3, step 3 of AppendEntries: only a conflict truncates."""
    raft, out = voter()
    raft.receive(AppendEntries("log", 1, 0, 0, (entry(1), entry(1), entry(1)), 2), B, 0)
    raft.receive(AppendEntries("log", 1, 0, 0, (entry(1),), 0), B, 0)
    assert raft.log.last == 3 and raft.committed == 2
    assert sent(out.take())[-1] == (B, Appended("log", 1, 3))


def test_what_is_committed_is_never_replaced() -> None:
    raft, out = voter()
    raft.receive(AppendEntries("log", 1, 0, 0, (entry(1),), 1), B, 0)
    raft.receive(AppendEntries("log", 2, 0, 0, (entry(2),), 1), C, 0)
    refused = [e.observation for e in out.take() if isinstance(e, Observed)]
    assert len(refused) == 1 and isinstance(refused[0], MessageRefused)
    assert raft.log[1].term == 1


def test_a_follower_commits_only_what_it_compared() -> None:
    raft, _ = voter(entry(1), entry(1), entry(1))
    raft.receive(AppendEntries("log", 2, 1, 1, (), 3), B, 0)
    assert raft.committed == 1


def test_entries_of_older_terms_are_committed_with_one_of_this() -> None:
    """Section 5.4.2 and figure 8: counting copies is not enough."""
    raft, out = voter(entry(1), entry(2), term=2)
    lead(raft, out)
    raft.receive(Appended("log", 3, 2), B, 10 * PERIOD)
    assert raft.committed == 0 and not raft.serves
    raft.receive(Appended("log", 3, 3), B, 10 * PERIOD)
    assert raft.committed == 3 and raft.serves


def test_nobody_counts_an_entry_before_its_sync() -> None:
    raft, out = voter(durable=True)
    lead(raft, out)
    raft.receive(Appended("log", 1, 1), B, 10 * PERIOD)
    assert raft.committed == 0  # b has it, the leader does not yet
    raft.written(1, 10 * PERIOD)
    assert raft.committed == 1

    raft, out = voter(durable=True)
    raft.receive(AppendEntries("log", 1, 0, 0, (entry(1),), 0), B, 0)
    effects = out.take()
    assert sent(effects) == []
    assert [type(effect) for effect in effects if isinstance(effect, Keep)] == [Keep]
    raft.written(1, 0)
    assert sent(out.take()) == [(B, Appended("log", 1, 1))]


def test_what_comes_up_in_a_turn_goes_out_at_its_end() -> None:
    raft, out = voter()
    lead(raft, out)
    raft.receive(Appended("log", 1, 1), B, 10 * PERIOD)
    out.take()
    for _ in range(5):
        raft.propose(b"x", 10 * PERIOD)
    effects = out.take()
    assert sent(effects) == []
    assert effects == [SetTimer(Flush(), 10 * PERIOD)]
    raft.fire(Flush(), 10 * PERIOD)
    (message,) = [message for to, message in sent(out.take()) if to == B]
    assert isinstance(message, AppendEntries) and len(message.entries) == 5


def test_messages_of_another_log_change_nothing() -> None:
    raft, out = voter()
    raft.receive(AppendEntries("other", 9, 0, 0, (entry(9),), 1), B, 0)
    assert raft.term == 0 and raft.log.last == 0
    assert out.take() == [Observed(OtherLog(B, "other", "log"))]


def test_a_voter_that_is_alone_leads_at_once() -> None:
    out = Outbox()
    base = Base(configuration=Configuration((A,)))
    raft = Raft(out, A, "log", Log(base), Random(1), period_us=PERIOD)
    raft.start(0)
    assert raft.serves and raft.propose(b"x", 0) == 2 and raft.committed == 2
    assert Observed(LeaderElected(1)) in out.take()


def test_only_its_leader_tells_a_voter_to_stand() -> None:
    raft, out = voter()
    raft.receive(AppendEntries("log", 1, 0, 0, (), 0), B, 0)
    out.take()
    raft.receive(TimeoutNow("log", 1), C, 0)
    assert raft.term == 1 and sent(out.take()) == []
    raft.receive(TimeoutNow("log", 1), B, 0)
    asked = RequestVote("log", 2, 0, 0, pre=False, transfer=True)
    assert sent(out.take()) == [(B, asked), (C, asked)]


def test_a_leader_hands_over_within_a_round_trip() -> None:
    cluster = Cluster(1, 3, faults=Faults(delay_us=1000))
    cluster.run(5)
    for _ in range(3):
        cluster.propose()
    old = cluster.leader
    to = next(name for name in cluster.names if name != old.name)
    cluster.do(old, lambda now: old.raft.transfer(to, now))
    cluster.run(0.5)
    assert cluster.leader.name == to and not old.raft.leads
    cluster.settle()


def test_voters_are_replaced_one_and_all() -> None:
    cluster = Cluster(3, 3, spares=3, faults=Faults(delay_us=1000))
    cluster.run(5)
    for _ in range(20):
        cluster.propose()
    leader = cluster.leader
    wanted = ("p3", "p4", "p5")
    cluster.do(leader, lambda now: leader.raft.teach(set(wanted), now))
    assert not leader.raft.change_voters(wanted, cluster.now)  # they have nothing yet
    cluster.run(1)
    cluster.do(leader, lambda now: leader.raft.change_voters(wanted, now))
    cluster.run(5)
    assert cluster.leader.name in wanted
    assert cluster.leader.raft.log.configuration == Configuration(wanted)
    cluster.settle()


def test_without_faults_an_entry_takes_two_messages_a_follower() -> None:
    cluster = Cluster(5, 3, faults=Faults(delay_us=1000, sync_us=100))
    cluster.run(20)
    before = cluster.sent.copy()
    for _ in range(100):
        cluster.propose()
        cluster.run(0.02)
    more = cluster.sent - before
    periods = 2 * (2 + 1)  # signs of life
    assert more["AppendEntries"] <= 200 + periods
    assert more["Appended"] <= 200 + periods
    assert set(more) == {"AppendEntries", "Appended"}
