"""What a worker counts. Plain numbers; `metrics` shows them to Prometheus."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Since this process began. `release_batches` is how many transactions carried `releases`."""

    releases: int = 0
    release_batches: int = 0
    released_records_scanned: int = 0
    segments_fed: int = 0
    feeds_refused: int = 0
    refused_stale: int = 0
    falsely_refused: int = 0
    cursor_moved: int = 0
    store_retries: int = 0
    claims: int = 0
    claims_refused: int = 0
    lives_auto_created: int = 0
    moves_out: int = 0
    moves_refused: int = 0
    interrupts: int = 0
    records_read: int = 0
    records_routed: int = 0
    records_foreign: int = 0
    records_reread: int = 0
    records_reread_used: int = 0
    events_dropped: int = 0
    events_sent: int = 0
    letters_cut: int = 0
    letters_lost: int = 0
    incarnations: int = 0
    stages_lost: int = 0
    retries: Counter[str] = field(default_factory=Counter[str])
    """By what was tried again: a store call by its name, a send to Kafka."""
    dead_letters: Counter[str] = field(default_factory=Counter[str])
    instructions: Counter[str] = field(default_factory=Counter[str])

    @property
    def reader_amplification(self) -> float:
        """Records fetched from the log per record that a live of this worker could use."""
        used = self.records_routed + self.records_reread_used
        fetched = self.records_read + self.records_foreign + self.records_reread
        return fetched / used if used else 0.0
