"""How much the delays of one publisher's events differ, and how long that is worth waiting.

A sample is the difference of the delays of two events that arrived one after the other: arrivals
are compared with arrivals, departures with departures, so clocks need not agree. Everything is in
whole microseconds, so sums stay exact as samples come and go.
"""

from __future__ import annotations

from collections import deque
from math import expm1, sqrt

from unisono.models.latch import cantelli, latch, quantile, tail
from unisono.qos.fifo.options import Fifo

_WATCHED = 200  # samples over which the fit is judged
_FEWEST = 10  # samples without which nothing is judged
_FAR = quantile(0.95, 1.0)  # scales: a tenth of all samples is further away from 0
_TOO_MANY = 0.20  # of the samples: twice as many as the model allows for
_UNLIKELY = 0.01  # of the allowed violations: what would have to be so late is for others


class Spread:
    """The last samples, their scale, and whether the model fits."""

    __slots__ = ("_absolute", "_bound", "_far", "_options", "_samples", "_squares", "_watched")

    def __init__(self, options: Fifo) -> None:
        self._options = options
        self._bound = round(options.hold_ms * 1000)
        self._samples: deque[int] = deque()
        self._absolute = 0
        self._squares = 0
        self._watched: deque[bool] = deque()
        self._far = 0

    def add(self, sample: int) -> None:
        """A difference. Beyond the longest hold, how far makes no difference: a step of the
        publisher's clock counts as one such sample."""
        size = min(abs(sample), self._bound)
        samples = self._samples
        if len(samples) >= _FEWEST:
            self._watch(1.5 * size * len(samples) > _FAR * self._absolute)
        samples.append(size)
        self._absolute += size
        self._squares += size * size
        if len(samples) > self._options.window:
            gone = samples.popleft()
            self._absolute -= gone
            self._squares -= gone * gone

    def _watch(self, far: bool) -> None:
        self._watched.append(far)
        self._far += far
        if len(self._watched) > _WATCHED:
            self._far -= self._watched.popleft()

    @property
    def scale_us(self) -> float:
        """b of the model; 0 before the first sample."""
        return self._absolute / (1.5 * len(self._samples)) if self._samples else 0.0

    @property
    def fits(self) -> bool:
        """False if far more samples than the model allows for lie far out."""
        seen = len(self._watched)
        return seen < _WATCHED // 2 or self._far <= _TOO_MANY * seen

    def latch_us(self, delta_us: int, told: bool = True) -> int:
        """How long to hold an event that departed this long after the one that is missing. If
        nobody told of that one: it may just as well not be for us."""
        options, count = self._options, len(self._samples)
        if options.rule == "static":
            assert options.latch_ms is not None
            held = options.latch_ms * 1000
        elif not count:  # of what the record does not tell, nobody knows whether it is over
            held = options.first_ms * 1000 if told or not options.record else 0.0
        elif options.rule == "chebyshev" or not self.fits:
            held = cantelli(options.violation, sqrt(self._squares / count)) - delta_us
        else:
            held = latch(options.violation, delta_us, self.scale_us, options.rule)
            if options.rule == "conditional" and held:
                late = told or tail(delta_us, self.scale_us) > _UNLIKELY * options.violation
                held = self._stretched(held, count) if late else 0.0
        return min(max(0, round(held)), self._bound)

    def _stretched(self, held: float, count: int) -> float:
        """The scale is an estimate, from a few samples: a tail that is exponential, of a scale that
        is known so well, falls like (1 + x / n)^-n. So the promise is kept on average."""
        scale = self.scale_us
        return scale * count * expm1(held / (scale * count))
