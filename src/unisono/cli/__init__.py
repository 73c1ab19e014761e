"""Thin commands: parse, call, print."""
