"""What commands print with: people's output, or one JSON object and nothing else on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class _Out(Console):
    """Standard output. Whoever reads it may have heard enough."""

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(141) from None  # as of a process that SIGPIPE has ended


class Ui:
    """Progress and remarks go to stderr, results to stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._listing: str | None = None  # what comes before the next item
        self.out = _Out()
        self.err = Console(stderr=True)

    def emit(self, result: dict[str, Any]) -> None:
        """Print the JSON object of this command; does nothing without `--json`."""
        begun, self._listing = self._listing, None
        self._write(("\n], " if begun else "{") + json.dumps(result)[1:] + "\n")

    def begin_list(self, name: str) -> None:
        """Of an object that is printed as it comes: its list is first, an item a line; `emit` has
        the rest."""
        self._write(f'{{"{name}": [')
        self._listing = "\n"

    def emit_item(self, item: dict[str, Any]) -> None:
        assert self._listing is not None
        self._write(self._listing + json.dumps(item))
        self._listing = ",\n"

    def _write(self, text: str) -> None:
        if self.as_json:
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
            except BrokenPipeError:
                self.out.on_broken_pipe()

    def show(self, *renderables: Any) -> None:
        """Print for people; does nothing with `--json`."""
        if not self.as_json:
            self.out.print(*renderables, soft_wrap=isinstance(renderables[0], str | Text))

    def remark(self, text: str) -> None:
        self.err.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, disable: bool = False) -> Iterator[Progress]:
        """A progress display on stderr; silent when stderr is not a terminal."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        silent = disable or not self.err.is_terminal
        with Progress(*columns, console=self.err, disable=silent) as progress:
            yield progress
