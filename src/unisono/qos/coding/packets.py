"""Events as packets: cut, code, put together again, and never a wrong one.

An event's frame is cut into packets of one size and these into generations. Its *key* is a hash of
the frame, carried by every packet: what does not hash to the key is never delivered, whatever
packets came. Small events are one packet, without padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from random import Random
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from unisono.core.events import Control, Number
from unisono.qos.coding import PACKETS_MAX
from unisono.qos.coding.galois import Field
from unisono.qos.coding.generation import Decoder, Encoder

KEY_BYTES = 16
GENERATIONS_MAX = 1 << 16


class Packet(Control, frozen=True, array_like=True, tag="packet"):
    """One packet of an event. `place` is that of a plain packet in its generation, else -1."""

    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    size: Number  # of the frame
    generations: Annotated[int, Meta(ge=1, le=GENERATIONS_MAX)]
    generation: Number
    place: Annotated[int, Meta(ge=-1, lt=PACKETS_MAX)]
    factors: Annotated[bytes, Meta(max_length=PACKETS_MAX)]  # empty for plain ones
    payload: bytes


class Layout(msgspec.Struct, frozen=True):
    """How a frame is cut."""

    size: int
    payload: int  # bytes of a packet
    generations: int

    @property
    def packets(self) -> int:
        return -(-self.size // self.payload) if self.size else 1

    def of(self, generation: int) -> int:
        """How many packets a generation has: as even as can be, the first ones have more."""
        least, more = divmod(self.packets, self.generations)
        return least + (generation < more)

    def before(self, generation: int) -> int:
        """How many packets the generations before this one have."""
        least, more = divmod(self.packets, self.generations)
        return generation * least + min(generation, more)


def layout(size: int, packet_bytes: int, most: int) -> Layout:
    """Packets of at most `packet_bytes`, in generations of at most `most`."""
    count = max(1, -(-size // packet_bytes))
    payload = -(-size // count)
    return Layout(size, payload, -(-count // most))


def key_of(frame: bytes) -> bytes:
    return blake2b(frame, digest_size=KEY_BYTES).digest()


class Cut:
    """A frame and the packets of it; more combinations can be made at any time."""

    def __init__(self, frame: bytes, field: Field, packet_bytes: int, most: int) -> None:
        self.key = key_of(frame)
        self.layout = layout(len(frame), packet_bytes, most)
        shape = self.layout
        self._flat = np.zeros(shape.packets * shape.payload, np.uint8)
        self._flat[: len(frame)] = np.frombuffer(frame, np.uint8)
        rows = self._flat.reshape(shape.packets, shape.payload)
        self._encoders = [
            Encoder(rows[shape.before(g) : shape.before(g) + shape.of(g)], field)
            for g in range(shape.generations)
        ]

    def frame(self) -> bytes:
        return self._flat[: self.layout.size].tobytes()

    def plain(self) -> Iterator[Packet]:
        """The packets of the frame itself."""
        for generation in range(self.layout.generations):
            yield from self.plain_of(generation)

    def plain_of(self, generation: int) -> Iterator[Packet]:
        for place, row in enumerate(self._encoders[generation].packets):
            yield self._packet(generation, place, b"", row.tobytes())

    def coded(self, count: int, rng: Random) -> Iterator[Packet]:
        """So many combinations of each generation."""
        for generation in range(self.layout.generations):
            yield from self.coded_of(generation, count, rng)

    def coded_of(self, generation: int, count: int, rng: Random) -> Iterator[Packet]:
        factors, payloads = self._encoders[generation].combinations(count, rng)
        for row, payload in zip(factors, payloads, strict=True):
            yield self._packet(generation, -1, row.tobytes(), payload.tobytes())

    def _packet(self, generation: int, place: int, factors: bytes, payload: bytes) -> Packet:
        size, count = self.layout.size, self.layout.generations
        return Packet(self.key, size, count, generation, place, factors, payload)


class Misfit(ValueError):
    """A packet that cannot be of this event."""


class Polluted(Exception):
    """All packets are there and give something else than the key says: at least one is wrong."""


class Assembly:
    """An event of which packets come. `senders` are who sent innovative ones, for blame."""

    def __init__(self, first: Packet, field: Field, size_max: int, payload_max: int) -> None:
        self.key = first.key
        self.layout = Layout(first.size, len(first.payload), first.generations)
        self._field = field
        shape = self.layout
        if first.size > size_max or not (shape.payload <= payload_max):
            raise Misfit(f"{first.size} bytes in packets of {shape.payload}")
        if first.size and not 0 < shape.payload <= first.size:
            raise Misfit(f"packets of {shape.payload} bytes for {first.size}")
        if shape.packets < shape.generations or shape.of(0) > PACKETS_MAX:
            raise Misfit(f"{shape.packets} packets in {shape.generations} generations")
        self._decoders: dict[int, Decoder] = {}
        self.held = 0  # innovative packets so far
        self.senders: list[str] = []

    @property
    def complete(self) -> bool:
        return self.held == self.layout.packets

    @property
    def missing(self) -> dict[int, int]:
        """Generations that are not complete, and how many packets they lack."""
        found = {}
        for generation in range(self.layout.generations):
            decoder = self._decoders.get(generation)
            lack = self.layout.of(generation) - (decoder.rank if decoder is not None else 0)
            if lack:
                found[generation] = lack
        return found

    def absent(self, generation: int) -> tuple[int, ...]:
        """The places of plain packets that have not come."""
        n = self.layout.of(generation)
        decoder = self._decoders.get(generation)
        return tuple(range(n)) if decoder is None else decoder.absent()

    def add(self, packet: Packet, sender: str) -> bool:
        """Take a packet; true if it is innovative."""
        shape = self.layout
        same = packet.size == shape.size and packet.generations == shape.generations
        fits = len(packet.payload) == shape.payload and packet.generation < shape.generations
        if packet.key != self.key or not same or not fits:
            raise Misfit("of another event")
        n = shape.of(packet.generation)
        if packet.place >= n or len(packet.factors) != (n if packet.place < 0 else 0):
            raise Misfit(f"packet {packet.place} of {n}, {len(packet.factors)} coefficients")
        decoder = self._decoders.get(packet.generation)
        if decoder is None:
            decoder = Decoder(n, shape.payload, self._field)
            self._decoders[packet.generation] = decoder
        innovative = decoder.add(packet.factors or unit(n, packet.place), packet.payload)
        if innovative:
            self.held += 1
            self.senders.append(sender)
        return innovative

    def frame(self) -> bytes:
        """The event's frame, once nothing is missing; or Polluted."""
        shape = self.layout
        rows = [self._decoders[generation].decode() for generation in range(shape.generations)]
        whole = np.concatenate(rows).tobytes()
        frame = whole[: shape.size]
        if key_of(frame) != self.key or any(whole[shape.size :]):
            raise Polluted(f"{len(set(self.senders))} senders")
        return frame

    def recoded(self, generation: int, count: int, rng: Random) -> Iterator[Packet]:
        """New combinations of what is held of a generation."""
        decoder = self._decoders.get(generation)
        if decoder is None:
            return
        factors, payloads = decoder.recode(count, rng)
        for row, payload in zip(factors, payloads, strict=True):
            yield Packet(
                self.key,
                self.layout.size,
                self.layout.generations,
                generation,
                -1,
                row.tobytes(),
                payload.tobytes(),
            )


def unit(n: int, place: int) -> bytes:
    """The coefficients of a plain packet."""
    return bytes(place) + b"\1" + bytes(n - place - 1)
