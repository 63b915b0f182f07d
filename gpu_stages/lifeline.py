"""A process that ends when the one that started it does, however that ended."""

import ctypes
import os
import signal
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def follow_parent(parent_pid: int, ended_by: signal.Signals) -> bool:
    """Have the kernel send `ended_by` to this process when the thread that started it is gone.

    False: the parent was gone already, before the kernel could promise anything.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(ended_by), 0, 0, 0)
    return os.getppid() == parent_pid
