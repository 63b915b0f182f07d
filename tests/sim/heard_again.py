"""What is heard twice: after a crash at most one checkpoint interval, over a planned move nothing.

Of each generation it is known what left the egress, and what the last durable checkpoint says was
heard. The rest is at risk: the next owner says it again. When the owner crashed, sound at risk may
not be older than one interval, counted from when the durable checkpoint was asked for. What the
owner could not help does not count: time in which it stood still, or in which its release was under
way. When the owner handed the live over, nothing may be at risk, and nothing is heard of it later.
And no owner says again what the checkpoint that it began from says was heard.

Nothing is claimed of an owner that was superseded alive: it is heard until it hears of it.

PURE.
"""

from dataclasses import dataclass, field

from tests.sim import history as h
from tests.sim.spans import Span


class Facts:
    """What is known of processes and requests, at this place of the history."""

    def __init__(self) -> None:
        self.promised: h.Promised | None = None
        self.process_of: dict[str, str] = {}
        self.gone: set[str] = set()
        self.asked_ms: dict[str, int] = {}
        """By release id: when it was first asked for."""
        self.under_way: dict[str, dict[str, int]] = {}
        """By process: releases that were asked for and neither applied nor refused, and when."""
        self.asker: dict[str, str] = {}
        """By commit id of a move."""
        self.held_up: dict[str, list[Span]] = {}
        """By process: times in which it stood still, or in which a release of it took long."""
        self._paused_ms: dict[str, int] = {}

    def note(self, entry: h.Entry) -> None:
        """One entry that is about no live's content."""
        match entry:
            case h.ReleaseAsked():
                self.asked_ms.setdefault(entry.release_id, entry.at_ms)
                self.under_way.setdefault(entry.process, {}).setdefault(
                    entry.release_id, entry.at_ms
                )
            case h.ReleaseRefused():
                self.under_way.get(entry.process, {}).pop(entry.release_id, None)
            case h.MoveAsked():
                self.asker.setdefault(entry.commit_id, entry.process)
            case h.WorkerWritten():
                self.process_of.setdefault(entry.worker_id, entry.process)
            case h.Gone():
                self.gone.add(entry.process)
            case h.ReleaseSlow():
                span = (entry.since_ms, entry.at_ms)
                self.held_up.setdefault(entry.process, []).append(span)
            case h.Fault(kind="pause"):
                self._paused_ms.setdefault(entry.process, entry.at_ms)
            case h.Fault(kind="resume"):
                since_ms = self._paused_ms.pop(entry.process, entry.at_ms)
                self.held_up.setdefault(entry.process, []).append((since_ms, entry.at_ms))
            case h.Promised():
                self.promised = entry
            case _:
                pass

    def applied(self, process: str, release_id: str) -> None:
        """The store has it."""
        self.under_way.get(process, {}).pop(release_id, None)

    def held_up_ms(self, process: str, begin_ms: int, end_ms: int) -> int:
        """For how long of this time the process could not help being late."""
        spans = list(self.held_up.get(process, ()))
        spans += [(at_ms, end_ms) for at_ms in self.under_way.get(process, {}).values()]
        total, reached = 0, begin_ms
        for begin, end in sorted(spans):
            begin, end = max(begin, reached), min(end, end_ms)
            if end > begin:
                total += end - begin
                reached = end
        return total


@dataclass(slots=True)
class Checkpoint:
    """The last durable one: what was released and not spoken, and how much of the first was."""

    spans: tuple[Span, ...] = ()
    samples: int = 0
    asked_ms: int = 0

    def says_heard(self, span: Span, end: int) -> bool:
        """Whether samples up to `end` of this segment will not be said again."""
        if span not in self.spans:
            return True
        return span == self.spans[0] and end <= self.samples


@dataclass(slots=True)
class Counts:
    """Over all lives of a history. `again_ms_max`: the oldest sound at risk when an owner crashed,
    what held it up left out."""

    crashed_mid_sentence: int = 0
    handed_over_mid_segment: int = 0
    again_ms_max: int = 0


@dataclass(slots=True)
class Hearing:
    """One live's sound. Methods return what is wrong, in words, or ""."""

    facts: Facts
    counts: Counts
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    process: str = ""
    epoch: int = 0
    handed_over: set[int] = field(default_factory=set[int])
    """The epochs that ended by their owners' own hands."""
    _at_risk: list[tuple[int, Span, int]] = field(default_factory=list[tuple[int, Span, int]])
    """(when, which segment, up to which sample)."""
    _began: Checkpoint = field(default_factory=Checkpoint)
    _ended: h.GenerationWritten | None = None
    """This generation is committed; the checkpoint of the same commit may still be to come."""

    def generation(self, entry: h.GenerationWritten) -> None:
        """Somebody owns the live from now on."""
        self._ended = entry

    def saved(self, version: int, spans: tuple[Span, ...], samples: int, asked_ms: int) -> str:
        """A checkpoint is durable. One of a later commit than the owner's is the owner's own."""
        ended = self._ended
        wrong = self.settle() if ended is not None and ended.version != version else ""
        self.checkpoint = Checkpoint(spans, samples, asked_ms)
        says_heard = self.checkpoint.says_heard
        self._at_risk = [one for one in self._at_risk if not says_heard(one[1], one[2])]
        return wrong

    def closed(self) -> None:
        """Nobody goes on."""
        self._at_risk.clear()
        self.checkpoint = Checkpoint()

    def settle(self) -> str:
        """Judge a generation that ended, now that its commit was seen whole."""
        after, self._ended = self._ended, None
        if after is None:
            return ""
        facts, before = self.facts, self.process
        wrong = ""
        if before and facts.asker.get(after.commit_id) == before:
            self.handed_over.add(self.epoch)
            self.counts.handed_over_mid_segment += self.checkpoint.samples > 0
            if self._at_risk:
                wrong = f"{before} handed it over, and not all that was heard is in the checkpoint"
        elif before in facts.gone and self._at_risk:
            self.counts.crashed_mid_sentence += 1
            wrong = self._crashed(before)
        self.process = facts.process_of.get(after.worker_id, "")
        self.epoch = after.epoch
        self._began = self.checkpoint
        self._at_risk.clear()
        return wrong

    def _crashed(self, process: str) -> str:
        promised, asked_ms = self.facts.promised, self.checkpoint.asked_ms
        if promised is None:
            return ""
        latest_ms = max(at_ms for at_ms, _, _ in self._at_risk)
        held_up_ms = self.facts.held_up_ms(process, asked_ms, latest_ms)
        again_ms = latest_ms - asked_ms - held_up_ms
        self.counts.again_ms_max = max(self.counts.again_ms_max, again_ms)
        if again_ms <= promised.checkpoint_ms + promised.slack_ms:
            return ""
        return f"{again_ms} ms of sound are heard again after {process} crashed"

    def heard(self, entry: h.Heard, span: Span) -> str:
        """Samples left an egress."""
        if entry.epoch in self.handed_over:
            return f"{entry.process} is heard after it handed the live over"
        if entry.epoch != self.epoch:
            return ""
        began = self._began
        if began.spans and span == began.spans[0] and entry.begin < began.samples:
            return f"{entry.process} says again what the checkpoint says was heard"
        if not self.checkpoint.says_heard(span, entry.end):
            self._at_risk.append((entry.at_ms, span, entry.end))
        return ""
