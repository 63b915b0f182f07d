"""Every schedule of the small world with up to two preemptions; three in `make simulate`."""

from tests.sim.ablations import WEAK
from tests.sim.explorations import explore_all


def test_no_schedule_breaks_ours_and_many_break_the_weak_ones() -> None:
    found = explore_all(jobs=2, preemptions_max=2)
    assert found["violations"] == 0, found["first_violation"]
    assert found["schedules"] > 1_500
    assert set(found["weak"]) == {one.name for one in WEAK}
    for name, one in found["weak"].items():
        assert one["violations"] > 0, name
