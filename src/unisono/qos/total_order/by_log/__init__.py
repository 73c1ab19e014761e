"""Total order by a replicated log: one row of numbers for all events of a domain.

Guarantee: all subscribers are notified of the events of a domain, untagged, by rising number, and
everybody's numbers are the same. A publisher's events have rising numbers, and so have an event and
what its publisher was notified or acknowledged of before: the order is FIFO and causal, too. What
is acknowledged is on a majority of the voters with its payload. A *domain* is a set of topics with
one order, one log, one leader and one channel.

    layer.py       the layer: one domain or several, by topic
    domain.py      one process in one domain: routes each message to the part it is for
    messages.py    every message, declared once; what stands in the log
    known.py       what a process knows of its log: which it is, who leads
    publisher.py   sends events to the leader in batches, until they are committed
    state.py       what the log comes to: the last number, the open sessions
    voter.py       keeps the log, and serves what subscribers missed
    leader.py      takes batches; publishes and announces what is committed
    subscriber.py  the rule of notification; fetches what is missing
    seats.py       who begins a log, who votes, who leaves
    observations.py  what a process notices
"""
