"""The collector still finds cycles, only later."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from hosting.collector import YOUNG_MAX, calm_collector


@pytest.fixture
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("as_before")
def test_a_cycle_is_found_by_itself_within_the_bound() -> None:
    calm_collector()
    assert gc.isenabled()
    lost = weakref.ref(Ring())
    assert lost() is not None
    kept = [[] for _ in range(2 * YOUNG_MAX)]
    assert lost() is None
    assert len(kept) == 2 * YOUNG_MAX


@pytest.mark.usefixtures("as_before")
def test_what_exists_is_not_walked_again() -> None:
    calm_collector()
    assert gc.get_freeze_count() > 0
