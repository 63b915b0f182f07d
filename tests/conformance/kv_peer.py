"""Other processes on one LMDB store: what the conformance tests start, stop and kill."""

import asyncio
import signal
import sys
import threading

from ownership.kv import Database, Transaction, int64
from ownership.open import open_database


def put_int(tr: Transaction, key: bytes, number: int) -> None:
    tr.set(key, number.to_bytes(8, "little"))


async def increment(db: Database, name: str, times: int) -> None:
    """Read-modify-write of one shared counter, and one key of its own per increment."""

    def body(tr: Transaction, i: int) -> None:
        number = int64(tr.get(b"n")) + 1
        put_int(tr, b"n", number)
        tr.set(b"by/%s/%04d" % (name.encode(), i), b"%d" % number)

    for i in range(times):
        await db.run(lambda tr, i=i: body(tr, i))


async def pairs_for_ever(db: Database) -> None:
    """Raise two counters together until killed, and say so after each commit."""

    def body(tr: Transaction) -> int:
        number = int64(tr.get(b"left")) + 1
        put_int(tr, b"left", number)
        # Something between the two, so that a kill often falls between them.
        for i in range(50):
            tr.set(b"filler%03d" % i, b"x" * 2000)
        put_int(tr, b"right", number)
        return number

    while True:
        print(await db.run(body), flush=True)


async def stop_inside(db: Database) -> None:
    """Stop while holding the write lock, as a debugger or a frozen container would."""

    def body(tr: Transaction) -> None:
        tr.set(b"from the stopped one", b"")
        print("stopping", flush=True)
        # Sent to this very thread: sent to the process, it may get as far as its commit.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    await db.run(body)
    print("went on", flush=True)


async def main(url: str, what: str, *arguments: str) -> None:
    async with await open_database(url) as db:
        if what == "increment":
            await increment(db, arguments[0], int(arguments[1]))
        elif what == "pairs":
            await pairs_for_ever(db)
        elif what == "stop":
            await stop_inside(db)
        else:
            raise SystemExit(f"unknown task {what}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
