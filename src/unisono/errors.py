"""Errors a user can act on. Each knows the exit code the command line ends with."""

from __future__ import annotations

from typing import ClassVar

import msgspec

# What decoding raises of bytes that are not what they should be; text that is no UTF-8 among them.
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError, OverflowError)


class UnisonoError(Exception):
    """Base of all errors raised on purpose. The text says what to do."""

    exit_code: ClassVar[int] = 2


class BadInput(UnisonoError):
    """An argument, a file or a message that cannot be used as it is."""


class Unsupported(BadInput):
    """A combination of guarantees that is refused rather than half kept."""


class EnvironmentLacks(UnisonoError):
    """Something outside is missing: a server, a package, a Java."""

    exit_code = 3


class BusClosed(UnisonoError):
    """The bus was closed, by its owner or by a fault that the text names."""

    exit_code = 3


class NotAcknowledged(UnisonoError):
    """A publication was not acknowledged in time; whether it went out is unknown."""

    exit_code = 1
