"""The recipe for OPC UA, against a real server of OPC UA."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from piping import ONLAD, PATIENCE, stream

from brokers import free_port

asyncua = pytest.importorskip("asyncua", reason="pip install asyncua")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "recipes.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not in the package")


class Plc:
    """A server with two nodes, which change a hundred times per second."""

    def __init__(self):
        self.endpoint = f"opc.tcp://127.0.0.1:{free_port()}"
        self._ready, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self):
        server = asyncua.Server()
        await server.init()
        server.set_endpoint(self.endpoint)
        for name in ("a", "b"):
            await server.register_namespace(name)
        folder = await server.nodes.objects.add_object(3, "Pump")
        nodes = [
            await folder.add_variable(asyncua.ua.NodeId(f"Pump.{name}", 3), name, 0.0)
            for name in ("Flow", "Power")
        ]
        async with server:
            self._ready.set()
            for flow, power, _ in stream(100_000).tolist():
                for node, value in zip(
                    nodes, (flow, 0.0 if power != power else power), strict=True
                ):
                    await node.write_value(value)
                await asyncio.sleep(0.01)
                if self._stop.is_set():
                    return

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(PATIENCE)


def test_the_script_of_the_page_feeds_onlad(tmp_path):
    section = PAGE.read_text().partition("## OPC UA")[2]
    script = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    assert re.search(r"`python plc.py \| onlad watch - --model plc.onlad`", section)
    with Plc() as plc:
        script = re.sub(r'ENDPOINT = ".*?"', f'ENDPOINT = "{plc.endpoint}"', script)
        (tmp_path / "plc.py").write_text(script.replace("EVERY = 1.0", "EVERY = 0.001"))
        with subprocess.Popen(
            [sys.executable, "plc.py"], cwd=tmp_path, stdout=subprocess.PIPE
        ) as reader:
            command = [*ONLAD, "watch", "-", "--all", "--output", "jsonl", "--model", "plc.onlad"]
            with subprocess.Popen(
                command, cwd=tmp_path, stdin=reader.stdout, stdout=subprocess.PIPE, text=True
            ) as watch:
                said = [json.loads(watch.stdout.readline()) for _ in range(300)]
                reader.terminate()
                watch.communicate(timeout=PATIENCE)
    assert set(said[-1]["expected"]) == {"flow", "power"}
    assert said[-1]["threshold"] is not None
    assert said[-1]["time"] > said[0]["time"] > 1.7e9
