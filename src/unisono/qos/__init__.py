"""Guarantees: one layer each, pure and testable."""
