"""The permit: proof that a commit, which revalidated the generation, let these segments in.

Only `mint` makes one, and only from a result of the store. A permit names the live, the generation
and the release; it is good once for each segment of that release. `spend` uses it up.

PURE.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ownership.model import Released
from schemas.store_values import Generation

_SEAL = object()


class PermitMisused(RuntimeError):
    """A broken invariant: a permit that nobody minted, or one that was used before."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Made by `mint` only. `unspent` holds the segments that it still lets in."""

    live_id: str
    generation: Generation
    release_id: str
    next_offset: int
    unspent: set[int] = field(compare=False)
    seal: object = field(repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise PermitMisused(f"a permit for {self.live_id} that no commit stands behind")


def mint(released: Released, segment_ids: Sequence[int]) -> Permit:
    """The permit of a committed release, for the segments that were requested with it."""
    item = released.item
    return Permit(
        live_id=item.live_id,
        generation=item.generation,
        release_id=item.release_id,
        next_offset=item.new_next_offset,
        unspent=set(segment_ids),
        seal=_SEAL,
    )


def spend(permit: Permit, live_id: str, generation: Generation, segment_id: int) -> None:
    """Use the permit up for one segment. Raises PermitMisused for any but its own, or again."""
    if permit.live_id != live_id or permit.generation != generation:
        raise PermitMisused(f"a permit of {permit.live_id} {permit.generation} used for {live_id}")
    if segment_id not in permit.unspent:
        raise PermitMisused(f"segment {segment_id} of {live_id}: not in permit {permit.release_id}")
    permit.unspent.remove(segment_id)
