"""A replicated log. It knows nothing of topics and events.

raft.py          one voter: elections, replication, snapshots, changes of voters
peer.py          what a leader knows of one follower
log.py           the entries that are kept, above a base
messages.py      every message, declared once
keep.py          what is kept on disk, and the log from it
observations.py  what a voter notices
"""
