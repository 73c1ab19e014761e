"""The HTML report: one self-contained page, plots inline, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } .plots svg { max-width: 29rem; height: auto; }
.note { color: #555; font-size: .9rem; }
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of plain texts."""
    header = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def paragraph(text: str, note: bool = False) -> str:
    kind = ' class="note"' if note else ""
    return f"<p{kind}>{escape(text)}</p>"


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def figures(paths: Sequence[Path]) -> str:
    """The SVG files, inline and side by side."""
    drawn = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        drawn.append(text[text.index("<svg") :])
    return f'<div class="plots">{"".join(drawn)}</div>'


def write_page(path: Path, title: str, parts: Sequence[str]) -> Path:
    """Write the page and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>\n",
        encoding="utf-8",
    )
    return path
