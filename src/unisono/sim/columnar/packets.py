"""What nodes hold of events, in arrays: the twin of the decoders in `qos/coding`.

Only coefficients, no payloads; and those of a coded packet are not sent along: whoever needs them
draws them again from the same seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unisono.compiled import STEP, Longs, in_place, mix
from unisono.qos.coding.galois import Bytes
from unisono.sim.columnar.tables import Table

if TYPE_CHECKING:
    from unisono.sim.columnar.group import Group, Load

# What an event is to a node.
UNKNOWN, PARTIAL, DECODING, WHOLE, OWN, DONE = range(6)  # OWN: published here, not come back yet
# By node and slot. An event has a slot while anybody may hold it.
HELD = np.dtype(
    [
        ("since", np.int64),
        ("asked", np.int64),
        ("order", np.int64),  # of getting to know it, at this node
        ("pivots", np.uint64),
        ("plain", np.uint64),  # packets that came plain
        ("units", np.uint64),  # of these: before any coded one, so there is nothing to eliminate
        ("status", np.int32),
        ("rank", np.int32),
        ("offers", np.int32),
        ("sender", np.int32),  # of the first packet; before it, of the last offer
        ("coded", np.int32),  # packets among those that count
    ],
    align=True,
)
# By node and slot. `echelon`: rows with the first coefficient 1 at p, for each pivot p that is not
# among the units. `came`: the packets that count, as they came: a plain one's place, or CODED and
# then its coefficients are in `factors`.
Rows = npt.NDArray[np.uint8]
CODED = 255


@in_place
def add(g: Group, node: int, slot: int) -> bool:
    """Take a packet with the coefficients in `row`; true if it is innovative."""
    row, scratch, products = g.row, g.scratch, g.products
    echelon, factors = g.echelon[node, slot], g.factors[node, slot]
    n = row.size
    one = np.uint64(1)
    mine = g.held[node, slot]
    for index in range(n):
        scratch[index] = row[index]
    for at in range(n):
        factor = scratch[at]
        if factor == 0:
            continue
        bit = one << np.uint64(at)
        if mine.units & bit:
            continue
        if mine.pivots & bit == np.uint64(0):
            for index in range(at, n):
                echelon[at, index] = products[g.inverses[factor], scratch[index]]
            mine.pivots |= bit
            for index in range(n):
                factors[mine.rank, index] = row[index]
            g.came[node, slot, mine.rank] = CODED
            mine.rank += 1
            return True
        for index in range(at, n):
            scratch[index] ^= products[factor, echelon[at, index]]
    return False


@in_place
def add_plain(g: Group, node: int, slot: int, place: int) -> bool:
    """Take the plain packet of a place."""
    mine = g.held[node, slot]
    bit = np.uint64(1) << np.uint64(place)
    if mine.plain & bit:
        return False
    if mine.coded == 0:
        g.came[node, slot, mine.rank] = place
        mine.units |= bit
        mine.pivots |= bit
        mine.rank += 1
    else:
        g.row[:] = 0
        g.row[place] = 1
        if not add(g, node, slot):
            return False
    mine.plain |= bit
    return True


@in_place
def _draw(row: Bytes, seed: np.uint64, index: int) -> None:
    """Row `index` of what `galois.draw` draws."""
    some = np.uint8(0)
    word = np.uint64(0)
    for place in range(row.size):
        at = index * row.size + place
        if place == 0 or at % 8 == 0:
            word = mix(seed + np.uint64(at // 8) * STEP)
        row[place] = np.uint8((word >> np.uint64(8 * (at % 8))) & np.uint64(255))
        some |= row[place]
    if some == 0:
        row[0] = 1


@in_place
def coefficients(g: Group, sender: int, slot: int, sent: Load, index: int) -> None:
    """Those of redundant packet `index` of a load, into `row`."""
    row, rank = g.row, sent.rank
    if rank == 0:
        _draw(row, sent.begin, index)
        return
    factor = g.scratch[:rank]
    _draw(factor, sent.begin, index)
    row[:] = 0
    came, factors = g.came[sender, slot], g.factors[sender, slot]
    for at in range(rank):
        if came[at] != CODED:
            row[came[at]] ^= factor[at]
            continue
        for place in range(row.size):
            row[place] ^= g.products[factor[at], factors[at, place]]


@in_place
def ordered(held: Table, slots: np.uint64, node: int, found: Longs) -> int:
    """Slots of events, in the order in which a node got to know them."""
    count = 0
    rest = slots
    slot = 0
    while rest:
        if rest & np.uint64(1):
            at = count
            while at > 0 and held[node, found[at - 1]].order > held[node, slot].order:
                found[at] = found[at - 1]
                at -= 1
            found[at] = slot
            count += 1
        rest >>= np.uint64(1)
        slot += 1
    return count
