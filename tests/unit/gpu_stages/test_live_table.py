import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_stages import live_table
from gpu_stages.live_table import (
    LiveRow,
    LiveTableReader,
    LiveTableWriter,
    TornRow,
    create_table,
    empty_row,
    name_code,
)
from gpu_stages.memory import make_fence
from tests.unit.gpu_stages.table_scribbler import row_of

SCRIBBLER = Path(__file__).with_name("table_scribbler.py")
ROWS = 4
ROW = LiveRow(2, 7, 8, 9, 10, -11, -12, 2**64 - 1, 14, 15, 256, 512, 1.25, 3)


@pytest.fixture
def table() -> Iterator[int]:
    fd = create_table(ROWS)
    yield fd
    os.close(fd)


def test_a_row_is_read_as_it_was_written(table: int) -> None:
    writer, reader = LiveTableWriter(table), LiveTableReader(table)
    assert [reader.row(slot) for slot in range(ROWS)] == [empty_row(slot) for slot in range(ROWS)]
    writer.write(ROW)
    assert reader.row(2) == ROW
    assert reader.bound_rows() == [ROW]
    for credit in range(5):
        changed = replace(ROW, credit_frame=credit)
        writer.write(changed)
        assert reader.row(2) == changed
    writer.write(empty_row(2))
    assert reader.bound_rows() == []
    assert reader.row(1) == empty_row(1)


def test_an_unchanged_row_costs_no_copy(table: int) -> None:
    writer, reader = LiveTableWriter(table), LiveTableReader(table)
    writer.write(ROW)
    assert reader.row(2) is reader.row(2)


def test_binds_are_noticed_without_looking_at_rows(table: int) -> None:
    writer, reader = LiveTableWriter(table), LiveTableReader(table)
    seen = reader.bindings()
    writer.write(ROW)
    assert reader.bindings() == seen
    writer.bindings_changed()
    assert reader.bindings() > seen


def test_a_slot_outside_the_table_is_refused(table: int) -> None:
    reader = LiveTableReader(table)
    for slot in (-1, ROWS):
        with pytest.raises(IndexError):
            reader.row(slot)


def test_what_is_no_table_is_refused() -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, 4096)
    try:
        with pytest.raises(ValueError, match="not a live table"):
            LiveTableReader(fd)
    finally:
        os.close(fd)


def test_a_row_that_is_rewritten_without_pause_is_never_torn(table: int) -> None:
    root = SCRIBBLER.parents[3]
    writer = subprocess.Popen(
        [sys.executable, str(SCRIBBLER), str(table)],
        pass_fds=[table],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        reader = LiveTableReader(table)
        seen: set[int] = set()
        newest = 0
        end_s = time.monotonic() + 20
        while len(seen) < 3000 and time.monotonic() < end_s:
            row = reader.row(1)
            if row.binding:
                assert row == row_of(row.binding)
                assert row.binding >= newest, "rows never go back"
                newest = row.binding
                seen.add(row.binding)
        assert len(seen) == 3000, "not enough different rows were seen to mean anything"
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


def test_a_writer_that_stopped_in_the_middle_holds_up_nobody(table: int) -> None:
    """Whatever lies in the copy that the version does not name is not looked at."""
    writer, reader = LiveTableWriter(table), LiveTableReader(table)
    writer.write(ROW)
    scribble(table, other_copy=True)
    assert LiveTableReader(table).row(2) == ROW
    assert reader.row(2) == ROW


def test_a_damaged_row_is_an_error_and_not_a_row(table: int) -> None:
    LiveTableWriter(table).write(ROW)
    scribble(table, other_copy=False)
    with pytest.raises(TornRow):
        LiveTableReader(table).row(2)


def scribble(table: int, *, other_copy: bool) -> None:
    """Change one byte in one of the two copies of row 2, as a writer at work does."""
    memory = live_table.SharedMemory(table)
    offset = live_table._ROWS_AT + 2 * live_table._ROW_BYTES
    copy = (memory.words[offset // 8] & 1) ^ other_copy
    memory.view[offset + 8 + copy * live_table._COPY_BYTES + 3] ^= 0x55
    memory.close()


def test_names_have_stable_codes() -> None:
    assert name_code("heart") == 0x60ECC3E6
    assert name_code("clay") == 0x1C2526CB


def test_the_fence_of_other_machines_makes_its_calls() -> None:
    before = len(os.listdir("/proc/self/fd"))
    fence = make_fence(keeps_order=False)
    for _ in range(10):
        fence()
    assert len(os.listdir("/proc/self/fd")) == before + 1
