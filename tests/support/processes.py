"""What processes hold, read from /proc, for leak checks."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holdings:
    """Countable things of one process."""

    descriptors: int
    sockets: int
    threads: int
    children: frozenset[int]


def holdings(pid: int) -> Holdings:
    """What process `pid` holds now."""
    targets: list[str] = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(os.readlink(entry))
        except FileNotFoundError:
            continue
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    sockets = sum(target.startswith("socket:") for target in targets)
    return Holdings(len(targets), sockets, threads, frozenset(children(pid)))


def children(pid: int) -> set[int]:
    """Direct children of a process."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= {int(child) for child in (task / "children").read_text().split()}
    return found


def descendants(pid: int) -> set[int]:
    """All processes below a process."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        try:
            below = children(todo.pop()) - found
        except FileNotFoundError:
            continue
        found |= below
        todo += below
    return found


def alive(pids: set[int]) -> set[int]:
    """Which of them still run (zombies do not)."""
    running: set[int] = set()
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            running.add(pid)
    return running


def shared_memory_names() -> set[str]:
    """Named segments in /dev/shm."""
    return {entry.name for entry in Path("/dev/shm").iterdir()}
