"""`python -m tests.support.stub_role worker|dispatch ...`: the command `dhsched`, with stub stages.

Only the neural work is replaced, so a worker starts in a second and its sound is arithmetic; and
the vigil looks more often, so that tests need not wait for it.
"""

import os
import sys
from typing import Any

import controller.main
import hosting.vigil
from dhsched.cli import main
from gpu_stages.stub import StubRuntime

MS_PER_CHARACTER = "STUB_MS_PER_CHARACTER"
LOOK_S = 0.3


def _stub(settings: Any) -> StubRuntime:
    return StubRuntime(
        live_slots=settings.capacity,
        ms_per_character=int(os.environ.get(MS_PER_CHARACTER, "4")),
    )


if __name__ == "__main__":
    controller.main._runtime = _stub  # type: ignore[assignment]
    hosting.vigil.LOOK_S = LOOK_S
    sys.argv[0] = "dhsched"
    main()
