"""The states of one live on one worker, and which event may come in which of them.

The table is data. A pair that is not in it is a broken invariant: the machine answers it with an
error that carries the live's story. Where `IGNORED` stands, the event is known to come late (an
answer to a question that was asked before authority ended) and changes nothing.

    OWNED ──► CLAIMING ──► CATCHING_UP ──► IDLE ◄──► SPEAKING
                                             │ │        │ │
                             hand over ──────┘ └─ ... ──┘ └────── close
                                 ▼                                  ▼
                             DRAINING                            CLOSING
                                 └──────────► REVOKED ◄─────────────┘    (from anywhere, at once)
                                                 ▼
                                               GONE

PURE.
"""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a live stands on this worker."""

    OWNED = "owned"
    """The store names this worker; nothing was claimed yet, nothing may be released."""
    CLAIMING = "claiming"
    """The claim is on its way to the store."""
    CATCHING_UP = "catching_up"
    """Claimed; what was released and not spoken is being read again."""
    IDLE = "idle"
    """Everything released was spoken."""
    SPEAKING = "speaking"
    """At least one released segment is not spoken to its end."""
    DRAINING = "draining"
    """Nothing more is released; the exact checkpoint goes to another worker or stays behind."""
    CLOSING = "closing"
    """The live is being closed in the store; nothing more is released."""
    REVOKED = "revoked"
    """No authority any more: unbound, and the slot is being confirmed as gone."""
    GONE = "gone"
    """Nothing of the live is left here."""

    # An enum's own runs as Python, and the table is looked into at every event.
    __hash__ = str.__hash__


class EventName(StrEnum):
    """The events by name, so that the table does not depend on their shape."""

    STARTED = "started"
    CLAIM_DONE = "claim_done"
    CLAIM_REFUSED = "claim_refused"
    RECORDS_READ = "records_read"
    INTERRUPT_SEEN = "interrupt_seen"
    LETTER_SENT = "letter_sent"
    RELEASE_TURN = "release_turn"
    RELEASE_DONE = "release_done"
    RELEASE_STALE = "release_stale"
    CURSOR_FOUND = "cursor_found"
    FEED_REFUSED = "feed_refused"
    BOUND = "bound"
    BIND_REFUSED = "bind_refused"
    TICK_SENT = "tick_sent"
    SEGMENT_BROKEN = "segment_broken"
    STAGES_LOST = "stages_lost"
    TIME_REACHED = "time_reached"
    OWNERSHIP_LOST = "ownership_lost"
    HAND_OVER_ASKED = "hand_over_asked"
    HAND_OVER_DONE = "hand_over_done"
    HAND_OVER_REFUSED = "hand_over_refused"
    STOP_ASKED = "stop_asked"
    CLOSE_DONE = "close_done"
    GONE_CONFIRMED = "gone_confirmed"

    __hash__ = str.__hash__


IGNORED: frozenset[State] = frozenset()
"""The event may come in this state, late, and nothing follows from it."""

_S = State
_E = EventName

LIVE = frozenset({_S.IDLE, _S.SPEAKING})
"""A live that is spoken here: what is left to speak decides which of them."""

_RUNNING: Mapping[EventName, frozenset[State]] = {
    _E.RECORDS_READ: LIVE,
    _E.INTERRUPT_SEEN: LIVE,
    _E.LETTER_SENT: LIVE,
    _E.RELEASE_TURN: LIVE,
    _E.RELEASE_DONE: LIVE | {_S.CLOSING},
    _E.RELEASE_STALE: frozenset({_S.REVOKED}),
    _E.CURSOR_FOUND: frozenset({_S.CLAIMING}),
    _E.FEED_REFUSED: LIVE,
    _E.BOUND: LIVE,
    _E.BIND_REFUSED: LIVE,
    _E.TICK_SENT: LIVE,
    _E.SEGMENT_BROKEN: LIVE,
    _E.STAGES_LOST: LIVE,
    _E.TIME_REACHED: LIVE,
    _E.OWNERSHIP_LOST: frozenset({_S.REVOKED}),
    _E.HAND_OVER_ASKED: frozenset({_S.DRAINING}),
    _E.STOP_ASKED: frozenset({_S.DRAINING, _S.REVOKED}),
}

_LATE: Mapping[EventName, frozenset[State]] = {
    event: IGNORED for event in EventName if event not in (_E.STARTED, _E.GONE_CONFIRMED)
}

TABLE: Mapping[State, Mapping[EventName, frozenset[State]]] = {
    _S.OWNED: {
        _E.STARTED: frozenset({_S.CLAIMING}),
        _E.OWNERSHIP_LOST: frozenset({_S.REVOKED}),
        _E.STOP_ASKED: frozenset({_S.REVOKED}),
        _E.STAGES_LOST: IGNORED,
        _E.TIME_REACHED: IGNORED,
    },
    _S.CLAIMING: {
        _E.CLAIM_DONE: frozenset({_S.CATCHING_UP, _S.IDLE, _S.SPEAKING}),
        _E.CLAIM_REFUSED: frozenset({_S.REVOKED}),
        _E.OWNERSHIP_LOST: frozenset({_S.REVOKED}),
        _E.STOP_ASKED: frozenset({_S.REVOKED}),
        _E.HAND_OVER_ASKED: IGNORED,
        _E.TIME_REACHED: IGNORED,
        # Left over from before a claim that had to be repeated.
        _E.RECORDS_READ: IGNORED,
        _E.INTERRUPT_SEEN: IGNORED,
        _E.LETTER_SENT: IGNORED,
        _E.RELEASE_TURN: IGNORED,
        _E.TICK_SENT: IGNORED,
        _E.SEGMENT_BROKEN: IGNORED,
        _E.STAGES_LOST: IGNORED,
    },
    _S.CATCHING_UP: {
        _E.RECORDS_READ: LIVE | {_S.CATCHING_UP, _S.CLOSING},
        _E.INTERRUPT_SEEN: frozenset({_S.CATCHING_UP}),
        _E.BOUND: frozenset({_S.CATCHING_UP}),
        _E.BIND_REFUSED: frozenset({_S.CATCHING_UP}),
        _E.STAGES_LOST: frozenset({_S.CATCHING_UP}),
        _E.TIME_REACHED: frozenset({_S.CATCHING_UP}),
        _E.RELEASE_TURN: IGNORED,
        _E.TICK_SENT: IGNORED,
        _E.SEGMENT_BROKEN: IGNORED,
        _E.HAND_OVER_ASKED: IGNORED,
        _E.OWNERSHIP_LOST: frozenset({_S.REVOKED}),
        _E.STOP_ASKED: frozenset({_S.REVOKED}),
    },
    _S.IDLE: _RUNNING,
    _S.SPEAKING: _RUNNING,
    _S.DRAINING: {
        _E.RECORDS_READ: frozenset({_S.DRAINING}),
        _E.INTERRUPT_SEEN: frozenset({_S.DRAINING}),
        _E.LETTER_SENT: frozenset({_S.DRAINING}),
        _E.RELEASE_TURN: frozenset({_S.DRAINING}),
        _E.RELEASE_DONE: frozenset({_S.DRAINING, _S.CLOSING, _S.REVOKED}),
        _E.RELEASE_STALE: frozenset({_S.REVOKED}),
        _E.CURSOR_FOUND: frozenset({_S.CLAIMING}),
        _E.FEED_REFUSED: frozenset({_S.DRAINING}),
        _E.BOUND: frozenset({_S.DRAINING}),
        _E.BIND_REFUSED: frozenset({_S.DRAINING}),
        _E.TICK_SENT: frozenset({_S.DRAINING}),
        _E.SEGMENT_BROKEN: frozenset({_S.DRAINING}),
        _E.STAGES_LOST: frozenset({_S.DRAINING}),
        _E.TIME_REACHED: frozenset({_S.DRAINING}),
        _E.OWNERSHIP_LOST: frozenset({_S.REVOKED}),
        _E.HAND_OVER_ASKED: IGNORED,
        _E.HAND_OVER_DONE: frozenset({_S.REVOKED}),
        _E.HAND_OVER_REFUSED: LIVE | {_S.DRAINING, _S.REVOKED},
        _E.STOP_ASKED: frozenset({_S.DRAINING, _S.REVOKED}),
    },
    _S.CLOSING: {
        _E.RECORDS_READ: IGNORED,
        _E.INTERRUPT_SEEN: IGNORED,
        _E.LETTER_SENT: IGNORED,
        _E.RELEASE_TURN: IGNORED,
        _E.FEED_REFUSED: IGNORED,
        _E.BOUND: IGNORED,
        _E.BIND_REFUSED: IGNORED,
        _E.TICK_SENT: IGNORED,
        _E.SEGMENT_BROKEN: IGNORED,
        _E.STAGES_LOST: IGNORED,
        _E.TIME_REACHED: IGNORED,
        _E.OWNERSHIP_LOST: frozenset({_S.REVOKED}),
        _E.HAND_OVER_ASKED: IGNORED,
        _E.STOP_ASKED: IGNORED,
        _E.CLOSE_DONE: frozenset({_S.REVOKED}),
    },
    # The answer to a commit of our own may come behind the signal that it caused; what we did is
    # still ours to tell.
    _S.REVOKED: {
        **_LATE,
        _E.HAND_OVER_DONE: frozenset({_S.REVOKED}),
        _E.CLOSE_DONE: frozenset({_S.REVOKED}),
        _E.GONE_CONFIRMED: frozenset({_S.GONE}),
    },
    _S.GONE: {
        **_LATE,
        _E.HAND_OVER_DONE: frozenset({_S.GONE}),
        _E.CLOSE_DONE: frozenset({_S.GONE}),
        _E.GONE_CONFIRMED: IGNORED,
    },
}
