"""What `zeus proxy` adds: to the time to the first token, and in processor time per token; as JSON.

A server that paces its tokens, a load of many streams, and in between nothing, a bare relay (which
passes bytes on, on the same kind of event loop, and knows nothing of HTTP) or the proxy, each a
process of its own. Processor time is that of the relay's process, all threads included. Tools take
turns; numbers are medians.

    python benchmarks/proxy.py [--streams 200] [--rate 20] [--seconds 10] [--turns 3]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time

TOKEN = (
    b'data: {"id":"chatcmpl-1234567890abcdef","object":"chat.completion.chunk",'
    b'"created":1700000000,"model":"paced","choices":[{"index":0,'
    b'"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n'
)
REQUEST = json.dumps(
    {"model": "paced", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"
TICKS = os.sysconf("SC_CLK_TCK")


# --- roles, each a process ------------------------------------------------------------------------


async def serve_paced(rate: float, seconds: float) -> None:
    """Serve streams of so many tokens a second; `x-tokens` asks for fewer."""

    def chunk(text: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(text), text)

    async def connection(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = re.search(rb"content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                if b"/v1/models" in head:
                    body = b'{"object":"list","data":[{"id":"paced"}]}'
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(body))
                    writer.write(b"content-type: application/json\r\n\r\n" + body)
                    continue
                few = re.search(rb"x-tokens: (\d+)", head)
                count = int(few[1]) if few else int(rate * seconds)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
                writer.write(b"transfer-encoding: chunked\r\n\r\n")
                for _ in range(count):
                    writer.write(chunk(TOKEN))
                    if not few:
                        await asyncio.sleep(1 / rate)
                writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def relay_bytes(to: int) -> None:
    """Pass on bytes, and nothing else."""

    class Up(asyncio.Protocol):
        def __init__(self, down):
            self.down = down

        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.down.transport.write(data)

        def connection_lost(self, exc):  # noqa: ARG002
            self.down.transport.close()

    class Down(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport, self.up, self.early = transport, None, []
            self.task = asyncio.ensure_future(self.connect())

        async def connect(self):
            loop = asyncio.get_running_loop()
            _, self.up = await loop.create_connection(lambda: Up(self), "127.0.0.1", to)
            self.up.transport.write(b"".join(self.early))

        def data_received(self, data):
            if self.up is None:
                self.early.append(data)
            else:
                self.up.transport.write(data)

        def connection_lost(self, exc):  # noqa: ARG002
            if self.up is not None:
                self.up.transport.close()

    server = await asyncio.get_running_loop().create_server(Down, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def load(port: int, streams: int) -> None:
    """Read many streams to their end; print tokens and how much later than in time they ended."""
    tokens = 0

    async def one(number: int) -> float:
        nonlocal tokens
        await asyncio.sleep(number * 0.002)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD % len(REQUEST) + b"\r\n" + REQUEST)
        began, tail = time.monotonic(), b""
        while b"[DONE]" not in tail:
            data = await reader.read(65536)
            if not data:
                raise ConnectionError("a stream ended early")
            tokens += data.count(b"data: {")
            tail = (tail + data)[-64:]
        writer.close()
        return time.monotonic() - began

    seconds = await asyncio.gather(*[one(number) for number in range(streams)])
    print(json.dumps({"tokens": tokens, "seconds": statistics.median(seconds)}))


async def first_tokens(port: int, count: int) -> None:
    """Print the median milliseconds to the first token, one request after the other."""
    found = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        began = time.perf_counter()
        writer.write(HEAD % len(REQUEST) + b"x-tokens: 3\r\n\r\n" + REQUEST)
        data = b""
        while b"data: {" not in data:
            data += await reader.read(65536)
        found.append(time.perf_counter() - began)
        while not data.endswith(b"0\r\n\r\n"):
            data += await reader.read(65536)
        await asyncio.sleep(0.005)
    writer.close()
    print(json.dumps({"milliseconds": 1e3 * statistics.median(found)}))


# --- measuring ------------------------------------------------------------------------------------


def started(*words: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def started_proxy(to: int) -> tuple[subprocess.Popen[str], int]:
    command = ["-m", "zeus", "proxy", "--listen", "127.0.0.1:0", "--to", f"http://127.0.0.1:{to}"]
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        text=True,
        env={"ZEUS_SIMULATE": "a100", **os.environ},
    )
    assert process.stdout is not None
    found = re.search(r":(\d+) to", process.stdout.readline())
    assert found is not None
    return process, int(found[1])


def answer(*words: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def processor_seconds(process: subprocess.Popen[str]) -> float:
    fields = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()  # noqa: PTH123, SIM115
    return (int(fields[11]) + int(fields[12])) / TICKS


def turn(kind: str, back: int, streams: int) -> dict[str, float]:
    if kind == "nothing":
        process, port = None, back
    else:
        process, port = started_proxy(back) if kind == "proxy" else started("relay", str(back))
    time.sleep(1.0)
    before = processor_seconds(process) if process else 0.0
    loaded = answer("load", str(port), str(streams))
    spent = processor_seconds(process) - before if process else 0.0
    first = answer("first", str(port), "200")
    if process:
        process.terminate()
        process.communicate()
    return {
        "microseconds_per_token": 1e6 * spent / loaded["tokens"],
        "stream_seconds": loaded["seconds"],
        "first_token_milliseconds": first["milliseconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    server, back = started("serve", str(chosen.rate), str(chosen.seconds))
    kinds = ("nothing", "relay", "proxy")
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    try:
        for _ in range(chosen.turns):
            for kind in kinds:
                found[kind].append(turn(kind, back, chosen.streams))
    finally:
        server.kill()
    medians = {
        kind: {name: statistics.median(each[name] for each in rows) for name in rows[0]}
        for kind, rows in found.items()
    }
    proxy, relay, nothing = medians["proxy"], medians["relay"], medians["nothing"]
    print(
        json.dumps(
            {
                "added_to_first_token_milliseconds": proxy["first_token_milliseconds"]
                - nothing["first_token_milliseconds"],
                "processor_time_per_token_ratio": proxy["microseconds_per_token"]
                / relay["microseconds_per_token"],
                "share_of_a_core": proxy["microseconds_per_token"]
                * 1e-6
                * chosen.streams
                * chosen.rate,
                "streams_later_by_percent": 100
                * (proxy["stream_seconds"] / nothing["stream_seconds"] - 1),
                "medians": medians,
                "turns": found,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    import uvloop

    role, *words = [*sys.argv[1:], ""]
    if role == "serve":
        uvloop.run(serve_paced(float(words[0]), float(words[1])))
    elif role == "relay":
        uvloop.run(relay_bytes(int(words[0])))
    elif role == "load":
        uvloop.run(load(int(words[0]), int(words[1])))
    elif role == "first":
        uvloop.run(first_tokens(int(words[0]), int(words[1])))
    else:
        main()
