"""What the layer sends: packets of events on their topics, all else to single nodes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from unisono.core.events import Control, Number
from unisono.qos.coding import PACKETS_MAX
from unisono.qos.coding.packets import GENERATIONS_MAX, KEY_BYTES, Layout, Packet
from unisono.qos.peers import Descriptor, Shuffle

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
OFFERED_MAX = 512


class Sent(Control, frozen=True, array_like=True, tag="sent"):
    """A packet on its topic, with its place in the publisher's transmission: so it can be seen
    which others did not come. First all plain packets, then `redundancy` of each generation."""

    index: Number
    redundancy: Annotated[int, Meta(ge=0, le=PACKETS_MAX)]
    packet: Packet

    @property
    def count(self) -> int:
        """Packets of the transmission."""
        return self._layout.packets + self.redundancy * self.packet.generations

    @property
    def fits(self) -> bool:
        """Such a packet can have this place."""
        packet = self.packet
        if packet.generation >= packet.generations or bool(packet.size) != bool(packet.payload):
            return False
        shape = self._layout
        if packet.place >= 0:
            return self.index == shape.before(packet.generation) + packet.place
        first = shape.packets + self.redundancy * packet.generation
        return first <= self.index < first + self.redundancy

    @property
    def _layout(self) -> Layout:
        return Layout(self.packet.size, len(self.packet.payload), self.packet.generations)


class Here(Control, frozen=True, array_like=True, tag="here"):
    """Node -> everyone, when it knows nobody: this is me. Who hears it answers with a Shuffle."""

    peer: Descriptor


class Offer(Control, frozen=True, array_like=True, tag="offer"):
    """Node -> node: I have these events."""

    topic: str
    keys: Annotated[tuple[Key, ...], Meta(max_length=OFFERED_MAX)]


class Want(Control, frozen=True, array_like=True, tag="want"):
    """Node -> node: send me packets of this event. `lacks`: by generation, how many; all if empty.

    `places`: without coding, which ones.
    """

    topic: str
    key: Key
    lacks: Annotated[dict[Number, Number], Meta(max_length=GENERATIONS_MAX)] = {}
    places: Annotated[dict[Number, tuple[Number, ...]], Meta(max_length=GENERATIONS_MAX)] = {}


class Repair(Control, frozen=True, array_like=True, tag="repair"):
    """Node -> node: a packet of an event, wanted or pushed."""

    topic: str
    packet: Packet


CONTROLS: tuple[type[Control], ...] = (Packet, Shuffle, Here, Offer, Want, Repair, Sent)
