"""The columnar engine: the total order algorithm on arrays, for ten thousand nodes.

A second implementation of a few rules, on purpose; tests/parity holds it to the object nodes. What
it models and what not: docs/columnar.md. Needs numpy and numba.

    calendar.py     the event loop's queue
    links.py        delays and FIFO links
    overlay.py      who passes what on to whom: dissemination trees, routes between nodes
    managers.py     stamps: numbers, sequencing groups, causal hold
    swaps.py        the adaptive topic order: who changes places with whom, in which epoch
    subscribers.py  the notify rule and the reorder buffer
    tables.py       the arrays of all of these
    loop.py         the event loop over them
    models.py       who subscribes to and publishes on what
    engine.py       a run, from a plan to figures
"""
