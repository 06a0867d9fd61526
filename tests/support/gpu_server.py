"""A server for GPUs that do not exist: it takes vLLM's flags, and answers as a FakeServer does, with vLLM's metrics."""

import asyncio
import json
import sys

from tests.support.fake_server import FakeServer, answer
from tests.support.study import ROOT


async def serve(port: int) -> None:
    exposition = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
    server = FakeServer(metrics=exposition, pages={"/version": json.dumps({"version": "0.32.0"})})
    listening = await asyncio.start_server(lambda reader, writer: answer(server, reader, writer), "127.0.0.1", port)
    await listening.serve_forever()


def given(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1]


if __name__ == "__main__":
    asyncio.run(serve(int(given("--port"))))
