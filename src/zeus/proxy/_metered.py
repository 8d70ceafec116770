"""A request for text, passed on to a back end, and its answer with its energy.

Pieces of a stream are passed on as they come, byte for byte. Only the end is held until the whole
end has arrived, usually in the same packet, and gets the energy: in `usage.energy` where the client
has asked for usage, else as a field `energy` of the last chunk with a choice: many clients expect
token counts wherever there is a `usage`, and ignore fields that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Any

from zeus.errors import BackendError
from zeus.monitor._requests import Request, RequestEnergy
from zeus.proxy._client import Usage, parsed
from zeus.proxy._connection import Headers
from zeus.proxy._events import DONE, MAX_EVENT
from zeus.proxy._http_server import ClientRequest
from zeus.proxy._pool import Exchange

MAX_WHOLE = 64 * 1024 * 1024  # bytes of an answer that is not streamed, to which energy is added
ENERGY_HEADER = b"zeus-energy-joules"
_HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_NULLS = b',"usage":null', b', "usage": null'


def passed_on(headers: Headers, *without: bytes) -> Headers:
    """Return the headers that a proxy passes on."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }
    left_out = _HOP_BY_HOP | named | set(without)
    return [header for header in headers if header[0] not in left_out]


def error_body(message: str, kind: str, code: str | None = None) -> bytes:
    """Return an error in the form that clients of OpenAI expect."""
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


class _Mode(Enum):
    RAW = 0  # passed on as it is
    STREAM = 1
    WHOLE = 2
    OVER = 3  # the rest is ignored


class MeteredAnswer:
    """Receives the answer of a back end and passes it on.

    Args:
        client: The client's request.
        request: The request as it is measured; `None` for what is only passed on.
        exchange: Ends the request to the back end.
        ended: Called once, whatever the end.
        usage_asked: Whether the client has asked for usage in its stream.
        choices: Number of answers that it has asked for.
    """

    def __init__(
        self,
        client: ClientRequest,
        request: Request | None,
        exchange: Exchange,
        *,
        ended: Callable[[], None],
        usage_asked: bool = False,
        choices: int = 1,
    ) -> None:
        self._client = client
        self._request = request
        self.exchange = exchange
        self._ended: Callable[[], None] | None = ended
        self._usage_asked = usage_asked
        self._choices = choices
        self._mode = _Mode.RAW
        self._status = 0
        self._headers: Headers = []
        self._rest = b""
        self._held: list[bytes] = []  # events of the end
        self._finishes = 0
        self._whole: list[bytes] = []
        self._size = 0
        self._usage: Usage | None = None
        self._failed = False
        #: Called with the status of an error; returns whether another attempt is made.
        self.refused: Callable[[int], bool] | None = None
        #: Called when the request is being answered.
        self.accepted: Callable[[], None] = _nothing
        #: End of an event that was nothing but text, from `finish_reason` on.
        self._plain_end: bytes | tuple[bytes, ...] = ()  # which nothing ends with
        self._shortest = 0
        self._token: Callable[[int], None] = request.token if request is not None else _uncounted
        client.on_gone = self.give_up
        client.on_pause = self._pause
        client.on_resume = self._resume

    # --- called by the connection to the back end -------------------------------------------------

    def on_head(self, status: int, headers: Headers) -> None:
        """Pass the head on, unless it has to wait for the energy."""
        if status >= 400 and self.refused is not None and self.refused(status):
            self._mode = _Mode.OVER
            return
        self._status = status
        if status == 200:
            self.accepted()
        kind = next((value for name, value in headers if name == b"content-type"), b"")
        encoded = any(name == b"content-encoding" for name, _ in headers)
        if self._request is not None and status == 200 and not encoded:
            if kind.startswith(b"text/event-stream"):
                self._mode = _Mode.STREAM
            elif kind.startswith(b"application/json"):
                self._mode = _Mode.WHOLE
                self._headers = headers
                return
        sized = any(name == b"content-length" for name, _ in headers)
        if self._mode is _Mode.STREAM:
            sized = False
            headers = [header for header in headers if header[0] != b"content-length"]
        bodiless = status in (204, 304) or self._client.method == "HEAD"
        self._client.start(status, passed_on(headers), chunked=not sized and not bodiless)

    def on_body(self, data: bytes) -> None:
        """Pass a piece on."""
        # A piece that ends like an earlier one that was nothing but text is nothing else, either.
        if data.endswith(self._plain_end) and not self._rest and not self._held:
            count = 1 if len(data) < 2 * self._shortest else data.count(b"\n\n")
            self._token(count)
            self._client.send(data)
        elif self._mode is _Mode.STREAM:
            self._take(data)
        elif self._mode is _Mode.RAW:
            self._client.send(data)
        elif self._mode is _Mode.WHOLE:
            self._collect(data)

    def on_end(self) -> None:
        """Complete the answer."""
        if self._mode is _Mode.OVER:
            return
        if self._mode is _Mode.WHOLE:
            self._send_whole()
        else:
            if self._mode is _Mode.STREAM:
                if self._rest:
                    self._held.append(self._rest)
                self._release()
            self._measure(failed=self._status >= 400)
            self._client.finish()
        self._end()

    def on_failure(self, error: BackendError) -> None:
        """Report the failure to the client, or break off as the back end did."""
        self._measure(failed=True)
        if self._client.started:
            if self._mode is _Mode.STREAM:  # what has come is the client's
                self._client.send(b"".join(self._held))
            self._client.abort()
        else:
            late = "sent nothing" in str(error) or "did not accept" in str(error)
            self._client.respond(
                504 if late else 502,
                [(b"content-type", b"application/json")],
                error_body(str(error), "backend_error", "backend_unavailable"),
            )
        self._end()

    def withdraw(self) -> Request | None:
        """Leave the client's request to another attempt; return it as it is measured."""
        request, self._request = self._request, None
        self._end()
        return request

    # --- called by the client's connection --------------------------------------------------------

    def give_up(self) -> None:
        """End the request, because its client has gone."""
        self.exchange.abort()
        self._measure(canceled=True)
        self._end()

    def _pause(self) -> None:
        if self.exchange.connection is not None:
            self.exchange.connection.pause()

    def _resume(self) -> None:
        if self.exchange.connection is not None:
            self.exchange.connection.resume()

    # --- a stream ---------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        """Cut what has arrived into events; pass on those before the end."""
        text = self._rest + data if self._rest else data
        separator = b"\r\n\r\n" if b"\r\n\r\n" in text else b"\n\n"
        *events, self._rest = text.split(separator)
        if len(self._rest) > MAX_EVENT:  # no event is as long: pass on what is not understood
            events.append(self._rest)
            separator, self._rest = b"", b""
        ready: list[bytes] = []
        for event in events:
            self._event(event, event + separator, ready)
        if ready:
            self._client.send(b"".join(ready))

    def _event(self, event: bytes, raw: bytes, ready: list[bytes]) -> None:
        content = event[5:].strip() if event.startswith(b"data:") else b""
        if content == DONE:
            self._held.append(raw)
            self._release(ready)
            return
        data = parsed(content) if content else None
        usage = Usage.of(data.get("usage")) if data is not None else None
        if usage is not None and not (data or {}).get("choices"):
            self._usage = usage
            self._held.append(raw)
            return
        if data is not None:
            if "error" in data and "choices" not in data:
                self._failed = True
            self._usage = usage or self._usage
            finishes = _finishes(data)
            if _has_text(data):
                self._token(1)
                if not finishes and usage is None and self._choices == 1:
                    self._learn_plain(raw)
            if not self._usage_asked and usage is None and b'"usage"' in raw:
                for null in _NULLS:
                    raw = raw.replace(null, b"")
            self._finishes += finishes
            if finishes and self._finishes >= self._choices:
                self._held.append(raw)
                return
        if self._held:  # the end was not the end
            ready += self._held
            self._held.clear()
        ready.append(raw)

    def _learn_plain(self, raw: bytes) -> None:
        """Learn how events end that are nothing but text, to recognize them without parsing."""
        at = raw.rfind(b'"finish_reason"')
        if at < 0 or b"null" not in raw[at:] or not raw.endswith(b"\n\n"):
            return
        if not self._usage_asked and b'"usage"' in raw:
            return  # has to be changed
        self._shortest = min(self._shortest or len(raw), len(raw))
        self._plain_end = raw[at:]

    def _release(self, ready: list[bytes] | None = None) -> None:
        """Pass on the end of a stream, with the energy."""
        energy = self._measure(failed=self._failed)
        held, self._held = self._held, []
        if energy is not None:
            held = self._with_energy(held, energy)
        if ready is not None:
            ready += held
        elif held:
            self._client.send(b"".join(held))

    def _with_energy(self, held: list[bytes], energy: dict[str, Any]) -> list[bytes]:
        """Return the end of a stream with the energy, and without usage that was not asked for."""
        found: list[bytes] = []
        stated = False
        hidden: dict[str, Any] = {}
        for raw in held:
            data = _data_of(raw)
            usage = data.get("usage") if data is not None else None
            if data is None or not isinstance(usage, dict):
                found.append(raw)
            elif not self._usage_asked and not data.get("choices"):
                hidden = data
            else:
                usage["energy"] = energy
                stated = True
                found.append(_as_event(data))
        if not stated and not self._usage_asked:
            for at, raw in enumerate(found):
                data = _data_of(raw)
                if data is not None:
                    # Servers state more in their last chunk (llama.cpp: timings), whichever it is.
                    more = {key: hidden[key] for key in hidden if key not in ("usage", *data)}
                    text = as_json({**more, "energy": energy})[1:]
                    found[at] = b"data: " + raw[5:].strip()[:-1] + b"," + text + b"\n\n"
                    break
        return found

    # --- a whole answer ---------------------------------------------------------------------------

    def _collect(self, data: bytes) -> None:
        self._whole.append(data)
        self._size += len(data)
        if self._size > MAX_WHOLE:  # pass it on without its energy
            self._mode = _Mode.RAW
            sized = any(name == b"content-length" for name, _ in self._headers)
            self._client.start(self._status, passed_on(self._headers), chunked=not sized)
            self._client.send(b"".join(self._whole))
            self._whole.clear()

    def _send_whole(self) -> None:
        body = b"".join(self._whole)
        data = parsed(body)
        usage = data.get("usage") if data is not None else None
        self._usage = Usage.of(usage)
        energy = self._measure()
        headers = passed_on(self._headers, b"content-length")
        if energy is not None:
            if energy["joules"] is not None:
                headers.append((ENERGY_HEADER, f"{energy['joules']:.6g}".encode()))
            if data is not None and isinstance(usage, dict):
                usage["energy"] = energy
                body = as_json(data)
        self._client.respond(self._status, headers, body)

    # --- the end ----------------------------------------------------------------------------------

    def _measure(self, *, failed: bool = False, canceled: bool = False) -> dict[str, Any] | None:
        """End the measurement; return the energy as it is stated to the client."""
        request, self._request = self._request, None
        if request is None:
            return None
        usage = self._usage or Usage()
        energy = request.end(
            generated_tokens=usage.generated_tokens,
            prompt_tokens=usage.prompt_tokens,
            failed=failed,
            canceled=canceled,
        )
        return stated_energy(energy)

    def _end(self) -> None:
        self._mode, self._plain_end = _Mode.OVER, ()
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()


def _nothing() -> None:
    """Do nothing."""


def _uncounted(count: int) -> None:
    """Count nothing."""


def stated_energy(energy: RequestEnergy) -> dict[str, Any]:
    """Return an energy as it is stated in `usage.energy`."""
    joules = energy.joules
    return {
        "joules": None if joules is None else float(f"{joules:.6g}"),
        "uncertainty": None if joules is None else float(f"{energy.uncertainty:.3g}"),
        "method": energy.method,
    }


def as_json(data: dict[str, Any]) -> bytes:
    """Return JSON as short as servers write it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a character that only an escape can state
        return json.dumps(data, separators=(",", ":")).encode()


def _as_event(data: dict[str, Any]) -> bytes:
    return b"data: " + as_json(data) + b"\n\n"


def _data_of(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object of an event; `None` if it has none."""
    return parsed(raw[5:]) if raw.startswith(b"data:") else None


def _choices_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    found = data.get("choices")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _finishes(data: dict[str, Any]) -> int:
    return sum(choice.get("finish_reason") is not None for choice in _choices_of(data))


def _has_text(data: dict[str, Any]) -> bool:
    """Return whether a chunk has something generated: text, reasoning, a call of a tool."""
    for choice in _choices_of(data):
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if any(value for name, value in delta.items() if name != "role"):
                return True
        elif choice.get("text"):
            return True
    return False
