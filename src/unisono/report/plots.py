"""Plots as SVG files. The data are small tables; nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unisono.errors import EnvironmentLacks

_STYLES = ("-", "--", ":")
_COLOURS = (
    "#8c8c8c",
    "#c9713b",
    "#d9a441",
    "#2b7a78",
    "#3b5b92",
    "#7a3b69",
    "#5a8f29",
    "#222222",
)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise EnvironmentLacks("plots need matplotlib: pip install 'unisono[spark]'") from None
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "unisono"  # equal data give equal files
    import matplotlib.pyplot as plt

    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def bars(
    values: Mapping[str, float],
    label: str,
    path: Path,
    spread: Mapping[str, float] | None = None,
    mark: tuple[str, float] | None = None,
) -> None:
    """One bar per name, with its value above it, and perhaps a dashed line to compare with."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5.4, 3.2))
    names = list(values)
    errors = [spread[name] for name in names] if spread else None
    drawn = axes.bar(
        names, list(values.values()), yerr=errors, color=_COLOURS[: len(names)], capsize=3
    )
    axes.bar_label(drawn, fmt="%.1f", padding=2)
    if mark is not None:
        axes.axhline(mark[1], linestyle="--", linewidth=1, color="#444444")
        axes.text(-0.4, mark[1], mark[0], ha="left", va="bottom", fontsize=8)
    axes.set_ylabel(label)
    axes.margins(y=0.15)
    _bare(axes)
    _save(plt, figure, path)


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    path: Path,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """One line per name through its points."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5.4, 3.2))
    assert len(lines) <= len(_COLOURS) * len(_STYLES), "more lines than can be told apart"
    for index, (name, points) in enumerate(lines.items()):
        style, colour = divmod(index, len(_COLOURS))
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=name,
            color=_COLOURS[colour],
            linestyle=_STYLES[style],
        )
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False)
    _bare(axes)
    _save(plt, figure, path)
