"""Puts observers and shortcuts in place, once per interpreter."""

from functools import cache

from tests.sim import shortcuts, spies
from tests.sim.thaw import thaw


@cache
def install() -> None:
    """Call it after everything that is to be simulated was imported."""
    shortcuts.install()
    spies.install()
    thaw()
