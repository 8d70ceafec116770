"""A small OpenAI-compatible server whose tokens come when asked for, as a process of its own.

A request's field `fake` says how it is answered: `tokens`, `first` and `interval` in seconds,
`status` for an error, `garbage_after`, `close_after` and `die_after` in tokens, `pause_after`,
`flood` in bytes, `word` for each token, `last` for what the very last chunk states
besides. `/seen` lists the requests and how each ended. Run as a program, it prints its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path


class ModelServer:
    """The server, running.

    Args:
        models: Names of its models.
        port: Its port; 0 for a free one.
    """

    def __init__(self, *models: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(port), *(models or ("tiny",))],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+:(\d+)", self.process.stdout.readline())
        assert found is not None
        self.url, self.port = found[0], int(found[1])

    def stop(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Service:
    def __init__(self, models: list[str]) -> None:
        self.models = models
        self.seen: list[dict] = []

    async def connection(self, reader, writer) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *lines = head.decode("latin-1").split("\r\n")
                method, target, _ = line.split(" ")
                headers = dict(each.lower().split(": ", 1) for each in lines if ": " in each)
                raw = dict(each.split(": ", 1) for each in lines if ": " in each)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                record = {"method": method, "target": target, "headers": raw, "end": "open"}
                if not target.startswith("/seen"):
                    self.seen.append(record)
                await self.answer(target, body, reader, writer, record)
        writer.close()

    async def answer(self, target, body, reader, writer, record) -> None:
        path = target.partition("?")[0]
        if path == "/seen":
            reply(writer, 200, self.seen)
        elif path == "/v1/models":
            data = [{"id": name, "object": "model"} for name in self.models]
            reply(writer, 200, {"object": "list", "data": data})
            record["end"] = "complete"
        elif path in ("/v1/chat/completions", "/v1/completions"):
            try:
                asked = dict(json.loads(body))
            except ValueError:
                reply(writer, 400, {"error": {"message": "this is no JSON object"}})
                return
            record["body"] = asked
            await self.generate(asked, path.endswith("chat/completions"), reader, writer, record)
        else:
            reply(writer, 200 if path == "/echo" else 404, {"path": target, "bytes": len(body)})
            record["end"] = "complete"

    async def generate(self, asked, chat, reader, writer, record) -> None:
        how = asked.get("fake", {})
        if how.get("strict") and "stream_options" in asked:
            reply(writer, 400, {"error": {"message": "stream_options is not known"}})
            return
        if "status" in how:
            error = {"message": how.get("message", "no"), "type": "fake"}
            reply(writer, how["status"], {"error": error}, {"retry-after": "7"})
            record["end"] = "complete"
            return
        count = how.get("tokens", asked.get("max_tokens", 5))
        usage = {
            "prompt_tokens": how.get("prompt", 7),
            "completion_tokens": count,
            "total_tokens": 7 + count,
        }
        watch = asyncio.ensure_future(_closed(reader))
        working = asyncio.ensure_future(
            self.tokens(asked, how, chat=chat, usage=usage, writer=writer, record=record)
        )
        await asyncio.wait([watch, working], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():  # the client has gone
            working.cancel()
            record["end"] = "canceled"
            raise ConnectionError
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        try:
            await working
        except ConnectionError:
            record["end"] = "closed" if record["end"] == "closed" else "canceled"
            raise

    async def tokens(self, asked, how, *, chat, usage, writer, record) -> None:
        count, model = usage["completion_tokens"], asked.get("model", "tiny")
        interval = how.get("interval", 0.0)
        await asyncio.sleep(how.get("first", 0.0))
        name = "chat.completion" if chat else "text_completion"
        whole = {"id": "x-1", "object": name, "created": 1, "model": model}
        if not asked.get("stream"):
            await asyncio.sleep(interval * (count - 1))
            text = "".join(how.get("word", f"word{n} ") for n in range(count))
            part = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choice = {"index": 0, "finish_reason": "stop", **part}
            reply(writer, 200, {**whole, "choices": [choice], "usage": usage})
            record["end"] = "complete"
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"x-engine: fake\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        shape = {**whole, "object": name + (".chunk" if chat else "")}

        def event(data) -> None:
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            frame = b"data: " + text + b"\n\n"
            writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))

        if chat:
            event({**shape, "choices": [{"index": 0, "delta": {"role": "assistant"}}]})
        several = range(how.get("choices", 1))
        for number in range(count):
            if number:
                await asyncio.sleep(interval)
            if number == how.get("garbage_after"):
                event(b"{not json")
            if number == how.get("close_after"):
                record["end"] = "closed"
                writer.transport.abort()
                raise ConnectionError
            if number == how.get("die_after"):
                os.kill(os.getpid(), signal.SIGKILL)
            if number == how.get("pause_after"):
                await asyncio.sleep(3600)
            text = how.get("word", f"word{number} ") + "x" * how.get("flood", 0)
            part = {"delta": {"content": text}} if chat else {"text": text}
            for at in several:
                event({**shape, "choices": [{"index": at, **part, "finish_reason": None}]})
            if how.get("flood"):
                record["sent"] = number
                await writer.drain()
        part = {"delta": {"content": ""}} if chat else {"text": ""}
        states = (asked.get("stream_options") or {}).get("include_usage") and how.get("usage", True)
        last = how.get("last", {})
        for at in several:
            choice = {"index": at, "finish_reason": "stop", **part}
            event({**shape, "choices": [choice], **({} if states else last)})
        if states:
            event({**shape, "choices": [], "usage": usage, **last})
        event(b"[DONE]")
        writer.write(b"0\r\n\r\n")
        record["end"] = "complete"
        await writer.drain()


async def _closed(reader) -> None:
    """Wait for the end of what a client sends, and take nothing of its next request."""
    while not (reader.at_eof() or reader.exception()):
        await asyncio.sleep(0.005)


def reply(writer, status: int, data: object, headers: dict | None = None) -> None:
    body = json.dumps(data).encode()
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    writer.write(
        f"HTTP/1.1 {status} Fake\r\ncontent-type: application/json\r\n{extra}"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def main(port: int, models: list[str]) -> None:
    service = _Service(models)
    server = await asyncio.start_server(
        service.connection, "127.0.0.1", port, limit=2**26, backlog=1000
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
