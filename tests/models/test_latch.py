"""The latch of paper 002: against the distribution itself, not against the formulas."""

from __future__ import annotations

from math import exp, inf, nan, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import lambertw

from unisono.errors import BadInput
from unisono.models.latch import RULES, cantelli, latch, quantile, scale, tail

scales = st.floats(1e-3, 1e4)
shares = st.floats(1e-6, 0.999)


def density(x: float, b: float) -> float:
    """Of the sum of two Laplacian variables, as printed above equation 3."""
    return float((abs(x) + b) / (4 * b * b) * exp(-abs(x) / b))


@pytest.mark.parametrize("x", [-7.0, -0.5, 0.0, 0.5, 2.0, 12.0])
def test_the_tail_is_the_integral_of_the_density(x: float) -> None:
    area, _ = quad(density, x, 200, args=(2.0,), points=[0.0] if x < 0 else None)
    assert tail(x, 2.0) == pytest.approx(area, abs=1e-8)


def test_the_scale_is_that_of_the_samples() -> None:
    """Of differences that are drawn as sums of two Laplacian variables."""
    rng = Random(1)

    def laplacian() -> float:
        return rng.expovariate(1 / 3) - rng.expovariate(1 / 3)

    samples = [laplacian() + laplacian() for _ in range(200_000)]
    assert scale(samples) == pytest.approx(3, rel=0.01)
    assert sqrt(sum(x * x for x in samples) / len(samples)) == pytest.approx(2 * 3, rel=0.01)
    assert scale([3.0, -1.5]) == 1.5


@given(shares, scales)
def test_the_quantile_is_the_inverse_of_the_tail(share: float, b: float) -> None:
    assert tail(quantile(share, b), b) == pytest.approx(1 - share, rel=1e-7, abs=1e-12)


@given(shares, scales, st.floats(0, 1e3))
def test_a_hold_by_the_conditional_rule_keeps_its_promise(p: float, b: float, gaps: float) -> None:
    delta = gaps * b
    held = latch(p, delta, b)
    assert held >= 0
    if gaps < 600:  # beyond, the tails are too small for this check
        assert tail(delta + held, b) / tail(delta, b) == pytest.approx(p, rel=1e-6)


@given(shares, st.floats(0, 50))
def test_it_is_what_a_solver_finds(p: float, delta: float) -> None:
    def above(held: float) -> float:
        return tail(delta + held, 1.0) / tail(delta, 1.0) - p

    assert latch(p, delta, 1.0) == pytest.approx(brentq(above, 0, 200), abs=1e-6)


@given(st.floats(1e-6, 0.5), scales, st.floats(0, 20))
def test_the_papers_rule_holds_less_and_promises_less(p: float, b: float, gaps: float) -> None:
    """Errata: of the gaps that are seen, far more than the promised share end in a violation."""
    delta = gaps * b
    printed, ours = latch(p, delta, b, "paper"), latch(p, delta, b)
    assert printed <= ours * (1 + 1e-9)
    assert tail(delta + printed, b) <= p * (1 + 1e-7) or printed == 0
    assert tail(delta + printed, b) / tail(delta, b) >= p * (1 - 1e-7)


def test_equation_5_as_printed_is_wrong_on_either_branch() -> None:
    """Errata: the lower branch without its minus gives negative holds, the main one other tails."""
    argument = 4 * exp(-2) * (0.95 - 1)
    lower, main = (float(lambertw(argument, branch).real + 2) for branch in (-1, 0))
    assert lower == pytest.approx(-quantile(0.95, 1.0))
    assert lower < 0
    assert tail(main, 1.0) > 2 * 0.05


@given(st.floats(1e-4, 0.5), scales)
def test_chebyshev_holds_for_any_distribution(p: float, b: float) -> None:
    """The extreme one: a point far away that has all the probability that is allowed."""
    deviation = 2 * b
    far = cantelli(p, deviation)
    near = -far * p / (1 - p)
    assert p * far + (1 - p) * near == pytest.approx(0, abs=1e-6 * far)
    assert p * far**2 + (1 - p) * near**2 == pytest.approx(deviation**2)
    assert latch(p, 0, b, "chebyshev") == far >= latch(p, 0, b, "paper")


def test_without_variation_nothing_is_held() -> None:
    assert scale([0.0, 0.0]) == 0
    assert [latch(0.05, 0, 0.0, rule) for rule in RULES] == [0, 0, 0]


@pytest.mark.parametrize("samples", [[], [nan], [inf, 1.0]])
def test_bad_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(BadInput):
        scale(samples)


@pytest.mark.parametrize(("p", "delta"), [(0, 0), (1, 0), (nan, 0), (0.1, -1), (0.1, nan)])
def test_bad_parameters_are_refused(p: float, delta: float) -> None:
    with pytest.raises(BadInput):
        latch(p, delta, 1.0)
