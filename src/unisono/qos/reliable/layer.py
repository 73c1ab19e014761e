"""The reliable layer: packets out, packets in, and gossip for what is missing.

A frame layer: whatever is above - nothing, or an order - sees whole frames of events, each at most
once. Frames on reserved topics are passed through: messages of layers are repeated by who waits.

Publishing cuts a frame into packets and adds redundant ones. A subscriber puts packets together;
what is missing comes by gossip, as `Reliability.gossip` says:

    push        who has completed an event sends packets of it to some partners
    push-pull   ... offers it to some partners, who ask for what they lack
    pull        ... does that once a period, for all it has completed lately, `fan_in` times each

Beyond the papers: with `ask`, who still lacks packets after a period asks for them itself, now and
then one that surely had some; and who has an event reminds one partner a round of it, `remind`
times, so that also who got nothing at all hears of it.
With `redundancy="adaptive"` subscribers measure what is lost, and publishers plan for that
(`measure.py`, `redundancy.py`).

Partners come from peer sampling (`qos/peers.py`). Everything kept is bounded by `keep_bytes` and
`keep_s`; the oldest goes first. An event that goes while incomplete is *given up*, recorded and
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import ClassVar

import msgspec

from unisono.core.effects import Arrive, Effect, Record, SetTimer, Transmit, Trouble
from unisono.core.events import EVERYONE, Control, inbox
from unisono.core.layer import Effects, FrameLayer
from unisono.core.limits import RESERVED, Limits
from unisono.core.wire import Codec, Rejected
from unisono.qos.coding.galois import Field
from unisono.qos.coding.packets import Assembly, Cut, Layout, Misfit, Packet, Polluted
from unisono.qos.peers import Peers, Shuffle
from unisono.qos.reliable.measure import Habit, Meter
from unisono.qos.reliable.messages import CONTROLS, OFFERED_MAX, Here, Offer, Repair, Sent, Want
from unisono.qos.reliable.options import Reliability
from unisono.qos.reliable.redundancy import Planner

MAGIC = 0x52
ROUND_TIMER = "round"
_ASK_SENDER = 0.25
_ENVELOPE_BYTES = 1 << 18  # what a packet has beside its payload; also messages about many events
_FRAME_BYTES = 1 << 20  # what an event's frame may have beside its payload
_EVENTS = 1 << 14  # held at a time
_REMEMBERED = 1 << 16  # keys of events that were notified or given up
_OFFERERS = 8  # of an event, remembered: the last ones; just the last unless partners="likely"
_SETTLE_PERIODS = 4  # what has not come by then of a transmission is lost


class _Held(msgspec.Struct):
    """An event that is known here."""

    topic: str
    since_us: int
    size: int = 0  # of its frame, once known
    assembly: Assembly | None = None  # while packets are missing
    cut: Cut | None = None  # once complete
    offers: int = 0  # rounds in which it is still to be offered
    reminders: int = 0  # rounds after these in which one partner is told of it
    asked_us: int = -(1 << 62)  # when packets were last asked for; long ago if never
    offerers: tuple[str, ...] = ()  # who said that it has it
    helped: bool = False  # packets of others than its publisher's transmission were of use


class Reliable(FrameLayer):
    """See the package header for the guarantee."""

    name: ClassVar[str] = "reliable"
    talks: ClassVar[bool] = True

    def __init__(
        self,
        node_id: str,
        rng: Random,
        options: Reliability | None = None,
        limits: Limits | None = None,
        field: Field | None = None,
        covers: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self.counts: Counter[str] = Counter()  # packets and events, by what became of them
        self.blamed: Counter[str] = Counter()  # senders whose packets did not fit together
        self._node_id = node_id
        self._covers = covers
        self._rng = rng
        self._options = options or Reliability()
        self._limits = limits or Limits()
        self._field = field or Field()
        self._codec = Codec(CONTROLS, self._options.packet_bytes + _ENVELOPE_BYTES, MAGIC)
        self._period_us = round(self._options.period_s * 1e6)
        self.peers = Peers(node_id, rng)
        self._held: dict[bytes, _Held] = {}  # oldest first
        self._bytes = 0  # of what is held
        self._done: dict[bytes, None] = {}  # notified or given up, oldest first
        self._offerers = _OFFERERS if self._options.partners == "likely" else 1
        self._adaptive = self._options.redundancy == "adaptive"
        keep_us = round(self._options.keep_s * 1e6)
        self._meter = Meter(_SETTLE_PERIODS * self._period_us, keep_us) if self._adaptive else None
        least = 2 if self._options.gossip == "none" else 1
        self._planner = Planner(self._options.packets, least)
        self._alone = Habit()  # events that became whole without help

    @property
    def redundancy(self) -> int:
        """Redundant packets that a full generation gets now."""
        fixed = self._options.redundancy
        return fixed if isinstance(fixed, int) else self._planner.redundancy

    # What the node asks for.

    def start(self, now: int) -> Effects:
        first = now + round(self._period_us * self._rng.random())  # not all nodes at once
        told = [self._send(EVERYONE, Here(self.peers.me()))] if self.peers.topics else []
        return [*told, SetTimer(ROUND_TIMER, first)]

    def listening(self, topics: Sequence[str], now: int) -> Effects:
        mine = [topic for topic in topics if not topic.startswith(RESERVED) and self._covers(topic)]
        fresh = not self.peers.topics.issuperset(mine)
        self.peers.topics.update(mine)
        if self._meter is not None:
            self._meter.listening(mine, now)
        # Others must know soon that there is something to tell here.
        return [self._send(peer, Here(self.peers.me())) for peer in self.peers.view if fresh]

    def ignoring(self, topics: Sequence[str], now: int) -> Effects:
        self.peers.topics.difference_update(topics)
        if self._meter is not None:
            self._meter.ignoring(topics)
        unwanted = [
            k for k, held in self._held.items() if held.cut is None and held.topic in topics
        ]
        for key in unwanted:
            self._drop(key)
        return ()

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        if topic.startswith(RESERVED) or not self._covers(topic):
            return (Transmit(topic, frame),)
        options = self._options
        cut = Cut(frame, self._field, options.packet_bytes, options.packets)
        plain = list(cut.plain())
        out: list[Effect] = []
        if cut.key not in self._held:
            held = _Held(topic, now, len(frame), cut=cut, offers=options.fan_in)
            held.reminders = options.remind
            out += self._hold(cut.key, held, now)
        fixed = options.redundancy
        count = fixed if isinstance(fixed, int) else self._planner.of(cut.layout.of(0))
        if self._planner.changed:
            self.counts["redundancy changed"] += 1
            out.append(self._row("redundancy", self._planner.said(), now, "control"))
        packets = [*plain, *self._redundant(cut, plain, count)]
        self.counts["packets sent"] += len(packets)
        for index, packet in enumerate(packets):
            message = Sent(index, count, packet) if self._adaptive else packet
            frame = self._codec.encode(self._node_id, message)
            out.append(Transmit(topic, frame, again=True))  # packets may come twice
        return out

    def _redundant(self, cut: Cut, plain: list[Packet], count: int) -> Iterable[Packet]:
        """So many more per generation: combinations, or duplicates by chance."""
        if self._options.coding:
            return cut.coded(count, self._rng)
        return self._rng.choices(plain, k=count * cut.layout.generations) if count else ()

    # What comes.

    def notify(self, topic: str, frame: bytes, now: int) -> Effects:
        if not frame or frame[0] != MAGIC:
            return (Arrive(topic, frame),)
        try:
            sender, message = self._codec.decode(frame)
        except Rejected as rejected:
            return self._reject(f"reliable: {rejected.reason}", topic, now)
        if isinstance(message, Packet):
            return self._take(topic, message, sender, now)
        if isinstance(message, Sent):
            if not message.fits:
                return self._reject("reliable: misfit", topic, now)
            return self._take(topic, message.packet, sender, now, message)
        if sender == self._node_id:
            return ()  # our own broadcast, come back
        return self._receive(message, sender, now) if isinstance(message, Control) else ()

    def _receive(self, message: Control, sender: str, now: int) -> Effects:
        if isinstance(message, Repair):
            self.counts["packets repaired"] += 1
            if message.topic not in self.peers.topics:
                return ()
            return self._take(message.topic, message.packet, sender, now, message)
        if isinstance(message, Offer):
            return self._offered(message, sender, now)
        if isinstance(message, Want):
            return self._wanted(message, sender)
        if isinstance(message, Shuffle):
            answer = self.peers.receive(message, sender)
            return (self._send(sender, answer),) if answer is not None else ()
        assert isinstance(message, Here)
        if message.peer.node != sender:
            return ()
        self.peers.hear(message.peer)
        return (self._send(sender, Shuffle((self.peers.me(),), answer=True)),)

    def _take(
        self, topic: str, packet: Packet, sender: str, now: int, within: Sent | Repair | None = None
    ) -> Effects:
        """A packet of an event: keep it; notify the event if it is the last one needed."""
        self.counts["packets received"] += 1
        key = packet.key
        if key in self._done:
            self.counts["packets of known events"] += 1
            self._measure(key, within)
            return ()
        held = self._held.get(key) or _Held(topic, now)
        if held.cut is not None:  # published here, come back from the bus
            return self._complete(key, held, now)
        try:
            if held.assembly is None:
                most = self._limits.payload_bytes + _FRAME_BYTES
                held.assembly = Assembly(packet, self._field, most, self._options.packet_bytes)
            innovative = held.assembly.add(packet, sender)
        except Misfit:
            return self._reject("reliable: misfit", topic, now)
        out: list[Effect] = []
        if not held.size:
            held.size = packet.size
            if self._meter is not None and key not in self._held:
                self._meter.learnt(key, topic, now)
            out += self._hold(key, held, now)
        self._measure(key, within)
        held.helped |= innovative and isinstance(within, Repair)
        if not innovative:
            self.counts["packets of no use"] += 1
        elif held.assembly.complete:
            out += self._assembled(key, held, now)
        return out

    def _measure(self, key: bytes, within: Sent | Repair | None) -> None:
        """See what comes of other nodes' transmissions; repairs are not part of them. What was
        published here is not watched."""
        if self._meter is None or isinstance(within, Repair):
            return
        if within is None:
            self._meter.forget(key)  # its publisher does not say what it sent
        else:
            self._meter.came(within)

    def _assembled(self, key: bytes, held: _Held, now: int) -> Effects:
        assert held.assembly is not None
        try:
            frame = held.assembly.frame()
        except Polluted:
            # At least one packet is wrong, and nobody can say which: begin anew, from others.
            self.counts["events polluted"] += 1
            self.blamed.update(set(held.assembly.senders))
            held.assembly = None
            return (self._row("polluted", key.hex(), now),)
        held.assembly = None
        self._alone.add(not held.helped)
        held.cut = Cut(frame, self._field, self._options.packet_bytes, self._options.packets)
        return self._complete(key, held, now)

    def _complete(self, key: bytes, held: _Held, now: int) -> Effects:
        """The event is whole: notify it, and let others know."""
        assert held.cut is not None
        self._remember(key)
        self.counts["events"] += 1
        held.offers, held.reminders = self._options.fan_in, self._options.remind
        out: list[Effect] = [Arrive(held.topic, held.cut.frame())]
        if self._options.gossip == "push":
            out += self._push(held)
        elif self._options.gossip == "push-pull":
            for partner in self._partners(held.topic):
                out.append(self._send(partner, Offer(held.topic, (key,))))
        return out

    # Gossip.

    def _partners(self, topic: str) -> list[str]:
        return self.peers.partners(topic, self._options.fan_out)

    def _push(self, held: _Held) -> list[Effect]:
        assert held.cut is not None
        out: list[Effect] = []
        for partner in self._partners(held.topic):
            plain = list(held.cut.plain())
            pushed = self._options.pushed
            count = self._options.spare if pushed is None else pushed
            packets = [*(plain if pushed is None else ()), *self._redundant(held.cut, plain, count)]
            out += self._repair(partner, held.topic, packets)
        return out

    def _repair(self, to: str, topic: str, packets: Iterable[Packet]) -> Iterator[Effect]:
        for packet in packets:
            self.counts["packets sent"] += 1
            yield self._send(to, Repair(topic, packet))

    def _offered(self, message: Offer, sender: str, now: int) -> Effects:
        """Someone has these: ask for what is missing here."""
        out: list[Effect] = []
        if message.topic not in self.peers.topics:
            return out
        for key in message.keys:
            if key in self._done:
                continue
            held = self._held.get(key)
            if held is None:
                held = _Held(message.topic, now)
                out += self._hold(key, held, now)
                if self._meter is not None:
                    self._meter.learnt(key, message.topic, now)
            held.offerers = (*held.offerers, sender)[-self._offerers :]
            if held.cut is not None or 0 <= now - held.asked_us < self._period_us // 2:
                continue  # asked someone else a moment ago
            held.asked_us = now
            out.append(self._send(sender, self._want(key, held)))
        return out

    def _want(self, key: bytes, held: _Held) -> Want:
        if held.assembly is None:
            return Want(held.topic, key)
        lacks = held.assembly.missing
        if self._options.coding:
            return Want(held.topic, key, lacks)
        return Want(held.topic, key, lacks, {g: held.assembly.absent(g) for g in lacks})

    def _wanted(self, message: Want, sender: str) -> Effects:
        """Send what the other can use; from a part, combinations of it."""
        held = self._held.get(message.key)
        if held is None or held.topic != message.topic:
            return ()
        shape = self._shape(message.key)
        if shape is None:
            return ()
        lacks = message.lacks or {g: shape.of(g) for g in range(shape.generations)}
        packets: list[Packet] = []
        for generation, count in lacks.items():
            if generation < shape.generations:
                packets += self._useful(held, message, generation, min(count, shape.of(generation)))
        return list(self._repair(sender, held.topic, packets))

    def _shape(self, key: bytes) -> Layout | None:
        """How the event is cut, if that is known."""
        held = self._held.get(key)
        if held is None:
            return None
        if held.cut is not None:
            return held.cut.layout
        return held.assembly.layout if held.assembly is not None else None

    def _useful(self, held: _Held, message: Want, generation: int, count: int) -> Iterable[Packet]:
        spare = self._options.spare
        if held.cut is None:
            assert held.assembly is not None
            if not self._options.coding:
                return ()
            return held.assembly.recoded(generation, count + spare, self._rng)
        if self._options.coding:
            return held.cut.coded_of(generation, count + spare, self._rng)
        wanted = message.places.get(generation)
        plain = [
            packet
            for packet in held.cut.plain_of(generation)
            if wanted is None or packet.place in wanted
        ]
        return [*plain, *self._rng.choices(plain, k=spare)] if spare and plain else plain

    # Time and memory.

    def timer(self, key: str, now: int) -> Effects:
        """A round: exchange peers, offer events, forget old ones."""
        assert key == ROUND_TIMER
        out: list[Effect] = [self._next_round(now)]
        self._adapt(now)
        out += [self._send(*asked) for asked in self.peers.shuffles()]
        if self.peers.lonely():
            out.append(self._send(EVERYONE, Here(self.peers.me())))
        out += self._lost_on_return(now)
        if self._options.gossip == "pull":
            out += self._offer_lately()
        out += self._remind()
        if self._options.ask:
            out += self._ask(now)
        keep_us = round(self._options.keep_s * 1e6)
        while self._held:
            oldest, held = next(iter(self._held.items()))
            if now - held.since_us < keep_us:
                break
            out += self._let_go(oldest, now)
        return out

    def _adapt(self, now: int) -> None:
        """Judge what came, tell it with the next exchange of peers, plan for what others told."""
        if self._options.partners == "likely":
            self.peers.alone_percent = self._alone.percent
        if self._meter is None:
            return
        self._meter.judge(now, self._shape)
        self.peers.measured = self._meter.measured
        self._planner.plan(self.peers.view.values())

    def _lost_on_return(self, now: int) -> Iterator[Effect]:
        """Who subscribes what it publishes hears it from the bus, or after a period from itself."""
        for key, held in self._held.items():
            own = held.cut is not None and key not in self._done
            if own and held.topic in self.peers.topics and now - held.since_us >= self._period_us:
                yield from self._complete(key, held, now)

    def _offer_lately(self) -> Iterator[Effect]:
        lately: dict[str, list[bytes]] = {}
        for key, held in self._held.items():
            if held.offers > 0 and held.cut is not None:
                held.offers -= 1
                lately.setdefault(held.topic, []).append(key)
        for topic, keys in lately.items():
            for partner in self._partners(topic):
                yield from self._offer(partner, topic, keys)

    def _remind(self) -> Iterator[Effect]:
        """Tell one partner of each topic what has been here for a while."""
        known: dict[str, list[bytes]] = {}
        pulled = self._options.gossip == "pull"
        for key, held in self._held.items():
            if held.reminders > 0 and held.cut is not None and not (pulled and held.offers > 0):
                held.reminders -= 1
                known.setdefault(held.topic, []).append(key)
        for topic, keys in known.items():
            for partner in self.peers.partners(topic, 1):
                yield from self._offer(partner, topic, keys)

    def _offer(self, partner: str, topic: str, keys: list[bytes]) -> Iterator[Effect]:
        for at in range(0, len(keys), OFFERED_MAX):
            yield self._send(partner, Offer(topic, tuple(keys[at : at + OFFERED_MAX])))

    def _ask(self, now: int) -> Iterator[Effect]:
        """Ask for what is still incomplete."""
        for key, held in self._held.items():
            if held.cut is not None or now - max(held.since_us, held.asked_us) < self._period_us:
                continue
            for partner in self._asked(held):
                held.asked_us = now
                yield self._send(partner, self._want(key, held))

    def _asked(self, held: _Held) -> list[str]:
        """A partner, or now and then who sent the first packet, or, if none came, who offered the
        event last: that may be the only one that has it."""
        senders = held.assembly.senders if held.assembly is not None else []
        if self._options.partners == "likely":
            return self.peers.likely(held.topic, held.offerers, "".join(senders[:1]))
        asked = self.peers.partners(held.topic, 1)
        source = senders[:1] or list(held.offerers[-1:])
        if source and (not asked or self._rng.random() < _ASK_SENDER):
            asked = source
        return asked

    def _next_round(self, now: int) -> SetTimer:
        """A little early or late, so that nodes do not act in step."""
        return SetTimer(ROUND_TIMER, now + round(self._period_us * self._rng.uniform(0.9, 1.1)))

    def _hold(self, key: bytes, held: _Held, now: int) -> Iterable[Effect]:
        """Keep it; the oldest make room."""
        out: list[Effect] = []
        self._held[key] = held
        self._bytes += held.size
        while self._bytes > self._options.keep_bytes or len(self._held) > _EVENTS:
            oldest = next((other for other in self._held if other != key), None)
            if oldest is None:
                break  # it alone is too large
            out += self._let_go(oldest, now)
        return out

    def _let_go(self, key: bytes, now: int) -> Iterable[Effect]:
        """Forget an event; if it never became whole, say so."""
        held = self._held[key]
        self._drop(key)
        if held.cut is not None:
            return ()
        self._remember(key)
        self._alone.add(False)
        self.counts["events given up"] += 1
        came, count = 0, 0
        if held.assembly is not None:
            came, count = held.assembly.held, held.assembly.layout.packets
        text = f"an event on {held.topic!r} is given up: {came} of {count or '?'} packets came"
        return (self._row("given up", key.hex(), now), Trouble(text))

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._held.pop(key).size

    def _remember(self, key: bytes) -> None:
        self._done[key] = None
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]

    def _send(self, to: str, message: Control) -> Transmit:
        topic = EVERYONE if to == EVERYONE else inbox(to)
        return Transmit(topic, self._codec.encode(self._node_id, message))

    def _row(self, kind: str, detail: str, now: int, table: str = "faults") -> Record:
        row = {"at_us": now, "node": self._node_id, "kind": kind, "detail": detail}
        return Record(table, row)

    def _reject(self, kind: str, detail: str, now: int) -> Effects:
        self.counts[kind] += 1
        return (self._row(kind, detail, now),)
