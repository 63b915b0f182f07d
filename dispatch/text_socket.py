"""A token stream by WebSocket.

The client sends JSON messages `{"text": ".."}` (with `seq` where it repeats), `{"end_turn": true}`
and `{"interrupt": true}`, numbered from 1 by their order. Each is answered, in order:
`{"ack": n, "partition": p, "offset": o, "event_id": ".."}` when it is in the log, or
`{"error": n, "problem": {..}}`; after an error the socket stays open.

One append is under way at a time, so that order holds; texts that come meanwhile are joined into
the next one and share its offset. White space that comes alone waits for the word after it. When
the waiting messages fill their queue, the socket is not read, and the client's sends block.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any, assert_never

from pydantic import ValidationError
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from dispatch.models import SocketIn
from dispatch.problem_responses import problem_of, problem_response, unexpected
from dispatch.problems import Problem, ProblemKind
from dispatch.publish import Published
from dispatch.replica import Replica, decode_live_id
from dispatch.text_input import Pushed, Turn
from dispatch.whep_proxy import live_closed, unknown_live
from ownership.model import AlreadyClosed, UnknownLive
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.text_record import TEXT_BYTES_MAX, RecordKind, TextRecord, encode_text_record

MESSAGES_WAITING_MAX = 256
CLOSE_GOING_AWAY = 1012
CLOSE_LIVE_GONE = 4410


@dataclass(frozen=True, slots=True)
class _Asked:
    number: int
    wants: SocketIn


@dataclass(frozen=True, slots=True)
class _Bad:
    number: int
    problem: Problem


@dataclass(slots=True)
class _Batch:
    """Texts to be appended as one record. Invariant: at most TEXT_BYTES_MAX bytes."""

    numbers: list[int] = field(default_factory=list[int])
    text: str = ""
    size: int = 0

    def add(self, number: int, text: str) -> bool:
        size = len(text.encode())
        if self.numbers and self.size + size > TEXT_BYTES_MAX:
            return False
        self.numbers.append(number)
        self.text += text
        self.size += size
        return True


def _check_text(text: str | None) -> None:
    """Each text by itself, so that a bad one fails alone. White space may wait for a word.

    Raises BadRecord.
    """
    if text:
        encode_text_record(TextRecord(RecordKind.TEXT, text if text.strip() else f".{text}"))
    elif text is not None:
        raise BadRecord(DeadLetterReason.EMPTY_TEXT, "the text is empty")


async def serve_socket(socket: WebSocket, replica: Replica, segment: str) -> None:
    """One connection, from its handshake on. `segment` is percent-encoded."""
    try:
        live_id = decode_live_id(segment)
        if replica.sockets >= replica.service.limits.sockets_max:
            raise Problem(ProblemKind.TOO_MANY_STREAMS, "Connect to another replica, or later.")
        await _check_open(replica, live_id)
    except Exception as error:
        problem = problem_of(error) or unexpected(error, socket.url.path)
        await _deny(socket, problem)
        return
    await socket.accept()
    replica.sockets += 1
    try:
        await TextSocket(socket, replica, live_id).run()
    finally:
        replica.sockets -= 1


async def _check_open(replica: Replica, live_id: str) -> None:
    match await replica.service.text.check(live_id):
        case UnknownLive():
            raise unknown_live()
        case AlreadyClosed(reason):
            raise live_closed(reason)
        case None:
            pass


async def _deny(socket: WebSocket, problem: Problem) -> None:
    """The handshake is answered as a request would be."""
    if "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(problem_response(problem, socket.url.path))
    else:
        await socket.close(CLOSE_LIVE_GONE, problem.detail[:100])


class TextSocket:
    """One task reads, one appends and answers."""

    def __init__(self, socket: WebSocket, replica: Replica, live_id: str) -> None:
        self._socket = socket
        self._replica = replica
        self._live_id = live_id
        self._waiting: deque[_Asked | _Bad] = deque()
        self._changed = asyncio.Condition()
        self._is_read_out = False
        self._spaces = _Batch()

    async def run(self) -> None:
        """Returns when the client left, the live ended, or the replica stops."""
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        stopping = asyncio.create_task(self._replica.stopping.wait())
        tasks: set[asyncio.Task[Any]] = {reading, writing, stopping}
        try:
            await asyncio.wait({writing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            else:
                await self._close(CLOSE_GOING_AWAY, "this replica stops; connect to another")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _read(self) -> None:
        number = 0
        try:
            while True:
                number += 1
                asked = self._parse(number, await self._socket.receive())
                async with self._changed:
                    await self._changed.wait_for(lambda: len(self._waiting) < MESSAGES_WAITING_MAX)
                    self._waiting.append(asked)
                    self._changed.notify_all()
        except WebSocketDisconnect:
            pass
        finally:
            # What was received is still appended: clients may send and leave.
            self._is_read_out = True
            async with self._changed:
                self._changed.notify_all()

    def _parse(self, number: int, message: Message) -> _Asked | _Bad:
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect
        text = message.get("text")
        if not isinstance(text, str):
            return _Bad(number, Problem(ProblemKind.MALFORMED, "Send text frames that hold JSON."))
        if len(text) > self._replica.settings.body_bytes_max:
            return _Bad(number, Problem(ProblemKind.TOO_LARGE, "A message is at most that long."))
        try:
            wants = SocketIn.model_validate_json(text)
            _check_text(wants.text)
            return _Asked(number, wants)
        except BadRecord as error:
            return _Bad(number, problem_of(error) or unexpected(error, self._socket.url.path))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "/".join(str(part) for part in first["loc"])
            kind = ProblemKind.INVALID
            if first["type"] == "json_invalid":
                kind = ProblemKind.MALFORMED
            return _Bad(number, Problem(kind, f"{place}: {first['msg']}".removeprefix(": ")[:200]))

    async def _write(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._waiting) or self._is_read_out)
            if not self._waiting:
                return
            try:
                await self._next()
            except _LiveGone as gone:
                await self._close(CLOSE_LIVE_GONE, gone.problem.detail[:100])
                return

    async def _next(self) -> None:
        """Appends and answers the first message, with the texts that can go with it."""
        first = self._waiting[0]
        match first:
            case _Bad(number, problem):
                await self._take()
                await self._fail([number], problem)
            case _Asked(number, wants) if wants.text is not None and wants.seq is not None:
                await self._take()
                await self._drop_spaces()
                await self._push([number], Turn(text=wants.text, seq=wants.seq))
            case _Asked(_, wants) if wants.text is not None:
                batch = await self._gather()
                if batch.text.strip():
                    await self._push(batch.numbers, Turn(text=batch.text))
                else:
                    self._spaces = batch
            case _Asked(number, wants):
                await self._take()
                await self._drop_spaces()
                if wants.interrupt:
                    await self._interrupt(number)
                else:
                    await self._push([number], Turn(end_turn=True))
            case _:
                assert_never(first)

    async def _gather(self) -> _Batch:
        """The plain texts at the head of the queue, as many as fit, after waiting white space."""
        batch, self._spaces = self._spaces, _Batch()
        while self._waiting:
            head = self._waiting[0]
            if not isinstance(head, _Asked) or head.wants.seq is not None:
                break
            text = head.wants.text
            if text is None or not batch.add(head.number, text):
                if text is None or batch.text.strip():
                    break
                for number in batch.numbers:  # so much white space leaves no room for a word
                    await self._ack(number, None)
                batch = _Batch()
                continue
            await self._take()
        return batch

    async def _take(self) -> None:
        async with self._changed:
            self._waiting.popleft()
            self._changed.notify_all()

    async def _drop_spaces(self) -> None:
        """White space before the end of a turn is not spoken; it is answered all the same."""
        batch, self._spaces = self._spaces, _Batch()
        for number in batch.numbers:
            await self._ack(number, None)

    async def _push(self, numbers: list[int], turn: Turn) -> None:
        try:
            outcome = await self._replica.service.text.push(self._live_id, turn)
        except Exception as error:
            problem = problem_of(error) or unexpected(error, self._socket.url.path)
            await self._fail(numbers, problem)
            return
        match outcome:
            case UnknownLive():
                await self._end(numbers, unknown_live())
            case AlreadyClosed(reason):
                await self._end(numbers, live_closed(reason))
            case Pushed(text, end_turn):
                for number in numbers:
                    await self._ack(number, text or end_turn)

    async def _interrupt(self, number: int) -> None:
        try:
            outcome = await self._replica.service.text.interrupt(self._live_id)
        except Exception as error:
            problem = problem_of(error) or unexpected(error, self._socket.url.path)
            await self._fail([number], problem)
            return
        match outcome:
            case UnknownLive():
                await self._end([number], unknown_live())
            case AlreadyClosed(reason):
                await self._end([number], live_closed(reason))
            case _:
                await self._ack(number, outcome)

    async def _end(self, numbers: list[int], problem: Problem) -> None:
        await self._fail(numbers, problem)
        raise _LiveGone(problem)

    async def _ack(self, number: int, place: Published | None) -> None:
        self._count("accepted")
        await self._send(
            {
                "ack": number,
                "partition": place.partition if place is not None else None,
                "offset": place.offset if place is not None else None,
                "event_id": place.event_id if place is not None else None,
            }
        )

    async def _fail(self, numbers: list[int], problem: Problem) -> None:
        for number in numbers:
            self._count(problem.kind.value)
            await self._send({"error": number, "problem": problem.body(None)})

    def _count(self, outcome: str) -> None:
        self._replica.metrics.socket_messages.labels(outcome).inc()

    async def _send(self, document: dict[str, object]) -> None:
        # Who has left gets no answer, but what it sent before is still appended.
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            async with asyncio.timeout(self._replica.settings.stream_write_s):
                await self._socket.send_json(document)

    async def _close(self, code: int, reason: str) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            await self._socket.close(code, reason)


class _LiveGone(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
