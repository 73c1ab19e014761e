"""Reliable delivery over a bus that loses packets: coding, then gossip.

Guarantee: an event that a subscriber lacks packets of is recovered from other subscribers, as long
as one that can be reached still keeps it (`keep_s`); it is notified at most once, and never a wrong
one. What is given up is counted and said. (Thesis chapter 5, paper 003.)

    options.py     how much redundancy, which gossip, how often
    messages.py    what nodes say to each other
    measure.py     how packets get lost on their way here
    redundancy.py  how many redundant packets that takes
    layer.py       the layer itself: a frame layer, below whatever orders events
"""
