"""What commands print with: people's output, or one JSON object and nothing else on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Ui:
    """Progress and remarks go to stderr, results to stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.out = Console()
        self.err = Console(stderr=True)

    def emit(self, result: dict[str, Any]) -> None:
        """Print the JSON object of this command; does nothing without `--json`."""
        if self.as_json:
            sys.stdout.write(json.dumps(result, sort_keys=False) + "\n")
            sys.stdout.flush()

    def show(self, *renderables: Any) -> None:
        """Print for people; does nothing with `--json`."""
        if not self.as_json:
            self.out.print(*renderables, soft_wrap=isinstance(renderables[0], str))

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
