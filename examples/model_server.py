"""Enrichment by a model server: the mood of each review, requested in batches over HTTP.

    python examples/model_server.py --output moods

A model is often a separate service, with its own GPUs and releases. Each answer takes some time. So
`map_async` keeps many requests in flight. `batch=` puts reviews together, because a model answers thirty-two
of them in little more time than a few. A failed request is retried. Each checkpoint holds the reviews in
flight, and they are sent again after a failure. The server here is a toy that this program starts on
loopback; it counts friendly and unfriendly words. `--url` names another server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from penstock import (
    Checkpointing,
    FileSink,
    FunctionContext,
    GeneratorSource,
    PenstockError,
    Retry,
    StreamEnvironment,
    async_call,
)

FRIENDLY, UNFRIENDLY = {"good", "great", "lovely"}, {"bad", "poor", "awful"}
WORDS = ("good", "bad", "tea", "great", "awful", "shop", "poor", "lovely", "bread", "slow", "warm")


def review(i: int) -> dict[str, Any]:
    """The i-th review."""
    return {"review": i, "text": " ".join(WORDS[(i * step) % len(WORDS)] for step in (1, 3, 5, 7))}


def mood_of(text: str) -> str:
    """Return the answer of the toy model."""
    words = text.split()
    balance = sum(word in FRIENDLY for word in words) - sum(word in UNFRIENDLY for word in words)
    return "happy" if balance > 0 else "angry" if balance < 0 else "calm"


class Mood:
    """Asks the model server for the mood of a batch of reviews.

    Each subtask makes one object. `open` and `close` run on its event loop, as the calls do.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, context: FunctionContext) -> None:
        """Open the connections, which all calls share."""
        self.session = aiohttp.ClientSession(raise_for_status=True)

    async def __call__(self, reviews: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the reviews with their moods, in the same order."""
        question = {"texts": [review["text"] for review in reviews]}
        headers = {"Idempotency-Key": async_call().idempotency_key}
        async with self.session.post(self.url, json=question, headers=headers) as response:
            answer = await response.json()
        return [{**review, "mood": mood} for review, mood in zip(reviews, answer["moods"], strict=True)]

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()


async def serve() -> None:
    """Serve the toy model on a free port on loopback; print the URL first."""

    async def answer(request: web.Request) -> web.Response:
        question = await request.json()
        await asyncio.sleep(0.02)  # the time of a forward pass
        return web.json_response({"moods": [mood_of(text) for text in question["texts"]]})

    application = web.Application()
    application.router.add_post("/moods", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/moods", flush=True)
    await asyncio.Event().wait()


@contextmanager
def toy_server() -> Iterator[str]:
    """Run a model server in a process of its own; yields its URL."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def run(url: str, output: Path, reviews: int) -> None:
    """Run the job."""
    env = StreamEnvironment(
        "moods",
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    (
        env.from_source("reviews", GeneratorSource(review, count=reviews))
        .map_async(
            Mood,
            fn_constructor_args=(url,),
            id="moods",
            batch=32,
            linger=0.01,
            capacity=16,
            timeout=30,
            retry=Retry(attempts=5, on=(aiohttp.ClientError,)),
            ordered=False,
        )
        .sink("scored", FileSink.json(output))
    )
    env.run()


def moods_in(output: Path) -> list[dict[str, Any]]:
    """The reviews in the committed files, sorted by number."""
    lines = [line for file in output.glob("part-*") for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(map(json.loads, lines), key=lambda row: row["review"])


def main() -> int:
    """Run the job and print how many reviews have each mood."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", metavar="DIR", help="folder that results are committed to")
    parser.add_argument("--reviews", type=int, default=20_000, metavar="N")
    parser.add_argument("--url", help="URL of a running model server")
    parser.add_argument("--serve", action="store_true", help="run only the toy server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return 0
    if options.output is None:
        parser.error("--output is required")
    output = Path(options.output).resolve()
    try:
        if options.url is not None:
            run(options.url, output, options.reviews)
        else:
            with toy_server() as url:
                run(url, output, options.reviews)
    except PenstockError as error:
        print(f"model_server: {error}", file=sys.stderr)
        return 1
    for mood, count in sorted(Counter(row["mood"] for row in moods_in(output)).items()):
        print(f"{mood}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
