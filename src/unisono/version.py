"""The version, as installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def unisono_version() -> str:
    try:
        return version("unisono")
    except PackageNotFoundError:
        return "unknown"
