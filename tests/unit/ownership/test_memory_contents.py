"""The ordered keys of the memory store are those of a sorted list, over any number of runs."""

import random

import pytest

import ownership.memory_contents
from ownership.memory_contents import Contents


@pytest.mark.parametrize("seed", range(5))
def test_keys_stay_in_order_over_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership.memory_contents, "RUN_KEYS_MAX", 4)
    rng = random.Random(seed)
    contents, expected = Contents(), set[bytes]()
    for step in range(3_000):
        growing = step % 1_000 < 600
        key = rng.randbytes(rng.randint(1, 2))
        if growing and key not in expected:
            contents.add(key)
            expected.add(key)
        elif not growing and expected:
            key = rng.choice(sorted(expected))
            contents.remove(key)
            expected.remove(key)
        begin, end = rng.randbytes(rng.randint(0, 2)), rng.randbytes(rng.randint(0, 2))
        found = contents.between(begin, end)
        assert found == sorted(one for one in expected if begin <= one < end)
    assert contents.between(b"", b"\xff" * 3) == sorted(expected)


def test_what_is_found_is_a_list_of_its_own() -> None:
    contents = Contents()
    contents.add(b"a")
    contents.between(b"", b"b").clear()
    assert contents.between(b"", b"b") == [b"a"]
