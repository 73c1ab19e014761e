"""The papers' analytical models of loss and recovery, as printed but for `errata` noted in each.

    channel.py   a Gilbert-Elliott channel: how many of n packets are lost
    tree.py      dissemination down a tree, then rounds of pull gossip (paper 003, section VI)
    markov.py    one source, rounds of pull gossip, with and without coding (thesis, section 5.4)
    recovery.py  how soon a group has an event, with the gossip that ships: a mean field
    planner.py   the cheapest setting that meets deadlines

The first three are exact up to rounding. All agree with simulation in `tests/models`, and need no
other package.
"""
