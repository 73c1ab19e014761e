"""The reliable layer on arrays: packets down a tree, and gossip for what is missing.

The rules are those of `qos/reliable/layer.py`, message by message and draw by draw; packets that
leave for one node at one time travel as one row of mail (`group.py`). Two things are the network's,
not the layer's: inner nodes of the tree may code anew what they pass on, and coding may take time.
"""

from __future__ import annotations

import numpy as np

from unisono.compiled import STEP, in_place, mix
from unisono.sim.columnar import heap
from unisono.sim.columnar.bits import NOTHING, ONE, long, ones, size, spread
from unisono.sim.columnar.draws import below, share, share_of
from unisono.sim.columnar.group import (
    ASKS,
    CODING,
    DECODE_US,
    DOWN,
    ENCODE_US,
    FAN_IN,
    FAN_OUT,
    FINISHED,
    FREE,
    GIVEN_UP,
    GOSSIP,
    KEEP,
    LEAVE,
    MORE_ROOM,
    NEED,
    NEXT,
    OFFER,
    PACKETS,
    PERIOD,
    PULL,
    PUSH,
    PUSH_PULL,
    PUSHED,
    READY,
    RECODE,
    REDUNDANCY,
    REMIND,
    REPAIR,
    ROOT,
    ROUND,
    SPARE,
    TREE_PACKETS,
    UNTIL,
    WANT,
    Group,
    Load,
    load,
)
from unisono.sim.columnar.losses import TREE, come, condition, delay
from unisono.sim.columnar.packets import (
    DECODING,
    DONE,
    OWN,
    PARTIAL,
    UNKNOWN,
    WHOLE,
    add,
    add_plain,
    coefficients,
    ordered,
)
from unisono.sim.columnar.sending import drawn, later, own, send_offer, send_packets, send_want

_ASK_SENDER = 0.25


@in_place
def begin(g: Group) -> None:
    """Every node's first round, at some time of the first period."""
    for node in range(g.stream.size):
        own(g, int(np.rint(g.options[PERIOD] * share(g.stream, node))), ROUND, node)


@in_place
def go(g: Group) -> int:
    """Run until nothing is left before the end, or more room is needed."""
    counts, options, published_us = g.counts, g.options, g.published_us
    while True:
        if counts[FREE] < options[NEED]:
            return MORE_ROOM
        now = heap.next_time(g.due, g.queue)
        event = counts[NEXT]
        if event < published_us.size and (now < 0 or published_us[event] <= now):
            if published_us[event] > options[UNTIL]:
                return FINISHED
            counts[NEXT] += 1
            _publish(g, event, published_us[event])
            continue
        if now < 0 or now > options[UNTIL]:
            return FINISHED
        _step(g, heap.pop(g.due, g.queue), now)


@in_place
def _step(g: Group, item: int, now: int) -> None:
    mail = g.mail[item]
    kind, node, source, slot = long(mail.kind), long(mail.node), long(mail.source), long(mail.slot)
    sent = load(mail.bits, mail.places, mail.begin, mail.count, mail.rank)
    g.free[g.counts[FREE]] = item
    g.counts[FREE] += 1
    if kind == DOWN:
        _pass_on(g, node, source, slot, sent, now)
    elif kind == REPAIR:
        _take(g, node, source, slot, sent, now)
    elif kind == OFFER:
        _offered(g, node, source, sent.bits, now)
    elif kind == WANT:
        _wanted(g, node, source, slot, sent.places, sent.amount, now)
    elif kind == ROUND:
        _round(g, node, now)
    elif kind == READY:
        _complete(g, node, slot, now)
    else:
        _hop(g, node, source, slot, sent, now)


# Down the tree.


@in_place
def _publish(g: Group, event: int, now: int) -> None:
    options = g.options
    node, slot = long(g.publisher[event]), long(event % g.slot_event.size)
    n, spare = options[PACKETS], options[REDUNDANCY]
    _clear(g, slot)
    g.slot_event[slot] = event
    _know(g, slot, node, OWN, now)
    g.held[node, slot].offers = options[FAN_IN]
    if options[GOSSIP] != PULL:
        _tell(g, node, slot)
    begin = drawn(g, node, spare)
    plain, coded = ones(n), ones(n + spare) & ~ones(n)
    wait = options[ENCODE_US] * spare if options[CODING] else 0
    root = options[ROOT]
    both = load(plain | coded, ones(n), begin, spare, 0)
    if spare and wait and not options[RECODE]:
        _hop(g, root, node, slot, load(plain, ones(n), begin, spare, 0), now)
        rest = load(coded, ones(n), begin, spare, 0)
        later(g, now + wait, LEAVE, root, node, slot, rest)
    elif wait:
        later(g, now + wait, LEAVE, root, node, slot, both)
    else:
        _hop(g, root, node, slot, both, now)


@in_place
def _hop(g: Group, root: int, publisher: int, slot: int, sent: Load, now: int) -> None:
    """From the publisher to the root of the tree."""
    limits = g.conditions[condition(g.conditions, now)]
    packets = size(sent.bits)
    came = come(g.up, publisher, g.words, g.key, limits, publisher, root, TREE, now, packets)
    if publisher != root:
        g.counts[TREE_PACKETS] += packets
    _arrive(g, root, publisher, publisher, slot, sent, came, now)


@in_place
def _arrive(
    g: Group, node: int, over: int, source: int, slot: int, sent: Load, came: np.uint64, now: int
) -> None:
    """Those that came of some packets will be at a node of the tree, over the link from another."""
    bits = spread(came, sent.bits)
    if bits:
        when = now + delay(g.words, g.key, g.delay_us, over, node, now)
        there = load(bits, sent.places, sent.begin, sent.amount, sent.rank)
        later(g, when, DOWN, node, source, slot, there)


@in_place
def _pass_on(g: Group, node: int, source: int, slot: int, sent: Load, now: int) -> None:
    """Packets are at a node of the tree: pass them on, and take them."""
    recode = g.options[RECODE]
    if recode:
        _take(g, node, source, slot, sent, now)
        source, sent = node, _anew(g, node, slot)
    packets = size(sent.bits)
    limits = g.conditions[condition(g.conditions, now)]
    for at in range(g.child_start[node], g.child_start[node + 1]):
        below_it = long(g.child[at])
        came = come(g.down, below_it, g.words, g.key, limits, node, below_it, TREE, now, packets)
        g.counts[TREE_PACKETS] += packets
        _arrive(g, below_it, node, source, slot, sent, came, now)
    if not recode:
        _take(g, node, source, slot, sent, now)


@in_place
def _anew(g: Group, node: int, slot: int) -> Load:
    """What an inner node makes of what it holds: its plain packets, and fresh combinations."""
    options, mine = g.options, g.held[node, slot]
    places, spare, rank = ones(options[PACKETS]), options[REDUNDANCY], 0
    if mine.status == PARTIAL:
        places, rank = mine.plain, long(mine.rank)
        spare += rank - size(places)
    begin = drawn(g, node, spare)
    return load(ones(size(places) + spare), places, begin, spare, rank)


# Packets come.


@in_place
def _clear(g: Group, slot: int) -> None:
    """A slot is used anew: the event before is forgotten everywhere."""
    if g.slot_event[slot] < 0:
        return
    bit = ONE << np.uint64(slot)
    for node in range(g.live.size):
        mine = g.held[node, slot]
        if mine.status == PARTIAL:
            g.counts[GIVEN_UP] += 1
        mine.status = UNKNOWN
        g.live[node] &= ~bit
        g.busy[node] &= ~bit
        g.settled[node] &= ~bit
        _hush(g, node, slot)


@in_place
def _know(g: Group, slot: int, node: int, status: int, now: int) -> None:
    mine = g.held[node, slot]
    mine.status = status
    mine.since = now
    mine.asked = -(1 << 62)
    mine.order = g.known[node]
    g.known[node] += 1
    mine.pivots = NOTHING
    mine.plain = NOTHING
    mine.units = NOTHING
    mine.rank = mine.offers = mine.coded = 0
    mine.sender = -1
    if not g.live[node]:
        g.expires_us[node] = now + g.options[KEEP]
    g.live[node] |= ONE << np.uint64(slot)
    g.busy[node] |= ONE << np.uint64(slot)


@in_place
def _take(g: Group, node: int, source: int, slot: int, sent: Load, now: int) -> None:
    """Packets of an event, one after the other."""
    if not g.subscribes[node] or g.settled[node] >> np.uint64(slot) & ONE:
        return
    options = g.options
    mine = g.held[node, slot]
    if mine.status == OWN:  # published here, come back from the bus
        _complete(g, node, slot, now)
        return
    if mine.status == UNKNOWN:
        _know(g, slot, node, PARTIAL, now)
    if mine.status != PARTIAL:
        return
    bits, places = sent.bits, sent.places
    plain = size(places)
    if mine.coded == 0 and spread(bits, places) | mine.plain == ones(options[PACKETS]):
        _complete(g, node, slot, now)
        return
    index = 0
    rest = places
    while bits >> np.uint64(index):
        here = bits >> np.uint64(index) & ONE
        place = -1
        if index < plain:
            place = size((rest & (~rest + ONE)) - ONE)
            rest &= rest - ONE
        elif here and not options[CODING]:
            place = _chosen(places, plain, sent.begin, index - plain)
        index += 1
        if not here:
            continue
        if place >= 0:
            innovative = add_plain(g, node, slot, place)
        else:
            coefficients(g, source, slot, sent, index - 1 - plain)
            innovative = add(g, node, slot)
            mine.coded += innovative
        if innovative and mine.rank == 1:
            mine.sender = source
        if mine.rank == options[PACKETS]:
            if mine.coded and options[DECODE_US]:
                mine.status = DECODING
                g.settled[node] |= ONE << np.uint64(slot)
                when = now + options[DECODE_US]
                later(g, when, READY, node, node, slot, sent)
            else:
                _complete(g, node, slot, now)
            return


@in_place
def _chosen(places: np.uint64, plain: int, begin: np.uint64, index: int) -> int:
    """The place of a duplicate chosen by chance."""
    drawn = mix(begin + np.uint64(index) * STEP)
    turn = int(share_of(drawn) * plain)
    for _ in range(turn):
        places &= places - ONE
    return size((places & (~places + ONE)) - ONE)


@in_place
def _complete(g: Group, node: int, slot: int, now: int) -> None:
    """The event is whole: notify it, and let others know."""
    options = g.options
    event = g.slot_event[slot]
    mine = g.held[node, slot]
    mine.status = WHOLE
    g.settled[node] |= ONE << np.uint64(slot)
    mine.offers = options[FAN_IN] if options[GOSSIP] == PULL else 0
    if mine.offers:
        g.busy[node] |= ONE << np.uint64(slot)
        _hush(g, node, slot)
    else:
        g.busy[node] &= ~(ONE << np.uint64(slot))
        _tell(g, node, slot)
    g.latency_us[event, node] = now - g.published_us[event]
    if options[GOSSIP] != PUSH and options[GOSSIP] != PUSH_PULL:
        return
    chosen = _partners(g, node, options[FAN_OUT])
    for at in range(chosen):
        partner = g.found[at]
        if options[GOSSIP] == PUSH_PULL:
            send_offer(g, node, partner, ONE << np.uint64(slot), now)
            continue
        places, count = ones(options[PACKETS]), options[SPARE]
        if options[PUSHED] >= 0:
            places, count = NOTHING, options[PUSHED]
        send_packets(g, node, partner, slot, places, count, 0, now)


# Gossip.


@in_place
def _partners(g: Group, node: int, count: int) -> int:
    """So many random subscribers, into `found`; fewer if there are not so many."""
    others = g.subscriber.size - g.subscribes[node]
    count = min(count, others)
    chosen = 0
    while chosen < count:
        partner = long(g.subscriber[below(g.stream, node, g.subscriber.size)])
        fresh = partner != node
        for at in range(chosen):
            fresh = fresh and g.found[at] != partner
        if fresh:
            g.found[chosen] = partner
            chosen += 1
    return chosen


@in_place
def _offered(g: Group, node: int, source: int, slots: np.uint64, now: int) -> None:
    """Someone has these: ask for what is missing here."""
    slots &= ~g.settled[node]
    if not g.subscribes[node] or not slots:
        return
    for at in range(ordered(g.held, slots, source, g.slots)):
        slot = g.slots[at]
        mine = g.held[node, slot]
        if mine.status == UNKNOWN:
            _know(g, slot, node, PARTIAL, now)
        if mine.status == PARTIAL and mine.rank == 0:
            mine.sender = source
        if mine.status != PARTIAL or 0 <= now - mine.asked < g.options[PERIOD] // 2:
            continue
        send_want(g, node, source, slot, now)


@in_place
def _wanted(
    g: Group, node: int, source: int, slot: int, absent: np.uint64, count: int, now: int
) -> None:
    """Send what the other can use; from a part, combinations of it."""
    options = g.options
    mine = g.held[node, slot]
    n, spare = options[PACKETS], options[SPARE]
    if mine.status == WHOLE or mine.status == OWN:
        if options[CODING]:
            send_packets(g, node, source, slot, NOTHING, (count or n) + spare, 0, now)
        else:
            places = absent if count else ones(n)
            send_packets(g, node, source, slot, places, spare, 0, now)
    elif mine.status == PARTIAL and options[CODING] and mine.rank > 0:
        send_packets(g, node, source, slot, NOTHING, (count or n) + spare, long(mine.rank), now)


@in_place
def _round(g: Group, node: int, now: int) -> None:
    """Offer what was completed lately, ask for what is missing, forget what is old."""
    options = g.options
    wait = options[PERIOD] * (0.9 + (1.1 - 0.9) * share(g.stream, node))
    own(g, now + int(np.rint(wait)), ROUND, node)
    if not g.live[node]:
        return
    if not g.busy[node] and now < g.expires_us[node]:
        _remind(g, node, now)
        return
    count = ordered(g.held, g.busy[node], node, g.slots)
    for at in range(count):
        mine = g.held[node, g.slots[at]]
        if mine.status == OWN and g.subscribes[node] and now - mine.since >= options[PERIOD]:
            _complete(g, node, g.slots[at], now)  # lost on return
    if options[GOSSIP] == PULL:
        lately = NOTHING
        for at in range(count):
            mine = g.held[node, g.slots[at]]
            if mine.offers > 0 and (mine.status == WHOLE or mine.status == OWN):
                mine.offers -= 1
                if mine.offers == 0:
                    _tell(g, node, g.slots[at])
                    if mine.status != OWN:
                        g.busy[node] &= ~(ONE << np.uint64(g.slots[at]))
                lately |= ONE << np.uint64(g.slots[at])
        if lately:
            for at in range(_partners(g, node, options[FAN_OUT])):
                send_offer(g, node, g.found[at], lately, now)
    _remind(g, node, now)
    if options[ASKS]:
        for at in range(count):
            _ask(g, node, g.slots[at], now)
    if g.live[node] and now >= g.expires_us[node]:
        _forget(g, node, now)


@in_place
def _tell(g: Group, node: int, slot: int) -> None:
    """From now on, others are reminded of the event for some rounds."""
    _hush(g, node, slot)
    if g.options[REMIND]:
        g.tell[node, 0] |= ONE << np.uint64(slot)


@in_place
def _hush(g: Group, node: int, slot: int) -> None:
    keep = ~(ONE << np.uint64(slot))
    for age in range(g.options[REMIND]):
        g.tell[node, age] &= keep


@in_place
def _remind(g: Group, node: int, now: int) -> None:
    """Tell one partner what has been here for a while."""
    known = NOTHING
    for age in range(g.options[REMIND] - 1, -1, -1):
        known |= g.tell[node, age]
        g.tell[node, age] = g.tell[node, age - 1] if age else NOTHING
    if known and _partners(g, node, 1):
        send_offer(g, node, g.found[0], known, now)


@in_place
def _forget(g: Group, node: int, now: int) -> None:
    """Events that were kept long enough go; those that never became whole are given up."""
    for at in range(ordered(g.held, g.live[node], node, g.slots)):
        slot = g.slots[at]
        mine = g.held[node, slot]
        g.expires_us[node] = mine.since + g.options[KEEP]
        if now < g.expires_us[node]:
            break
        if mine.status == PARTIAL:
            g.counts[GIVEN_UP] += 1
        if mine.status == OWN:
            mine.status = UNKNOWN
        else:
            mine.status = DONE
            g.settled[node] |= ONE << np.uint64(slot)
        g.live[node] &= ~(ONE << np.uint64(slot))
        g.busy[node] &= ~(ONE << np.uint64(slot))
        _hush(g, node, slot)


@in_place
def _ask(g: Group, node: int, slot: int, now: int) -> None:
    mine = g.held[node, slot]
    if mine.status != PARTIAL or now - max(mine.since, mine.asked) < g.options[PERIOD]:
        return
    asked = -1
    if _partners(g, node, 1):
        asked = g.found[0]
    if mine.sender >= 0 and (asked < 0 or share(g.stream, node) < _ASK_SENDER):
        asked = long(mine.sender)
    if asked >= 0:
        send_want(g, node, asked, slot, now)
