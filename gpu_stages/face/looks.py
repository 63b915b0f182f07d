"""The looks that a live can be given by name (`LiveOptions.look`).

PURE.
"""

from typing import Final

LOOK_NAMES: Final = ("clay", "studio", "aurora")
"""The first one is the default."""


class BadLook(ValueError):
    """A look that is not there. The message lists those that are."""

    def __init__(self, look: str) -> None:
        super().__init__(f"no look {look}: there are {', '.join(LOOK_NAMES)}")


def look_index(name: str) -> int:
    """The index that `HeadRenderer.render` takes. Raises `BadLook`."""
    try:
        return LOOK_NAMES.index(name)
    except ValueError:
        raise BadLook(repr(name)) from None
