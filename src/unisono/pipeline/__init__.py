"""Spark over traces: the session, the reader and the audit.

Nothing here imports protocol code: an audit must not inherit the protocol's bugs. It knows the
trace schema (`unisono.trace.schema`) and nothing else of ours.
"""
