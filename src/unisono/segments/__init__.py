"""Append-only logs on disk: records with checksums in segments, and a base below them.

What was synced is there after a crash. A last record that was not finished is cut off; any other
damage is refused, with its place. Nothing here knows what a record says.

    records.py   one record in a file, and a file's records
    store.py     a folder of segments: append, sync, begin with a base
"""
