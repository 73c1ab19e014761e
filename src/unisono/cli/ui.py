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


class Ui:
    """Progress and remarks go to stderr, results to stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._first = True
        self.out = Console()
        self.err = Console(stderr=True)

    def emit(self, result: dict[str, Any]) -> None:
        """Print the JSON object of this command; does nothing without `--json`."""
        self._write(json.dumps(result, sort_keys=False) + "\n")

    def begin_list(self, name: str) -> None:
        """Of an object that is printed as it comes: its list is first, an item a line."""
        self._write(f'{{"{name}": [')
        self._first = True

    def emit_item(self, item: dict[str, Any]) -> None:
        self._write(("\n" if self._first else ",\n") + json.dumps(item))
        self._first = False

    def end_list(self, rest: dict[str, Any]) -> None:
        self._write("\n], " + json.dumps(rest)[1:] + "\n")

    def _write(self, text: str) -> None:
        if self.as_json:
            sys.stdout.write(text)
            sys.stdout.flush()

    def show(self, *renderables: Any) -> None:
        """Print for people; does nothing with `--json`."""
        if not self.as_json:
            self.out.print(*renderables, soft_wrap=isinstance(renderables[0], str | Text))

    def remark(self, text: str) -> None:
        self.err.print(text, style="dim", highlight=False)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A progress display on stderr; silent when stderr is not a terminal."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.err, disable=not self.err.is_terminal) as progress:
            yield progress
