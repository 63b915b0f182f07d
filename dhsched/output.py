"""What commands print: tables and messages for people, one JSON document for machines."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rich.console import Console, RenderableType
from rich.table import Table


class CommandFailed(Exception):
    """A command could not do what it was asked to; `str()` says what to do about it."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results to standard output and everything else to standard error.

    With `as_json` a command prints exactly one JSON document (or one per line for streams).
    """

    as_json: bool
    console: Console
    errors: Console

    @classmethod
    def make(cls, as_json: bool) -> "Output":
        """The output of this process."""
        return cls(as_json=as_json, console=Console(), errors=Console(stderr=True))

    def quiet(self) -> "Output":
        """The same without a word: for a step whose outcome is told otherwise."""
        return Output(
            as_json=False,
            console=Console(quiet=True),
            errors=Console(stderr=True, quiet=True),
        )

    def result(self, document: Mapping[str, object], line: str) -> None:
        """Print one result: the document for machines, the line for people."""
        if self.as_json:
            print(json.dumps(document), flush=True)
        else:
            self.console.print(line, highlight=False)

    def table(
        self, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, object]], empty: str
    ) -> None:
        """Print rows; for machines as `{name: [row, ...]}` with every field they have."""
        if self.as_json:
            print(json.dumps({name: list(rows)}), flush=True)
            return
        if not rows:
            self.console.print(empty, highlight=False)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.replace("_", " "))
        for row in rows:
            table.add_row(*(_cell(row.get(column)) for column in columns))
        self.console.print(table)

    def note(self, line: RenderableType) -> None:
        """Tell a person how it goes; machines are not told."""
        if not self.as_json:
            self.errors.print(line, highlight=False)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.1f}"
        case _:
            return str(value)


def fail(error: CommandFailed, as_json: bool) -> NoReturn:
    """Print the error where the reader looks for it and leave with its status."""
    if as_json:
        print(json.dumps({"error": str(error), "exit_status": error.exit_status}), flush=True)
    else:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False)
    sys.exit(error.exit_status)
