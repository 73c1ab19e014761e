"""Total notification order across topics.

Guarantee: if two subscribers are both notified of the same two events, untagged, they are notified
of them in the same order - whatever the topics and publishers. An event that would break this is
tagged out_of_order. With exact stamps, an unbounded buffer and everything delivered, nothing is
tagged. Paper: thesis sections 3.2 to 3.4, with the corrections listed in docs/deviations.md.

    layer.py       the layer: routes messages to the parts below, each a small state machine
    order.py       topic order (who precedes whom) and placement (which node manages a topic)
    messages.py    every message, declared once
    publisher.py   asks for stamps, publishes stamped events
    manager.py     one topic manager: numbers, sequencing group, stamp creation and filling, closure
    subscriber.py  the notify rule, the reorder buffer, subscribe and unsubscribe
"""
