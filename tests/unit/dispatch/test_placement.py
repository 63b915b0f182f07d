"""Placement proposes only who can take a live, and spreads them."""

import random
from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from dispatch.placement import BEST_MIN, Candidate, mint_live_id, rank
from schemas.partition import partition_of

candidates = st.lists(
    st.builds(
        Candidate,
        worker_id=st.text("abcdef", min_size=1, max_size=4),
        is_ready=st.booleans(),
        capacity=st.integers(0, 50),
        free_slots=st.integers(-3, 50),
        partitions=st.frozensets(st.integers(0, 11), max_size=6),
    ),
    max_size=30,
    unique_by=lambda one: one.worker_id,
)


@given(candidates, st.none() | st.integers(0, 11), st.integers(0, 40), st.integers())
def test_proposes_only_who_can_take_it(
    fleet: list[Candidate], partition: int | None, tries_max: int, seed: int
) -> None:
    draw = random.Random(seed).randrange
    avoid = frozenset(one.worker_id for one in fleet[::3])
    ranked = rank(fleet, partition=partition, draw=draw, tries_max=tries_max, avoid=avoid)
    assert all(one.is_ready and one.free_slots > 0 and one.capacity > 0 for one in ranked)
    assert not {one.worker_id for one in ranked} & avoid
    assert len({one.worker_id for one in ranked}) == len(ranked) <= tries_max


@given(candidates, st.integers())
def test_leaves_out_nobody_who_can(fleet: list[Candidate], seed: int) -> None:
    """The last slot is found: with tries enough, all who can are proposed."""
    able = {one.worker_id for one in fleet if one.can_take}
    ranked = rank(fleet, partition=None, draw=random.Random(seed).randrange, tries_max=1_000)
    assert {one.worker_id for one in ranked} == able


def test_a_burst_spreads_evenly() -> None:
    rng = random.Random(3)
    taken: Counter[str] = Counter()
    for _ in range(1_000):
        fleet = [Candidate(f"w{n}", True, 100, 100 - taken[f"w{n}"]) for n in range(20)]
        best = rank(fleet, partition=None, draw=rng.randrange, tries_max=8)[0]
        taken[best.worker_id] += 1
    assert len(taken) == 20
    assert max(taken.values()) - min(taken.values()) <= 8


def test_replicas_with_one_view_do_not_all_choose_the_same() -> None:
    fleet = [Candidate(f"w{n}", True, 100, 100) for n in range(20)]
    first = Counter(
        rank(fleet, partition=None, draw=random.Random(seed).randrange, tries_max=8)[0].worker_id
        for seed in range(400)
    )
    assert len(first) >= BEST_MIN
    assert max(first.values()) < 120


def test_in_a_small_fleet_too() -> None:
    fleet = [Candidate(f"w{n}", True, 100, 100) for n in range(4)]
    first = Counter(
        rank(fleet, partition=None, draw=random.Random(seed).randrange, tries_max=8)[0].worker_id
        for seed in range(400)
    )
    assert len(first) == 3  # the worst of four never wins a draw of two
    assert max(first.values()) < 280


def test_a_custodian_goes_first_among_equals() -> None:
    fleet = [Candidate(f"w{n}", True, 10, 5, frozenset({n})) for n in range(2)]
    for seed in range(50):
        ranked = rank(fleet, partition=1, draw=random.Random(seed).randrange, tries_max=2)
        assert [one.worker_id for one in ranked] == ["w1", "w0"]


def test_an_empty_worker_goes_before_a_nearly_full_custodian() -> None:
    fleet = [
        Candidate("full", True, 10, 1, frozenset({4})),
        Candidate("free", True, 10, 10),
    ]
    ranked = rank(fleet, partition=4, draw=random.Random(1).randrange, tries_max=2)
    assert ranked[0].worker_id == "free"


@given(st.integers(1, 64), st.data())
def test_minted_ids_fall_into_the_custody_of_their_worker(count: int, data: st.DataObject) -> None:
    partitions = data.draw(st.frozensets(st.integers(0, count - 1), min_size=1))
    rng = random.Random(data.draw(st.integers()))
    hits = 0
    for _ in range(5):
        live_id = mint_live_id(
            wall_ms=1_800_000_000_000,
            entropy=rng.randbytes,
            partitions=partitions,
            partition_count=count,
        )
        assert len(live_id) == 26
        hits += partition_of(live_id.encode(), count) in partitions
    assert hits >= 4


def test_without_custody_any_id_does() -> None:
    rng = random.Random(1)
    made = {
        mint_live_id(wall_ms=1, entropy=rng.randbytes, partitions=frozenset(), partition_count=12)
        for _ in range(100)
    }
    assert len(made) == 100
