"""Rewrites row 1 of an inherited table as fast as it can; every field says the same number."""

import sys

from gpu_stages.live_table import LiveRow, LiveTableWriter


def row_of(number: int) -> LiveRow:
    small = number % 65536
    return LiveRow(
        1, number, number, small, small, number, number, number, small, small, small, small,
        float(small), small,
    )  # fmt: skip


if __name__ == "__main__":
    table = LiveTableWriter(int(sys.argv[1]))
    print("writing", flush=True)
    counter = 0
    while True:
        counter += 1
        table.write(row_of(counter))
