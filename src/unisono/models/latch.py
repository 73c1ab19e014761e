"""How long to hold a message that came before its predecessor (paper 002, sections III-D, III-E).

The difference of the delays of two messages is taken for the sum of two Laplacian variables of one
scale b. Its mean is 0, the mean of its absolute value 3b/2, its standard deviation 2b, and

    P(X > x) = (2b + x) / 4b * exp(-x / b)        for x >= 0.

Of a message sent `delta` after one that is missing, the missing one is overtaken for good if it
takes more than `delta + latch` longer. Three rules choose the latch:

- conditional: P(X > delta + latch | X > delta) is at most what is asked. A gap has been seen, so
  the difference is above delta already; this is the promise that an application understands.
- paper: P(X > delta + latch) is at most what is asked, gap or no gap: equation 4. Of the gaps that
  are seen, far more end in a violation.
- chebyshev: as the paper's, but for any distribution of the measured variance (Cantelli's
  one-sided inequality). For paths that fit no model.

Equation 5 is printed with the wrong branch of Lambert's W and without its minus (docs/deviations).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, isfinite, log, log1p, sqrt
from typing import Literal

from scipy.special import lambertw

from unisono.errors import BadInput

Rule = Literal["conditional", "paper", "chebyshev"]
RULES: tuple[Rule, ...] = ("conditional", "paper", "chebyshev")
_FAR = 700.0  # scales; beyond, exp(-x) cannot be told from 0


def scale(samples: Sequence[float]) -> float:
    """b, by the paper's estimator: two thirds of the mean absolute difference."""
    if not samples:
        raise BadInput("a scale needs at least one sample")
    found = 2 * sum(map(abs, samples)) / (3 * len(samples))
    if not isfinite(found):
        raise BadInput("samples are finite numbers")
    return found


def tail(x: float, b: float) -> float:
    """P(X > x)."""
    if x < 0:
        return 1 - tail(-x, b)
    if b == 0:
        return 0.5 if x == 0 else 0.0
    return (2 * b + x) / (4 * b) * exp(-x / b)


def quantile(share: float, b: float) -> float:
    """The difference that this share of all differences stays below."""
    if not 0 < share < 1:
        raise BadInput(f"share = {share} is not between 0 and 1")
    if share < 0.5:
        return -quantile(1 - share, b)
    return max(0.0, -b * (_lower_w(4 * exp(-2) * (share - 1)) + 2))


def latch(violation: float, delta: float, b: float, rule: Rule = "conditional") -> float:
    """How long to hold, in the unit of b and delta. `chebyshev` takes 2b for the deviation."""
    if not 0 < violation < 1:
        raise BadInput(f"violation = {violation} is not a probability between 0 and 1")
    if not 0 <= delta < inf:
        raise BadInput(f"delta = {delta}: the later departure minus the earlier one, 0 or more")
    if rule == "paper":
        return max(0.0, quantile(1 - violation, b) - delta)
    if rule == "chebyshev":
        return max(0.0, cantelli(violation, 2 * b) - delta)
    if b == 0:
        return 0.0
    # With s = 2 + delta / b and t = latch / b: (s + t) exp(-s - t) = violation * s exp(-s).
    s = 2 + delta / b
    if s < _FAR:
        return b * max(0.0, -_lower_w(-violation * s * exp(-s)) - s)
    t = -log(violation)
    for _ in range(5):  # gains three digits each time
        t = log1p(t / s) - log(violation)
    return b * t


def cantelli(violation: float, deviation: float) -> float:
    """What a variable of mean 0 exceeds with at most this probability, whatever its kind."""
    return deviation * sqrt((1 - violation) / violation)


def _lower_w(x: float) -> float:
    """The lower branch of Lambert's W: the solution w <= -1 of w exp(w) = x."""
    return float(lambertw(x, -1).real)
