"""What nodes send: packets, offers and wants, and what they have to do later by themselves."""

from __future__ import annotations

import numpy as np

from unisono.compiled import in_place
from unisono.sim.columnar import heap
from unisono.sim.columnar.bits import NOTHING, ONE, ones, size
from unisono.sim.columnar.draws import seed_bits, skip
from unisono.sim.columnar.group import (
    CODING,
    DIRECT_US,
    ENCODE_US,
    FREE,
    GOSSIP_PACKETS,
    OFFER,
    OFFERS,
    PACKETS,
    REPAIR,
    TRAINS,
    WANT,
    WANTS,
    Group,
    Load,
    load,
)
from unisono.sim.columnar.losses import DIRECT, come, condition, delay


@in_place
def later(g: Group, when: int, kind: int, node: int, source: int, slot: int, sent: Load) -> None:
    g.counts[FREE] -= 1
    item = g.free[g.counts[FREE]]
    mail = g.mail[item]
    mail.kind, mail.node, mail.source, mail.slot = kind, node, source, slot
    mail.bits, mail.places, mail.begin = sent.bits, sent.places, sent.begin
    mail.count, mail.rank = sent.amount, sent.rank
    heap.push(g.due, g.queue, when, item)


@in_place
def own(g: Group, when: int, kind: int, node: int) -> None:
    """Something that a node has to do by itself."""
    later(g, when, kind, node, node, 0, load(NOTHING, NOTHING, NOTHING, 0, 0))


@in_place
def drawn(g: Group, node: int, count: int) -> np.uint64:
    """Draw so many redundant packets: the seed of coded ones, or where the draws begin."""
    if g.options[CODING]:
        return seed_bits(g.stream, node) if count else NOTHING
    return skip(g.stream, node, count)


@in_place
def _direct(g: Group, node: int, to: int, packets: int, now: int) -> np.uint64:
    """Send packets straight to a node: a bit for each that comes."""
    if g.direct_at[node, 0] != now:
        g.direct_at[node, 0] = now
        g.direct_at[node, 1] = 0
    used = g.direct_at[node, 1]
    at = 0
    while at < used and g.direct[node * TRAINS + at].target != to:
        at += 1
    if at == used:
        at = min(at, TRAINS - 1)
        g.direct[node * TRAINS + at].time = -1
        g.direct_at[node, 1] = at + 1
    limits = g.conditions[condition(g.conditions, now)]
    place = node * TRAINS + at
    return come(g.direct, place, g.words, g.key, limits, node, to, DIRECT, now, packets)


@in_place
def _way(g: Group, node: int, to: int, now: int) -> int:
    """How long a message takes straight to a node."""
    return int(g.options[DIRECT_US]) + delay(g.words, g.key, g.delay_us, node, to, now)


@in_place
def send_packets(
    g: Group,
    node: int,
    to: int,
    slot: int,
    places: np.uint64,
    count: int,
    rank: int,
    now: int,
) -> None:
    """Plain packets, and redundant ones made of all packets or of as many as are held."""
    options = g.options
    plain = size(places)
    begin = drawn(g, node, count)
    g.counts[GOSSIP_PACKETS] += plain + count
    wait = options[ENCODE_US] * count if options[CODING] else 0
    bits = _direct(g, node, to, plain + count, now)
    if options[CODING] == 0 and plain == 0:
        places = ones(options[PACKETS])
        bits <<= np.uint64(options[PACKETS])
    when = now + _way(g, node, to, now)
    early = bits & ones(plain)
    if wait and early:
        later(g, when, REPAIR, to, node, slot, load(early, places, begin, count, rank))
        bits &= ~early
    if bits:
        sent = load(bits, places, begin, count, rank)
        later(g, when + wait, REPAIR, to, node, slot, sent)


@in_place
def send_offer(g: Group, node: int, to: int, slots: np.uint64, now: int) -> None:
    g.counts[OFFERS] += 1
    if _direct(g, node, to, 1, now) & ONE:
        when = now + _way(g, node, to, now)
        later(g, when, OFFER, to, node, 0, load(slots, NOTHING, NOTHING, 0, 0))


@in_place
def send_want(g: Group, node: int, to: int, slot: int, now: int) -> None:
    """Ask for what is missing of an event; for everything if nothing has come (count 0)."""
    g.counts[WANTS] += 1
    mine = g.held[node, slot]
    mine.asked = now
    if _direct(g, node, to, 1, now) & ONE == NOTHING:
        return
    n = g.options[PACKETS]
    count = n - mine.rank if mine.rank else 0
    absent = ones(n) & ~mine.plain
    when = now + _way(g, node, to, now)
    later(g, when, WANT, to, node, slot, load(NOTHING, absent, NOTHING, count, 0))
