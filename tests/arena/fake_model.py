"""A fake OpenAI-compatible server: `python -m tests.arena.fake_model '{"words": 40}'`.

Prints its URL. Ends when its standard input is closed. The words of its answers, their pace, the
chunks that they come in, their energy, and how it fails are given as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEFAULTS: dict[str, Any] = {
    "name": "fake",
    "words": 30,  # of an answer; or a list to choose from
    "word": "word",
    "seconds": 0.0,  # per word
    "chunk": 1,  # words in a chunk
    "delay": 0.0,  # seconds to the first
    "joules": None,  # energy of an answer
    "tokens": None,  # as many as words, by default
    "fail_after": None,  # words, then the connection breaks
    "hang_after": None,  # words, then nothing more comes
    "status": 200,
    "text": None,  # the whole answer, instead of words
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    options: dict[str, Any] = DEFAULTS

    def log_message(self, *_about: object) -> None:
        pass

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": self.options["name"]}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        how = self.options
        if how["status"] != 200:
            self._json({"error": {"message": f"I am {how['name']}"}}, how["status"])
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(how["delay"])
        count = how["words"] if isinstance(how["words"], int) else random.choice(how["words"])
        words = [f"{how['word']}{n} " for n in range(count)]
        if how["text"] is not None:
            words = [how["text"]]
        for at in range(0, len(words), how["chunk"]):
            piece = words[at : at + how["chunk"]]
            if how["fail_after"] is not None and at >= how["fail_after"]:
                self.close_connection = True
                return
            if how["hang_after"] is not None and at >= how["hang_after"]:
                time.sleep(600)
            time.sleep(how["seconds"] * len(piece))
            self._event([{"index": 0, "delta": {"content": "".join(piece)}}])
        usage: dict[str, Any] = {"prompt_tokens": 5}
        usage["completion_tokens"] = how["tokens"] or len(words)
        if how["joules"] is not None:
            energy = {"joules": how["joules"], "uncertainty": how["joules"] / 20, "method": "test"}
            usage["energy"] = energy
        self._event([], usage=usage)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, choices: list[dict[str, Any]], **more: object) -> None:
        self._chunk(f"data: {json.dumps({'choices': choices, **more})}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, data: object, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(options: dict[str, Any]) -> None:
    Handler.options = {**DEFAULTS, **options}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
