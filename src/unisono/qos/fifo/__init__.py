"""Probabilistic FIFO: what comes before its predecessor is held just long enough (paper 002).

Guarantee: of one publisher's events, over all its topics with this order, none is notified after a
later one without a tag (`out_of_order`); and of the events that come before one that is on its way,
the share that is let go too early stays below what was asked (`Fifo.violation`), as far as delays
follow the model - where they do not, the layer says so and holds longer. No event is held longer
than `Fifo.hold_ms`. What was overtaken is still notified, tagged - unless it is later than a
thousand gaps that nobody explained: then it cannot be told from a duplicate.

A receiver cannot tell from a number whether a missing event is late or was not for it. Each event
therefore says what was published before it: topics, and summaries of contents (`Fifo.record`).

    options.py     what is promised, how much is told
    spread.py      how much delays differ, and how long to hold
    source.py      one publisher's events, at a receiver
    summary.py     what an event contained, in 16 bytes
    layer.py       the layer itself
"""
