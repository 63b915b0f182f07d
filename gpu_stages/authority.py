"""Who may still be heard: a stage's messages checked against the live table.

Every stage asks here right before it looks at a message. A message of another binding than the
row's, or of a lower epoch, is refused and counted; a stage is told to forget a live as soon as its
binding is seen to have ended, and before anything of the next one is shown to it.
"""

from collections import Counter
from collections.abc import Callable

from gpu_stages.header import Header
from gpu_stages.live_table import LiveRow, LiveTableReader


class Authority:
    """One stage's view of the table. `counts` gets `refused_binding` and `refused_epoch`."""

    def __init__(
        self, table: LiveTableReader, forget: Callable[[int], None], counts: Counter[str]
    ) -> None:
        self._table = table
        self._forget = forget
        self._counts = counts
        self._seen = 0
        self._known = [0] * table.rows
        counts.update(refused_binding=0, refused_epoch=0)

    def follow_bindings(self) -> None:
        """Forget lives whose binding ended, also when no message of theirs comes any more."""
        bindings = self._table.bindings()
        if bindings == self._seen:
            return
        self._seen = bindings
        for live_slot in range(len(self._known)):
            self._row(live_slot)

    def _row(self, live_slot: int) -> LiveRow:
        """The row as it is now; the stage has forgotten what was under an earlier binding."""
        row = self._table.row(live_slot)
        known = self._known[live_slot]
        if row.binding != known:
            self._known[live_slot] = row.binding
            if known:
                self._forget(live_slot)
        return row

    def row_for(self, header: Header) -> LiveRow | None:
        """The row that allows this message, or None, counted, when it has no authority."""
        if header.live_slot >= len(self._known):
            self._counts["refused_binding"] += 1
            return None
        row = self._row(header.live_slot)
        if header.binding != row.binding:
            self._counts["refused_binding"] += 1
            return None
        if header.epoch < row.epoch:
            self._counts["refused_epoch"] += 1
            return None
        return row

    def bound_rows(self) -> list[LiveRow]:
        """All rows that are bound now."""
        return [row for row in map(self._row, range(len(self._known))) if row.binding]

    def bindings(self) -> dict[str, int]:
        """The bindings by live slot, for people."""
        return {str(slot): binding for slot, binding in enumerate(self._known) if binding}
