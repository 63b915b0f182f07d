"""What each viseme does to the mouth, and how much it insists.

`TARGETS` float32 [visemes, 9]: the shape, in the order of the first nine face parameters.
`INSISTENCE` float32 [visemes, 9]: how strongly a viseme pulls each parameter against its
neighbours, 0..1. A `k` does not care about the lips, so they already round for the `u` behind it;
an `f` insists on its lip. The contacts (lips pressed, lip tucked, tongue out) are no averages:
they are held for the length of the sound, see `coarticulation`.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.parameters import Face
from gpu_stages.face.phonemes import Viseme

MOUTH_PARAMETERS: Final = Face.TONGUE_OUT + 1
CONTACTS: Final[dict[Viseme, Face]] = {
    Viseme.PP: Face.LIPS_CLOSED,
    Viseme.FF: Face.LIP_LOWER_TUCK,
    Viseme.TH: Face.TONGUE_OUT,
}
"""Visemes that are made by a contact, and the parameter that shows it."""

# jaw, closed, round, wide, upper, lower, tuck, tongue up, tongue out
_TARGETS: Final[dict[Viseme, tuple[float, ...]]] = {
    Viseme.REST: (0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    Viseme.PP: (0.06, 0.0, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    Viseme.FF: (0.12, 0.0, 0.0, 0.10, 0.35, 0.0, 0.0, 0.0, 0.0),
    Viseme.TH: (0.20, 0.0, 0.0, 0.10, 0.15, 0.15, 0.0, 0.3, 0.0),
    Viseme.DD: (0.18, 0.0, 0.0, 0.20, 0.15, 0.15, 0.0, 0.85, 0.0),
    Viseme.LL: (0.26, 0.0, 0.0, 0.12, 0.12, 0.15, 0.0, 1.0, 0.0),
    Viseme.SS: (0.08, 0.0, 0.0, 0.35, 0.25, 0.30, 0.0, 0.5, 0.0),
    Viseme.CH: (0.14, 0.0, 0.55, 0.0, 0.30, 0.35, 0.0, 0.3, 0.0),
    Viseme.KK: (0.22, 0.0, 0.0, 0.08, 0.08, 0.10, 0.0, 0.1, 0.0),
    Viseme.RR: (0.20, 0.0, 0.45, 0.0, 0.10, 0.12, 0.0, 0.4, 0.0),
    Viseme.WW: (0.12, 0.0, 0.95, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    Viseme.YY: (0.15, 0.0, 0.0, 0.50, 0.15, 0.15, 0.0, 0.2, 0.0),
    Viseme.HH: (0.25, 0.0, 0.0, 0.05, 0.05, 0.05, 0.0, 0.0, 0.0),
    Viseme.AA: (0.85, 0.0, 0.0, 0.05, 0.20, 0.35, 0.0, 0.0, 0.0),
    Viseme.AE: (0.70, 0.0, 0.0, 0.45, 0.28, 0.35, 0.0, 0.0, 0.0),
    Viseme.AH: (0.50, 0.0, 0.0, 0.10, 0.15, 0.22, 0.0, 0.0, 0.0),
    Viseme.EH: (0.50, 0.0, 0.0, 0.38, 0.22, 0.25, 0.0, 0.0, 0.0),
    Viseme.ER: (0.36, 0.0, 0.35, 0.0, 0.15, 0.15, 0.0, 0.3, 0.0),
    Viseme.IH: (0.34, 0.0, 0.0, 0.40, 0.18, 0.20, 0.0, 0.0, 0.0),
    Viseme.IY: (0.24, 0.0, 0.0, 0.75, 0.22, 0.22, 0.0, 0.1, 0.0),
    Viseme.OH: (0.60, 0.0, 0.60, 0.0, 0.10, 0.20, 0.0, 0.0, 0.0),
    Viseme.UH: (0.32, 0.0, 0.50, 0.0, 0.08, 0.10, 0.0, 0.0, 0.0),
    Viseme.UW: (0.22, 0.0, 0.90, 0.0, 0.0, 0.05, 0.0, 0.0, 0.0),
}
# jaw, lips (round and wide), raise and drop, tongue up
_INSISTENCE: Final[dict[Viseme, tuple[float, float, float, float]]] = {
    Viseme.REST: (0.35, 0.25, 0.35, 0.5),
    Viseme.PP: (0.65, 0.12, 0.55, 0.1),
    Viseme.FF: (0.70, 0.25, 0.80, 0.1),
    Viseme.TH: (0.55, 0.20, 0.35, 0.6),
    Viseme.DD: (0.45, 0.15, 0.30, 0.9),
    Viseme.LL: (0.40, 0.12, 0.25, 1.0),
    Viseme.SS: (0.85, 0.40, 0.55, 0.6),
    Viseme.CH: (0.75, 0.80, 0.65, 0.5),
    Viseme.KK: (0.30, 0.08, 0.15, 0.5),
    Viseme.RR: (0.45, 0.55, 0.30, 0.6),
    Viseme.WW: (0.60, 1.00, 0.70, 0.3),
    Viseme.YY: (0.45, 0.50, 0.30, 0.4),
    Viseme.HH: (0.08, 0.04, 0.05, 0.1),
    Viseme.AA: (1.00, 0.45, 0.60, 0.5),
    Viseme.AE: (0.95, 0.65, 0.60, 0.5),
    Viseme.AH: (0.60, 0.30, 0.40, 0.4),
    Viseme.EH: (0.80, 0.60, 0.55, 0.5),
    Viseme.ER: (0.65, 0.60, 0.45, 0.5),
    Viseme.IH: (0.60, 0.50, 0.45, 0.4),
    Viseme.IY: (0.75, 0.85, 0.60, 0.5),
    Viseme.OH: (0.95, 0.90, 0.60, 0.5),
    Viseme.UH: (0.60, 0.70, 0.45, 0.4),
    Viseme.UW: (0.75, 1.00, 0.70, 0.5),
}


def _targets() -> NDArray[np.float32]:
    return np.array([_TARGETS[viseme] for viseme in Viseme], np.float32)


def _insistence() -> NDArray[np.float32]:
    rows = [_INSISTENCE[viseme] for viseme in Viseme]
    spread = [
        (jaw, 0.0, lips, lips, show, show, 0.0, tongue, 0.0) for jaw, lips, show, tongue in rows
    ]
    return np.array(spread, np.float32)


TARGETS: Final = _targets()
INSISTENCE: Final = _insistence()
