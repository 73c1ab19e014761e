"""Sessions with many peers: how they begin, are told apart, replaced and forgotten. No I/O.

    A -> B  hello     version, kind, nonce (12), sealed: boot of A, attempt, padding
    B -> A  answer    version, kind, nonce (12), sealed: boot of A, attempt, boot of B, ticket,
                      cookie
    A -> B  confirm   the header of data, then boot of A, attempt, ticket, cookie, and a tag under
                      the keys of the session

Boots are random ids that processes draw when they start; the attempt is A's, at random; tickets
count B's answers; the cookie ties the answer to A's address. Hello and answer are of the same size
and B keeps nothing of A before it confirms, so an address that has not proved itself gets no more
bytes than it sent and takes no memory. A sends packets only when it has heard B under the keys of
the session, so whatever is resent in the next session cannot have come in by an earlier one.

A session replaces another of the same address only when it was begun later. If both begin at once,
that of the smaller boot stays. Whatever is not accepted is counted by reason and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

from unisono.core.wire import Rejected
from unisono.net.keys import Key
from unisono.net.sealing import (
    ANSWER,
    CONFIRM,
    DATA,
    GOODBYE,
    HEADER,
    HEADER_BYTES,
    HELLO,
    MAX_DATAGRAM,
    OVERHEAD_BYTES,
    TAG_BYTES,
    VERSION,
    Address,
    Session,
    Suite,
)

REASONS = (
    "too short",
    "too long",
    "unknown version",
    "unknown session",
    "wrong key",
    "replayed",
    "malformed",
    "unverified",
    "too many peers",
)
PEERS = 1024  # at the bound the longest silent is forgotten, if it was silent long enough
GIVE_UP_US = 5_000_000  # without an answer
_SPARE_US = 1_000_000  # a peer heard since is not forgotten for another
_RETRY_US, _RETRY_MAX_US = 50_000, 1_000_000
_ANSWER = Struct(">16s16s16sQ16s")
_CONFIRM = Struct(">16s16sQ16s")
_NONCE_BYTES, _HELLO_AT = 12, 14
HELLO_BYTES = _HELLO_AT + _ANSWER.size + TAG_BYTES
CONFIRM_BYTES = HEADER_BYTES + _CONFIRM.size + TAG_BYTES


@dataclass(frozen=True, slots=True)
class Change:
    """From now on packets for the address go by this session; without one, it is gone. `resumes`:
    nothing sent so far has come in there, and all of it may be sent again."""

    address: Address
    session: Session | None
    resumes: bool


class _Peer:
    __slots__ = ("attempt", "next_us", "proof", "session", "started_us", "tries")

    def __init__(self, now_us: int) -> None:
        self.session: Session | None = None
        self.attempt = b""  # of ours that is under way
        self.proof = b""  # what shows that it was answered
        self.started_us = self.next_us = now_us
        self.tries = 0

    def heard_us(self) -> int:
        return self.session.heard_us if self.session is not None else self.started_us


class Sessions:
    """All sessions of one process. After each call: `outbox` holds datagrams to send, `changes`
    what became of peers; the caller takes both."""

    def __init__(
        self,
        key: Key | None,
        random: Callable[[int], bytes],
        peers: int = PEERS,
        give_up_us: int = GIVE_UP_US,
    ) -> None:
        self.outbox: list[tuple[Address, bytes]] = []
        self.changes: list[Change] = []
        self.rejected = dict.fromkeys(REASONS, 0)
        self._suite = Suite(key)
        self._random = random
        self.boot = random(16)
        self._secret = random(32)
        self._bound = peers
        self._give_up_us = give_up_us
        self._peers: dict[Address, _Peer] = {}
        self._attempts: dict[Address, _Peer] = {}
        self._by_id: dict[int, Session] = {}
        self._tickets = 0
        self._floor = 0  # tickets up to this one are void: used by a session that is gone, or old
        self._mark, self._marked_us = 0, 0  # how many there were, and when

    def __len__(self) -> int:
        return len(self._peers)

    def open(
        self, datagram: memoryview, address: Address, now_us: int
    ) -> tuple[Session, bytes] | None:
        """The session and the packet of a datagram of data; None for everything else."""
        try:
            if len(datagram) < OVERHEAD_BYTES:
                raise Rejected("too short")
            if len(datagram) > MAX_DATAGRAM:
                raise Rejected("too long")
            version, kind, number, counter = HEADER.unpack_from(datagram)
            if version != VERSION:
                raise Rejected("unknown version")
            if kind in (DATA, GOODBYE):
                session = self._by_id.get(number)
                if session is None:
                    raise Rejected("unknown session")
                if session.address != address:
                    raise Rejected("unverified")
                packet = session.open(datagram, counter)
                session.heard_us = now_us
                if not session.confirmed:
                    self._confirmed(session)
                if kind == DATA:
                    return session, packet
                self._forget(address)
                self.changes.append(Change(address, None, False))
            elif kind == HELLO:
                self._hello(datagram, address, now_us)
            elif kind == ANSWER:
                self._answer(datagram, address, now_us)
            elif kind == CONFIRM:
                self._confirm(datagram, number, counter, address, now_us)
            else:
                raise Rejected("malformed")
        except Rejected as rejected:
            self.rejected[rejected.reason] += 1
        return None

    def connect(self, address: Address, now_us: int) -> bool:
        """Begin a session with the address unless there is one; False if there is no room."""
        if address in self._peers:
            return True
        if not self._make_room(now_us):
            return False
        peer = self._peers[address] = self._attempts[address] = _Peer(now_us)
        peer.attempt = self._random(16)
        self._try(address, peer, now_us)
        return True

    def drop(self, address: Address) -> None:
        """Forget a peer, and tell it."""
        peer = self._peers.get(address)
        if peer is not None and peer.session is not None and peer.session.confirmed:
            self.outbox.append((address, peer.session.seal(b"", GOODBYE)))
        self._forget(address)

    def next_timer(self) -> int | None:
        return min((peer.next_us for peer in self._attempts.values()), default=None)

    def timer(self, now_us: int) -> None:
        for address, peer in list(self._attempts.items()):
            if now_us - peer.started_us >= self._give_up_us:
                self._forget(address)
                self.changes.append(Change(address, None, False))
            elif now_us >= peer.next_us:
                self._try(address, peer, now_us)

    def _try(self, address: Address, peer: _Peer, now_us: int) -> None:
        """Say hello, and confirm what was answered: either may have been lost."""
        peer.next_us = now_us + min(_RETRY_US << peer.tries, _RETRY_MAX_US)
        peer.tries = min(peer.tries + 1, 10)
        hello = _ANSWER.pack(self.boot, peer.attempt, b"", 0, b"")
        self.outbox.append((address, self._seal(HELLO, hello)))
        if peer.session is not None:
            self.outbox.append((address, peer.session.seal(b"", CONFIRM, peer.proof)))

    def _seal(self, kind: int, content: bytes) -> bytes:
        head, nonce = bytes((VERSION, kind)), self._random(_NONCE_BYTES)
        return head + nonce + self._suite.hello.encrypt(nonce, content, head)

    def _unseal(self, datagram: memoryview) -> tuple[bytes, bytes, bytes, int, bytes]:
        if len(datagram) != HELLO_BYTES:
            raise Rejected("malformed")
        try:
            content = self._suite.hello.decrypt(
                datagram[2:_HELLO_AT], datagram[_HELLO_AT:], datagram[:2]
            )
        except self._suite.invalid:
            raise Rejected("wrong key") from None
        return _ANSWER.unpack(content)

    def _cookie(self, address: Address, boot: bytes, attempt: bytes, ticket: int) -> bytes:
        tied = repr((address, boot, attempt, ticket)).encode()
        return blake2b(tied, key=self._secret, digest_size=16).digest()

    def _hello(self, datagram: memoryview, address: Address, now_us: int) -> None:
        boot, attempt, *_ = self._unseal(datagram)
        if boot == self.boot:
            raise Rejected("replayed")  # our own, thrown back
        self._grow_old(now_us)
        self._tickets += 1
        cookie = self._cookie(address, boot, attempt, self._tickets)
        content = _ANSWER.pack(boot, attempt, self.boot, self._tickets, cookie)
        self.outbox.append((address, self._seal(ANSWER, content)))

    def _grow_old(self, now_us: int) -> None:
        """Tickets are good for one to two times as long as an attempt lasts: a confirmation that
        was held back on the way opens nothing later."""
        passed_us = now_us - self._marked_us
        if passed_us >= self._give_up_us:
            all_old = passed_us >= 2 * self._give_up_us
            self._floor = max(self._floor, self._tickets if all_old else self._mark)
            self._mark, self._marked_us = self._tickets, now_us

    def _answer(self, datagram: memoryview, address: Address, now_us: int) -> None:
        own, attempt, boot, ticket, cookie = self._unseal(datagram)
        peer = self._attempts.get(address)
        if peer is None or peer.attempt != attempt or own != self.boot or boot == own:
            raise Rejected("unverified")
        earlier = peer.session
        if earlier is not None and earlier.boot == boot and ticket <= earlier.ticket:
            raise Rejected("replayed")
        session = Session(self._suite, address, True, own, boot, attempt, ticket, now_us)
        session.since = self._tickets
        if session.id in self._by_id:
            raise Rejected("unknown session")  # taken; the next attempt has another id
        peer.proof = _CONFIRM.pack(own, attempt, ticket, cookie)
        self._adopt(peer, session)
        self.outbox.append((address, session.seal(b"", CONFIRM, peer.proof)))

    def _confirmed(self, session: Session) -> None:
        """The other end is alive under the keys of a session that we began."""
        session.confirmed = True
        session.since = self._tickets
        self._end_attempt(session.address)
        self.changes.append(Change(session.address, session, True))

    def _confirm(
        self, datagram: memoryview, number: int, counter: int, address: Address, now_us: int
    ) -> None:
        if len(datagram) != CONFIRM_BYTES:
            raise Rejected("malformed")
        boot, attempt, ticket, cookie = _CONFIRM.unpack_from(datagram, HEADER_BYTES)
        if not compare_digest(cookie, self._cookie(address, boot, attempt, ticket)):
            raise Rejected("unverified")
        peer = self._peers.get(address)
        old = peer.session if peer is not None else None
        if old is not None and old.id == number and not old.mine and old.ticket == ticket:
            session = old  # our reply was lost
        else:
            self._grow_old(now_us)
            self._check_newer(old, boot, ticket)
            session = Session(self._suite, address, False, self.boot, boot, attempt, ticket, now_us)
            if session.id != number:
                raise Rejected("wrong key")
            if number in self._by_id:
                raise Rejected("unknown session")  # taken; the next attempt has another id
        session.open(datagram, counter, CONFIRM_BYTES - TAG_BYTES)
        session.heard_us = now_us
        if session is not old:
            if peer is None:
                if not self._make_room(now_us):
                    raise Rejected("too many peers")
                peer = self._peers[address] = _Peer(now_us)
            self._adopt(peer, session)
            self._end_attempt(address)
            again = old is not None and old.boot == boot and old.attempt == attempt
            resumes = old is None or not old.confirmed or again
            self.changes.append(Change(address, session, resumes))
        self.outbox.append((address, session.seal(b"")))

    def _check_newer(self, old: Session | None, boot: bytes, ticket: int) -> None:
        """Whether a session of this handshake may take the place of the old one."""
        if ticket <= self._floor:
            raise Rejected("replayed")
        if old is None:
            return
        if old.confirmed or old.boot != boot:
            if ticket <= old.since:
                raise Rejected("replayed")
        elif self.boot < boot:
            raise Rejected("unverified")  # both began at once, and ours stays

    def _adopt(self, peer: _Peer, session: Session) -> None:
        if peer.session is not None:
            del self._by_id[peer.session.id]
        peer.session = self._by_id[session.id] = session

    def _end_attempt(self, address: Address) -> None:
        peer = self._attempts.pop(address, None)
        if peer is not None:
            peer.attempt = peer.proof = b""

    def _make_room(self, now_us: int) -> bool:
        if len(self._peers) < self._bound:
            return True
        silent = min(self._peers, key=lambda address: self._peers[address].heard_us())
        if now_us - self._peers[silent].heard_us() < _SPARE_US:
            return False
        self.drop(silent)
        self.changes.append(Change(silent, None, False))
        return True

    def _forget(self, address: Address) -> None:
        peer = self._peers.pop(address, None)
        self._attempts.pop(address, None)
        if peer is not None and peer.session is not None:
            del self._by_id[peer.session.id]
            self._floor = max(self._floor, peer.session.since)
