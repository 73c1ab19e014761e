"""The papers' analytical models of loss and recovery, as printed but for `errata` noted in each.

    channel.py   a Gilbert-Elliott channel: how many of n packets are lost
    tree.py      dissemination down a tree, then rounds of pull gossip (paper 003, section VI)
    markov.py    one source, rounds of pull gossip, with and without coding (thesis, section 5.4)

All are exact up to rounding, need no other package, and agree with simulation in `tests/models`.
"""
