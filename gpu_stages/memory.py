"""Anonymous shared memory and wake-ups that are handed down as file descriptors.

Memory comes from `memfd_create`, wake-ups are eventfds; both reach another process only as an
inherited descriptor. Neither has a name, so when every process that holds one is gone, also by
SIGKILL, the kernel frees it: there is nothing in /dev/shm to find or to clean.

What the lock-free structures on top rely on, since Python itself promises nothing here:

- `words[i]` and `words[i] = n` on a memoryview cast to "Q" over page-aligned memory is one aligned
  8-byte load or store: CPython copies `sizeof(unsigned long long)` bytes with one memcpy of
  constant size, which compilers for 64-bit machines turn into one move. (`struct` with "<" writes
  byte by byte and is never used for such a word.) CPython keeps the order of the statements.
- x86-64 keeps stores in order and loads in order (TSO), so a word that is written last is seen
  last, and what is read after it is no older. `fence()` is nothing there.
- Other machines may reorder both. There `fence()` makes two system calls on a private eventfd;
  each takes and drops a kernel spin lock, and the release of the first followed by the acquire of
  the second keeps everything before in front of everything after. Slower, and as far as we know
  right; x86-64 is what is tested.
"""

import fcntl
import mmap
import os
import platform
from collections.abc import Callable
from typing import Final

CACHE_LINE_BYTES: Final = 64
PAGE_BYTES: Final = 4096
_KEEPS_ORDER: Final = platform.machine() in {"x86_64", "AMD64"}


def round_up(size_bytes: int, to_bytes: int = CACHE_LINE_BYTES) -> int:
    """The smallest multiple of `to_bytes` that is not below `size_bytes`."""
    return -(-size_bytes // to_bytes) * to_bytes


def _no_fence() -> None:
    """This machine keeps the order by itself."""


def make_fence(keeps_order: bool = _KEEPS_ORDER) -> Callable[[], None]:
    """A function that keeps memory accesses before it in front of those after it."""
    if keeps_order:
        return _no_fence
    private = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def two_lock_rounds() -> None:
        os.eventfd_write(private, 1)
        os.eventfd_read(private)

    return two_lock_rounds


fence: Final = make_fence()


class SharedMemory:
    """One mapping of an anonymous memory file: `view` are its bytes, `words` its 8-byte words."""

    def __init__(self, fd: int) -> None:
        """Map the whole file behind `fd`, which stays the caller's and may be closed after."""
        self._map = mmap.mmap(fd, 0)
        self.view = memoryview(self._map)
        self.words = self.view.cast("Q")

    def close(self) -> None:
        """Unmap. A view that somebody still holds keeps the mapping until it is dropped."""
        self.words.release()
        self.view.release()
        try:
            self._map.close()
        except BufferError:
            return


def create_memory(name: str, size_bytes: int) -> int:
    """A new zeroed memory file of fixed size; returns its descriptor (close-on-exec).

    `name` only shows in /proc. The size is sealed: no process can shrink it under another one.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, round_up(size_bytes, PAGE_BYTES))
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
    except OSError:
        os.close(fd)
        raise
    return fd


def create_bell() -> int:
    """A new wake-up descriptor (non-blocking, close-on-exec): readable once it was rung."""
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)


def ring_bell(fd: int) -> None:
    """Make the descriptor readable for whoever waits on it."""
    os.eventfd_write(fd, 1)


def quiet_bell(fd: int) -> None:
    """Clear the wake-up. Do it before looking for work, or a ring in between is lost."""
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return
