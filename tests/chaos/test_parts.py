"""The suite's own parts: what it writes down, when, and what it makes of it."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from ownership import keys
from ownership.kv import StoreAway, Unknown
from ownership.open import open_database
from tests.chaos.complaints import complaints
from tests.chaos.diary import Diary, read
from tests.chaos.gather import Journal, missed, timed
from tests.chaos.journal import JournaledDatabase
from tests.chaos.levers import Lever, Levers, StoreMode
from tests.chaos.measure import asked_while_superseded, longest_gap_ms, percentile, recoveries
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import KINDS, Planned, schedule
from tests.chaos.proxy import Cut, Proxy
from tests.chaos.report import as_json, as_markdown, failures
from tests.chaos.run import Options, Run, whole_store
from tests.sim import history as h
from tests.sim.checkers import check
from tests.support.wait import until


def heard(begin: int, end: int, *, segment: int = 1, last: bool = False) -> h.Heard:
    return h.Heard(0, "w", "a", 1, segment, begin, end, last, "a", 1, 7)


# -- the journal


async def test_commits_of_two_processes_stand_in_one_order(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}/store?sync=off"
    async with await open_database(url) as first, await open_database(url) as second:
        journaled = [
            JournaledDatabase(
                db, name, Diary(tmp_path / name), Levers(tmp_path / f"{name}.l", fresh=True)
            )
            for name, db in (("one", first), ("two", second))
        ]

        async def write(which: int, value: int) -> None:
            await journaled[which].run(lambda tr: tr.set(keys.cursor("a"), b"%d" % value))

        await asyncio.gather(*(write(at % 2, at) for at in range(50)))
        await journaled[0].run(lambda tr: tr.add(keys.beat("w"), 1))
        journal = Journal(first)
        for steps in range(8):
            cancelled = asyncio.create_task(journal.catch_up())
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
        await asyncio.gather(*(journal.catch_up() for _ in range(3)))
        found = journal.entries
        assert await first.read(lambda tr: tr.get(keys.cursor("a"))) == found[-1][2][0][1]
        assert sorted(int(changes[0][1] or b"") for _, _, changes in found) == list(range(50))
        assert {process for process, _, _ in found} == {"one", "two"}
        times = [at for at, _ in timed(found)]
        assert times == sorted(times)
        assert times == [at for _, at, _ in found], "LMDB's order is that of the clock"
        await journal.catch_up()
        assert len(journal.entries) == 50, "read once, whoever reads"
        store = await whole_store(first)
        assert missed(journal.entries, store) == []
        assert missed(journal.entries[:-1], store) == [keys.cursor("a")]


async def test_a_body_that_raises_leaves_no_entry(tmp_path: Path) -> None:
    async with await open_database(f"lmdb://{tmp_path}/store?sync=off") as db:
        levers = Levers(tmp_path / "levers", fresh=True)
        journaled = JournaledDatabase(db, "one", Diary(tmp_path / "diary"), levers)

        def body(tr: object) -> None:
            tr.set(keys.gen("a"), b"x")  # type: ignore[attr-defined]
            raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            await journaled.run(body)
        journal = Journal(db)
        await journal.catch_up()
        assert journal.entries == []


async def test_levers_cut_the_store_off_and_lose_answers(tmp_path: Path) -> None:
    async with await open_database(f"lmdb://{tmp_path}/store?sync=off") as db:
        levers = Levers(tmp_path / "levers", fresh=True)
        journaled = JournaledDatabase(db, "one", Diary(tmp_path / "diary"), levers)
        levers.set(Lever.STORE, StoreMode.AWAY)
        with pytest.raises(StoreAway):
            await journaled.run(lambda tr: tr.set(keys.gen("a"), b"x"))
        with pytest.raises(StoreAway):
            await journaled.read(lambda tr: tr.get(keys.gen("a")))
        assert await db.read(lambda tr: tr.get(keys.gen("a"))) is None
        levers.set(Lever.STORE, StoreMode.UNSURE)
        outcomes = [
            await journaled.attempt(lambda tr, n=n: tr.set(keys.gen(f"{n}"), b"x"))
            for n in range(60)
        ]
        written = [
            await db.read(lambda tr, n=n: tr.get(keys.gen(f"{n}"))) is not None for n in range(60)
        ]
        lost = [
            there for one, there in zip(outcomes, written, strict=True) if isinstance(one, Unknown)
        ]
        assert True in lost
        assert False in lost


HOLDER = """
import sys, lmdb
env = lmdb.open(sys.argv[1], lock=True)
with env.begin(write=True):
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_stopped_process_that_holds_the_write_lock_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with await open_database(f"lmdb://{path}?sync=off") as db:
        journal = Journal(db)
        assert await journal.writable(5.0)
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, str(path), stdin=PIPE, stdout=PIPE
        )
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        assert not await journal.writable(0.2)
        holder.send_signal(signal.SIGCONT)
        await holder.communicate(b"")
        await until(lambda: journal.writable(5.0), what="the lock")
        assert holder.returncode == 0


async def test_a_fault_that_fails_makes_the_run_bad_and_does_not_end_it() -> None:
    async def serves_never(_: Planned) -> bool:
        raise AssertionError("n1 does not serve")

    told = SimpleNamespace(surprises=[], slots=[])
    nemesis = Nemesis(told, None, None, (), 1.0, Random(1))  # type: ignore[arg-type]
    nemesis._faults.kinds["twin"] = serves_never
    assert await nemesis._one(Planned(0.0, "twin", 1, 0.5, 7))
    [surprise] = told.surprises
    assert "kind='twin'" in surprise
    assert "n1 does not serve" in surprise


# -- the diary


async def test_ticks_that_follow_each_other_become_one_entry(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    diary.note(heard(0, 10))
    diary.note(heard(10, 20))
    diary.note(heard(20, 30))
    diary.note(heard(50, 60))
    diary.note(heard(60, 70, last=True))
    diary.note(heard(0, 5, segment=2))
    diary.note(h.Gone(1, "w"))
    diary.close()
    found = [entry for _, entry in read(tmp_path / "diary")]
    spans = [(one.segment, one.begin, one.end) for one in found if isinstance(one, h.Heard)]
    assert spans == [(1, 0, 10), (1, 10, 30), (1, 50, 60), (1, 60, 70), (2, 0, 5)]
    assert isinstance(found[-1], h.Gone)


async def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    diary = Diary(path)
    diary.note(h.CursorWritten(1, 2, "p", "a", 3, "r", (1, 2)))
    diary.close()
    path.write_bytes(path.read_bytes() + b'[17, "Gone", ')
    [(_, entry)] = read(path)
    assert entry == h.CursorWritten(1, 2, "p", "a", 3, "r", (1, 2))


# -- what a history shows


def test_recovery_is_from_the_kill_to_the_next_owner_heard() -> None:
    history: h.History = [
        h.WorkerWritten(0, 1, "p0", "w0", "ready", 4),
        h.GenerationWritten(0, 2, "d", "a", "w0", 1, 0, "c1"),
        h.GenerationWritten(0, 2, "d", "b", "w0", 1, 1, "c2"),
        h.ProgressWritten(0, 3, "p0", "a", ((0, 0, 1, 0),), 0, -1),
        h.Fault(1_000, "crash", "p0", "alone"),
        h.GenerationWritten(2_000, 4, "d", "a", "w1", 2, 0, "c3"),
        h.Heard(4_500, "p1", "a", 2, 1, 0, 9, False, "a", 2, 1),
        h.Heard(4_600, "p1", "b", 2, 1, 0, 9, False, "b", 2, 2),
    ]
    [one] = recoveries(history)
    assert (one.live_id, one.seconds, one.alone) == ("a", 3.5, True)


def test_gaps_in_a_join_are_those_of_lives_that_stay() -> None:
    def released(at_ms: int, live_id: str, *, speaking: bool = True) -> list[h.Entry]:
        segments = ((0, 0, 1, 0),) if speaking else ()
        return [
            h.CursorWritten(at_ms, 1, "p", live_id, 1, "r", None),
            h.ProgressWritten(at_ms, 1, "p", live_id, segments, 0, -1),
        ]

    history: h.History = [
        *released(0, "kept"),
        h.Fault(100, "join", "x", "alone"),
        *released(200, "kept"),
        *released(300, "moved"),
        *released(300, "silent", speaking=False),
        *released(900, "kept"),
        h.GenerationWritten(950, 1, "d", "moved", "x", 2, 0, "c"),
        *released(5_000, "moved"),
        *released(6_000, "silent"),
        h.Fault(7_000, "rebalance", "x"),
        *released(9_000, "kept"),
    ]
    assert longest_gap_ms(history) == 700
    assert longest_gap_ms([]) is None


def test_asking_in_the_name_of_an_ended_generation_is_counted() -> None:
    history: h.History = [
        h.GenerationWritten(0, 1, "d", "a", "w0", 1, 0, "c1"),
        h.ReleaseAsked(0, "p0", "a", "w0", 1, "r1"),
        h.GenerationWritten(0, 2, "d", "a", "w1", 2, 0, "c2"),
        h.ReleaseAsked(0, "p0", "a", "w0", 1, "r2"),
    ]
    assert asked_while_superseded(history) == 1


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0


def test_a_report_says_what_was_found_and_how_to_run_it_again(tmp_path: Path) -> None:
    history: h.History = [
        h.GenerationWritten(0, 1, "d", "a", "w0", 1, 0, "c1"),
        h.GenerationWritten(0, 2, "d", "a", "w0", 1, 0, "c1"),
    ]
    options = Options(seed=7, length_s=90.0)
    bad = Run(options, check(history), history, Counter(moves=3), [], 5, kept=tmp_path)
    report = as_json(bad, "a broker")
    assert report["violations"]["epochs"] == 2
    assert (report["minutes"], report["lives"], report["seed"]) == (1.5, 50, 7)
    assert {"schema", "commit", "machine", "moves", "faults", "windows", "store"} <= set(report)
    assert "| violations of any invariant | 4 |" in as_markdown(report)
    assert "make chaos MINUTES=1.5 SEED=7" in failures(bad)[-1]
    good = Run(options, check([]), [], Counter(), [], 0)
    assert failures(good) == []
    assert failures(Run(options, check([]), [], Counter(), ["it complained"], 0))


# -- schedules, logs


def test_a_seed_is_a_schedule_and_each_kind_comes_early() -> None:
    assert list(islice(schedule(7), 200)) == list(islice(schedule(7), 200))
    assert list(islice(schedule(7), 200)) != list(islice(schedule(8), 200))
    first = {one.kind for one in islice(schedule(7), len(KINDS))}
    assert first == {kind.name for kind in KINDS}


def test_our_own_errors_are_complaints_and_the_libraries_are_not() -> None:
    log = "\n".join(
        (
            '{"event": "Connection failed", "level": "error", "logger": "aiokafka.conn"}',
            '{"event": "store_away", "level": "warning", "logger": "controller.store_calls"}',
        )
    )
    assert list(complaints(log)) == []
    ours = '{"event": "round_failed", "level": "error", "logger": "dispatch.service"}'
    assert len(list(complaints(f"{log}\n{ours}"))) == 1
    assert len(list(complaints("Traceback (most recent call last):\n  boom"))) == 1


# -- the network


async def test_a_cut_network_holds_back_and_a_closed_one_breaks() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy()
    await proxy.start()
    proxy.upstream = server.sockets[0].getsockname()[1]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await reader.read(100) == b"one"
        proxy.set(Cut.BLACK)
        writer.write(b"two")
        answer = asyncio.create_task(reader.read(100))
        await asyncio.sleep(0.2)
        assert not answer.done()
        proxy.set(Cut.OPEN)
        assert await answer == b"two"
        proxy.set(Cut.CLOSED)
        with contextlib.suppress(ConnectionError):
            assert await reader.read(100) == b""
        writer.close()
        refused, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        with contextlib.suppress(ConnectionError):
            assert await refused.read(100) == b""
        other.close()
        await until(lambda: not proxy._writers, what="every connection closed")
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()
