"""The columnar engine: total order, reliable delivery and the mesh on arrays, for 10,000 nodes.

A second implementation of a few rules, on purpose; tests/parity holds it to the object nodes. What
it models and what not: docs/columnar.md. Needs numpy and numba.

Both:

    overlay.py      who passes what on to whom: dissemination trees, routes between nodes
    links.py        delays and FIFO links

Total order:

    calendar.py     the event loop's queue
    managers.py     stamps: numbers, sequencing groups, causal hold
    swaps.py        the adaptive topic order: who changes places with whom, in which epoch
    subscribers.py  the notify rule and the reorder buffer
    tables.py       the arrays of all of these
    loop.py         the event loop over them
    models.py       who subscribes to and publishes on what
    engine.py       a run, from a plan to figures

Reliable delivery:

    heap.py         the event loop's queue, for many things due at one time
    losses.py       packets lost on links
    draws.py        random streams of nodes
    bits.py         sets of packets and of events as words
    group.py        the arrays
    packets.py      what nodes hold of events
    sending.py      what they send
    gossip.py       the event loop: the rules of `qos/reliable/layer.py`
    delivery.py     a run, from a plan to who got what and when

FIFO:

    brokers.py      a network of brokers that match in parallel
    latches.py      the rules of `qos/fifo/`, over what arrives

The mesh:

    mesh.py         rings and trees: the rules of `ens/scribe`, of sites that know each other
    spreading.py    when an event is where, over several trees and in clusters
"""
