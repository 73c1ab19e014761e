"""A journal: the durable, bounded log of what was notified to a subscriber, by position.

What Spark reads of a bus, and what a late joiner replays. Appending is durable when `flush`
returns; positions are never used twice, so reading a range again gives the same rows, also after a
crash.

    frames.py      the format of a segment: frames of Arrow rows with checksums
    journal.py     appending: segments, repair after a crash, retention
    reading.py     ranges of positions, while others append
"""
