"""Total notification order across topics.

Guarantee: if two subscribers are both notified of the same two events, untagged, they are notified
of them in the same order - whatever the topics and publishers; and one order of all events fits all
subscribers. An event that would break this is tagged out_of_order. With exact stamps, an unbounded
buffer and everything delivered, nothing is tagged. It holds while subscriptions, members and the
topic order change, messages are lost, and managers crash, as long as a majority of a topic's copies
lives. Paper: thesis sections 3.2 to 3.4, with the corrections listed in docs/deviations.md.

    layer.py       the layer: routes messages to the parts below, each a small state machine
    messages.py    every message, declared once
    publisher.py   asks for stamps, publishes stamped events
    manager.py     one topic manager: numbers, sequencing group, stamps; state.py: what it knows
    replica.py     copies of managers: a majority has a message before anyone is told its outcome
    survey.py      what must be known of earlier views before a manager may go on
    epochs.py      a new topic order; adapt.py: when there should be one
    order.py       topic order (who precedes whom), placement (which nodes hold a topic)
    subscriber.py  the notify rule, the reorder buffer, subscribe and unsubscribe
    post.py        outgoing messages; parking.py: incoming ones that must wait
"""
