"""Copies of topic managers: primary-backup within a view, a majority before anyone is told.

The manager of a topic is on the first of its `replicas` holders (`order.ranking`), the others have
copies. Every message that the manager takes is numbered, sent to the copies, and its letters go out
only when a majority of the holders has it. With a new view, every holder sends what it has to the
new manager (`HandOver`), which takes the newest of a majority of the holders of every earlier view
that may matter (`View.chain`), gives it to its copies (`Adopt`) and serves when a majority has it.
Who follows a newer view answers no older manager: one that returns late cannot stamp.

Why this and not a Raft per topic: `docs/crashes.md`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from unisono.core.effects import Effect, Send, Store
from unisono.qos.total_order.manager import Letter, TopicManager
from unisono.qos.total_order.messages import (
    Adopt,
    Copied,
    Copy,
    Entry,
    FillStamp,
    HandOver,
    Open,
    ToTopic,
)
from unisono.qos.total_order.state import ManagerState
from unisono.qos.views import majority

PART_BYTES = 1 << 17  # keeps a message well below the frame limit of any bus
_LOG_ENTRIES = 512  # kept for copies that lag; one further behind gets the whole state
_BACKLOG = 1 << 15  # messages that a majority does not have: no more are taken until it does
_COPY_ENTRIES = 2000  # of messages and their stamps in one Copy: some tens of kilobytes
_STORED_ENTRIES = 256  # on disk since the last whole state
STORE_STATE = "state:"
STORE_ENTRY = "entry:"

_ENCODER = msgspec.msgpack.Encoder()


class Held(msgspec.Struct):
    """A manager's state as of message `index` in view `view`: greater pairs are newer."""

    view: int
    index: int
    state: ManagerState

    @property
    def age(self) -> tuple[int, int]:
        return (self.view, self.index)


class StoredEntry(msgspec.Struct, array_like=True):
    """A message on disk, to be taken after the whole state before it."""

    view: int
    index: int
    entry: bytes


HELD_DECODER = msgspec.msgpack.Decoder(Held)
_STORED_DECODER = msgspec.msgpack.Decoder(StoredEntry)
_ENTRY_DECODER: msgspec.msgpack.Decoder[ToTopic] = msgspec.msgpack.Decoder(Entry)
HELD_LIST_DECODER = msgspec.msgpack.Decoder(list[Held])


def load_held(stored: Mapping[str, bytes]) -> Iterator[tuple[Held, list[ToTopic]]]:
    """The states on disk, each with the messages to take after it."""
    entries: dict[str, list[StoredEntry]] = {}
    for key, value in stored.items():
        if key.startswith(STORE_ENTRY):
            topic = key[len(STORE_ENTRY) :].rpartition(":")[0]
            entries.setdefault(topic, []).append(_STORED_DECODER.decode(value))
    for key, value in stored.items():
        if key.startswith(STORE_STATE):
            held = HELD_DECODER.decode(value)
            after = {e.index: e for e in entries.get(held.state.topic, ()) if e.view == held.view}
            rest: list[ToTopic] = []  # entries from before the whole state may lie about
            while (following := after.get(held.index + 1 + len(rest))) is not None:
                rest.append(_ENTRY_DECODER.decode(following.entry))
            yield held, rest


def parts_of(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]


class Parts:
    """Puts messages together that came in parts."""

    def __init__(self) -> None:
        self._got: dict[tuple[str, str], tuple[int, dict[int, bytes]]] = {}

    def whole(self, sender: str, message: Adopt | HandOver) -> bytes | None:
        """All the data, once all its parts are here."""
        if message.parts == 1:
            return message.data
        topic, index = (message.topic, message.index) if isinstance(message, Adopt) else ("", 0)
        key = (sender, topic)
        newest, got = self._got.get(key, (-1, {}))
        if index < newest:
            return None  # of an older state; parts of two do not fit together
        if index > newest:
            got = {}
            self._got[key] = (index, got)
        got[message.part] = message.data
        if len(got) < message.parts:
            return None
        del self._got[key]
        return b"".join(got[index] for index in sorted(got))


class Replica:
    """One topic on one node: its manager's state, as the manager itself or as a copy."""

    def __init__(self, held: Held, manager: TopicManager, durable: bool) -> None:
        self.held = held
        self.topic = held.state.topic
        self.manager = manager
        self.serving = False  # this is the manager, and a majority has its state
        self._durable = durable
        self._whole = False  # a whole state is on disk
        self._stored = 0  # entries on disk since then
        self._copies: tuple[str, ...] = ()
        self._acked: dict[str, int] = {}
        self._log: deque[ToTopic] = deque()  # the last one is held.index
        self._shipped = 0
        self._due = 0  # what copies should have confirmed by the next `again`
        self._committed = 0
        self._letters: deque[tuple[int, list[Letter]]] = deque()  # not yet told

    @property
    def full(self) -> bool:
        """Too much waits for a majority of the copies."""
        return self.held.index - self._committed >= _BACKLOG

    # As the manager.

    def lead(self, view: int, copies: tuple[str, ...]) -> list[Effect]:
        """Begin the view as the manager; serves when a majority of the holders has its state."""
        self.retire()
        self.held.view = view
        self._copies = copies
        self._acked = dict.fromkeys(copies, -1)
        self._shipped = self._due = self.held.index
        out = self.store_whole()
        for copy in copies:
            out += self.send_whole(copy)
        self.count()
        return out

    def retire(self) -> None:
        """A new view begins: whoever manages the topic in it has to be found out. If it is this
        node again, with this state, its letters go out when the new copies have the state."""
        self.serving = False
        self._copies = ()
        self._acked = {}
        self._committed = 0
        self._log.clear()

    def lead_fresh(self, copies: tuple[str, ...]) -> None:
        """A topic that nobody has used: the copies begin with the first message."""
        self._copies = copies
        self._acked = dict.fromkeys(copies, 0)
        self.count()

    def take(self, message: ToTopic) -> list[Effect]:
        """A message for the manager. Its letters wait for a majority."""
        index = self.held.index = self.held.index + 1
        self._letters.append((index, self.manager.take(message)))
        if not self._copies and not self._durable:
            self._committed = index
            return []
        if self._copies:
            self._log.append(message)
        out = self._store_entry(message)
        if self._copies and self._shipped <= self._committed:  # else the next batch grows
            out += self.ship()
        self.count()
        return out

    def ship(self) -> list[Effect]:
        """Send the copies what they were not sent yet."""
        messages = self._since(self._shipped)
        self._shipped = self.held.index
        while len(self._log) > _LOG_ENTRIES:
            self._log.popleft()
        return [Send(copy, message) for message in messages for copy in self._copies]

    def _since(self, index: int) -> list[Copy]:
        """What was taken after this, from the log."""
        entries = list(self._log)[len(self._log) - (self.held.index - index) :]
        copies: list[Copy] = []
        while entries:
            room, count = _COPY_ENTRIES, 0
            while room > 0 and count < len(entries):
                entry = entries[count]
                room -= 4 + len(entry.stamp) if isinstance(entry, FillStamp) else 4
                count += 1
            batch, entries = tuple(entries[:count]), entries[count:]
            copies.append(Copy(self.held.view, self.topic, index + 1, batch))  # type: ignore[arg-type]
            index += count
        return copies

    def again(self) -> list[Effect]:
        """Some time has passed: send again what a copy has not confirmed."""
        out: list[Effect] = []
        for copy, acked in self._acked.items():
            if acked >= self._due:
                continue
            if acked < 0 or self.held.index - acked > min(len(self._log), _LOG_ENTRIES):
                out += self.send_whole(copy)
            else:
                out += [Send(copy, message) for message in self._since(acked)]
        self._due = self._shipped
        return out

    def copied(self, copy: str, index: int) -> list[Effect]:
        """A copy has everything up to `index`."""
        if copy not in self._acked or index > self.held.index:
            return []
        self._acked[copy] = max(self._acked[copy], index)
        self.count()
        return self.ship() if self._committed >= self._shipped else []

    def count(self) -> None:
        """How far does a majority have it?"""
        have = sorted((self.held.index, *self._acked.values()), reverse=True)
        agreed = have[majority(len(have)) - 1]
        if agreed < 0:
            return
        self.serving = True
        self._committed = max(self._committed, agreed)

    def told(self) -> list[Letter]:
        """The letters that may go out now."""
        if len(self._letters) == 1 and self._letters[0][0] <= self._committed:
            return self._letters.popleft()[1]
        out: list[Letter] = []
        while self._letters and self._letters[0][0] <= self._committed:
            out += self._letters.popleft()[1]
        return out

    def send_whole(self, copy: str) -> list[Effect]:
        held = self.held
        parts = parts_of(_ENCODER.encode(held))
        return [
            Send(copy, Adopt(held.view, self.topic, held.index, number, len(parts), part))
            for number, part in enumerate(parts)
        ]

    # As a copy.

    def follow(self, message: Copy) -> list[Effect] | None:
        """Take the manager's messages; None if something is missing before them."""
        out: list[Effect] = []
        held = self.held
        if message.index > held.index + 1:
            return None
        for entry in message.entries[held.index + 1 - message.index :]:
            self.manager.take(entry)
            held.index += 1
            out += self._store_entry(entry)
        self.manager.handled.clear()
        self.manager.refused.clear()
        return out

    def confirmation(self) -> Copied:
        return Copied(self.held.view, self.topic, self.held.index)

    # On disk.

    def load(self, entries: Sequence[ToTopic]) -> None:
        """From the disk: take the messages that came after the whole state."""
        self._whole = True
        for entry in entries:
            self.manager.take(entry)
            self.held.index += 1
        self._stored = len(entries)
        self.manager.handled.clear()
        self.manager.refused.clear()

    def _store_entry(self, entry: ToTopic) -> list[Effect]:
        if not self._durable:
            return []
        if not self._whole or self._stored >= _STORED_ENTRIES or isinstance(entry, Open):
            return self.store_whole()  # of the newest epoch, so that its order is known when loaded
        self._stored += 1
        stored = StoredEntry(self.held.view, self.held.index, _ENCODER.encode(entry))
        key = f"{STORE_ENTRY}{self.topic}:{self._stored}"
        return [Store(key, _ENCODER.encode(stored))]

    def store_whole(self) -> list[Effect]:
        """Write the whole state; the entries before it are of no use any more."""
        if not self._durable:
            return []
        old = [Store(f"{STORE_ENTRY}{self.topic}:{n}", None) for n in range(1, self._stored + 1)]
        self._whole, self._stored = True, 0
        return [Store(STORE_STATE + self.topic, _ENCODER.encode(self.held)), *old]
