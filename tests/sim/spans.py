"""Parts of a text or of a log, as [begin, end).

PURE.
"""

Span = tuple[int, int]


def gap(spans: list[Span], upto: int) -> Span | None:
    """The first part of [0, upto) that no span covers."""
    reached = 0
    for begin, end in sorted(spans):
        if begin > reached:
            break
        reached = max(reached, end)
    if reached >= upto:
        return None
    return reached, min((begin for begin, _ in spans if begin > reached), default=upto)
