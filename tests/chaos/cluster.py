"""The processes of a run: a broker, dispatchers, workers, each behind a proxy of its own.

A slot is a place for a process: it keeps its node name, its proxy and its levers' offsets while
processes come and go in it.
"""

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.chaos.complaints import complaints
from tests.chaos.diary import Diary
from tests.chaos.forge import Forge, ForgedProcess
from tests.chaos.levers import Lever, Levers, StoreMode
from tests.chaos.process import Spec
from tests.chaos.proxy import Cut, Proxy
from tests.sim import history as h
from tests.support.apache_kafka import ROOT, ApacheKafka, KafkaUnavailable, quiet_ports

LEASE_MS = 3_000
START_AGAIN_S = 2.0
CANNOT_START = b"cannot start: "

WORKER_TOML = """\
kafka = "{kafka}"
store = "{store}"
node = "{node}"
capacity = {capacity}
log_format = "json"
log_level = "info"

[limits]
beat_ms = 500
ownership_poll_ms = 500
reservation_ms = 5000
drain_retry_ms = 200
"""
DISPATCH_TOML = """\
kafka = "{kafka}"
store = "{store}"
port = 0
log_format = "json"
log_level = "info"
shutdown_s = 2.0

[limits]
lease_ms = {lease_ms}
refresh_ms = 500
"""


@dataclass(eq=False)
class Running:
    """One start of a process. `told_to_end`: its end is no surprise."""

    spec: Spec
    process: ForgedProcess
    levers: Levers
    told_to_end: bool = False
    stopped: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def port(self) -> int | None:
        """Its HTTP port, once it listens."""
        try:
            return int(self.spec.port.read_text())
        except FileNotFoundError:
            return None

    @property
    def url(self) -> str | None:
        """As a worker registers it."""
        port = self.port
        return None if port is None else f"http://127.0.0.1:{port}"

    @property
    def state(self) -> str:
        """As the kernel calls it: T is stopped."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return "X"
        return stat.rpartition(")")[2].split()[0]


@dataclass(eq=False)
class Slot:
    """`wanted`: a process should run here, and is started again when it ended by itself."""

    role: str
    node: str
    proxy: Proxy
    capacity: int
    starts: int = 0
    running: Running | None = None
    wanted: bool = True
    busy: bool = False
    """A fault is at work here."""
    wall_offset_ms: int = 0
    ended: list[Running] = field(default_factory=list)


class Cluster:
    """Made in the main thread: the kernel ends every child with it."""

    def __init__(
        self,
        folder: Path,
        diary: Diary,
        *,
        store: str,
        dispatchers: int,
        capacities: Mapping[str, int],
        ms_per_character: int,
        weaken: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.store = store
        self.diary = diary
        self.slots = [Slot("dispatch", f"d{at}", Proxy(), 0) for at in range(dispatchers)] + [
            Slot("worker", node, Proxy(), room) for node, room in capacities.items()
        ]
        self.broker: ApacheKafka | None = None
        self.surprises: list[str] = []
        """What no process should do, by its log or by its end."""
        self._forge = Forge(ROOT)
        self._ms_per_character = ms_per_character
        self._weaken = dict(weaken or {})
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(timeout=5.0, limits=limits, trust_env=False)
        self._watchers: set[asyncio.Task[None]] = set()
        self._closing = False

    # -- start and end

    async def start(self) -> None:
        """The broker, then every slot that is wanted; returns when all of them serve."""
        await self._forge.start()
        for slot in self.slots:
            await slot.proxy.start()
        ports = quiet_ports(len(self.slots))
        for slot, port in zip(self.slots, ports, strict=True):
            slot.proxy.upstream = port
        more = {slot.proxy.upstream: slot.proxy.port for slot in self.slots}
        self.broker = ApacheKafka(more=more)
        first, *others = [slot for slot in self.slots if slot.wanted]
        # One makes the topics; several at once would only wait for each other.
        await self.start_slot(first)
        await self.serves(first)
        for slot in others:
            await self.start_slot(slot)
        for slot in others:
            await self.serves(slot)

    async def close(self) -> None:
        """Everything is gone when it returns; may be called again."""
        if self._closing:
            return
        self._closing = True
        for slot in self.slots:
            slot.wanted = False
            if slot.running is not None and slot.running.alive:
                await self.kill(slot, quietly=True)
        await asyncio.gather(*self._watchers)
        await self._http.aclose()
        await self._forge.close()
        for slot in self.slots:
            await slot.proxy.close()
            for one in slot.ended:
                one.levers.close()
        if self.broker is not None:
            self.broker.close()

    @property
    def workers(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.role == "worker"]

    @property
    def dispatchers(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.role == "dispatch"]

    @property
    def urls(self) -> list[str]:
        """Of the dispatchers that listen now."""
        found = []
        for slot in self.dispatchers:
            running = slot.running
            if running is not None and running.alive and (url := running.url) is not None:
                found.append(url)
        return found

    # -- processes

    async def start_slot(self, slot: Slot) -> Running:
        """Begin a process in a slot that has none; does not wait until it serves."""
        slot.starts += 1
        name = f"{slot.node}.{slot.starts}"
        config = self.folder / f"{slot.node}.toml"
        template = WORKER_TOML if slot.role == "worker" else DISPATCH_TOML
        config.write_text(
            template.format(
                kafka=f"127.0.0.1:{slot.proxy.port}",
                store=self.store,
                node=slot.node,
                capacity=slot.capacity,
                lease_ms=LEASE_MS,
            )
        )
        spec = Spec(
            role=slot.role,
            name=name,
            folder=str(self.folder),
            config=str(config),
            ms_per_character=self._ms_per_character,
            capacity=slot.capacity,
            weaken=self._weaken.get(slot.node, ""),
        )
        levers = Levers(spec.levers, fresh=True)
        levers.set(Lever.WALL_OFFSET_MS, slot.wall_offset_ms)
        process = await self._forge.begin(spec.to_json())
        running = Running(spec, process, levers)
        slot.running = running
        slot.wanted = True
        self._note("start", name)
        watcher = asyncio.create_task(self._watch(slot, running))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return running

    async def _watch(self, slot: Slot, running: Running) -> None:
        """What its end means; a process that could not start is started again, as by systemd."""
        status = await running.process.wait()
        self.diary.note(h.Gone(self.diary.now_ms, running.name))
        self.diary.flush()
        slot.ended.append(running)
        if slot.running is running:
            slot.running = None
        output = running.spec.log.read_bytes()
        for told in complaints(output.decode(errors="replace")):
            self.surprises.append(f"{running.name} says: {told}")
        if running.told_to_end or self._closing:
            return
        if CANNOT_START in output[-2_000:]:
            self._note("start_refused", running.name)
        else:
            end = output[-1_500:].decode(errors="replace")
            self.surprises.append(f"{running.name} ended by itself with status {status}: {end}")
        await asyncio.sleep(START_AGAIN_S)
        if slot.wanted and slot.running is None and not self._closing:
            await self.start_slot(slot)

    async def serves(self, slot: Slot, timeout_s: float = 240.0) -> None:
        """Returns when the process in the slot says that it is ready. Raises AssertionError."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while not await self._ready(slot.running):
            if loop.time() > until_s:
                log = slot.running.spec.log if slot.running is not None else None
                told = log.read_text(errors="replace")[-2_000:] if log is not None else "ended"
                raise AssertionError(f"{slot.node} does not serve after {timeout_s} s: {told}")
            await asyncio.sleep(0.1)

    async def _ready(self, running: Running | None) -> bool:
        url = None if running is None else running.url
        if url is None:
            return False
        try:
            answer = await self._http.get(f"{url}/readyz")
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    async def kill(self, slot: Slot, *, quietly: bool = False) -> None:
        """SIGKILL; returns when it is gone."""
        running = slot.running
        if running is None:
            return
        running.told_to_end = True
        slot.wanted = False
        if not quietly:
            self._note("kill", running.name)
        self._signal(running, signal.SIGKILL)
        await running.process.wait()

    async def terminate(self, slot: Slot, timeout_s: float) -> int | None:
        """SIGTERM; its exit status, None when it had to be killed at the deadline."""
        running = slot.running
        if running is None:
            return None
        running.told_to_end = True
        slot.wanted = False
        self._note("terminate", running.name)
        self._signal(running, signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                return await running.process.wait()
        except TimeoutError:
            self._note("terminate_too_slow", running.name)
            self._signal(running, signal.SIGKILL)
            await running.process.wait()
            return None

    def give_up(self, slot: Slot) -> None:
        """Whatever runs here is nobody's any more; the slot is empty."""
        if slot.running is not None:
            slot.running.told_to_end = True
            slot.running = None

    async def end_at_once(self, running: Running) -> None:
        """SIGKILL for one that may be in no slot."""
        running.told_to_end = True
        self._signal(running, signal.SIGKILL)
        await running.process.wait()

    def stop(self, running: Running) -> None:
        """SIGSTOP."""
        running.stopped = True
        self._note("pause", running.name)
        self._signal(running, signal.SIGSTOP)

    def resume(self, running: Running) -> None:
        """SIGCONT."""
        running.stopped = False
        self._note("resume", running.name)
        self._signal(running, signal.SIGCONT)

    @staticmethod
    def _signal(running: Running, number: signal.Signals) -> None:
        if running.alive:
            running.process.send_signal(number)

    # -- network, store, clock

    def cut(self, slot: Slot, cut: Cut) -> None:
        """Kafka's network of one process."""
        slot.proxy.set(cut)
        self._note(f"kafka_{cut}", slot.node)

    def store_mode(self, running: Running, mode: StoreMode) -> None:
        running.levers.set(Lever.STORE, mode)
        self._note(f"store_{mode.name.lower()}", running.name)

    async def stop_broker(self, *, kill: bool) -> None:
        assert self.broker is not None
        self._note("broker_kill" if kill else "broker_stop", "kafka")
        await asyncio.to_thread(lambda: self.broker.stop(kill=kill))  # type: ignore[union-attr]

    async def start_broker(self, timeout_s: float = 180.0) -> None:
        """Launched from this thread: the kernel ends it with the thread that launched it. Raises
        AssertionError."""
        broker = self.broker
        assert broker is not None
        broker.launch()
        until_s = asyncio.get_running_loop().time() + timeout_s
        try:
            while not await asyncio.to_thread(broker.answers):
                if asyncio.get_running_loop().time() > until_s:
                    raise AssertionError(f"Kafka does not answer:\n{broker.last_output()}")
                await asyncio.sleep(0.2)
        except KafkaUnavailable as error:
            # It was there: that it does not come back is no reason to skip anything.
            raise AssertionError(f"the broker does not come back: {error}") from error
        self._note("broker_back", "kafka")

    async def heal(self) -> None:
        """No fault is left: everything runs, reachable, with a right clock."""
        for slot in self.slots:
            slot.proxy.set(Cut.OPEN)
            running = slot.running
            if running is not None and running.alive:
                for lever in (Lever.STORE, Lever.STOP_AFTER_RELEASE):
                    running.levers.set(lever, 0)
                if running.state == "T":
                    self.resume(running)

    def _note(self, kind: str, process: str, detail: str = "") -> None:
        self.diary.note(h.Fault(self.diary.now_ms, kind, process, detail))
