"""A server for GPUs that do not exist: it takes vLLM's flags, and answers as a FakeServer does, with vLLM's metrics.

On several nodes the first waits for the others, which connect to it and stay.
"""

import asyncio
import json
import socket
import sys
import time

from tests.support.fake_server import FakeServer, answer
from tests.support.study import ROOT


async def serve(port: int) -> None:
    exposition = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
    server = FakeServer(metrics=exposition, pages={"/version": json.dumps({"version": "0.32.0"})})
    listening = await asyncio.start_server(lambda reader, writer: answer(server, reader, writer), "127.0.0.1", port)
    await listening.serve_forever()


def given(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1]


def meet() -> list[socket.socket]:
    """The connections to the other nodes, once they are there."""
    address = given("--master-addr"), int(given("--master-port"))
    if "--headless" not in sys.argv:
        listening = socket.create_server(address)
        return [listening.accept()[0] for _ in range(int(given("--nnodes")) - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    others = meet() if "--nnodes" in sys.argv else []
    if "--headless" in sys.argv:
        others[0].recv(1)
    else:
        asyncio.run(serve(int(given("--port"))))
