"""The page on microcontrollers: its commands run as they stand, in order."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "microcontroller.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the docs are not in the package")
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
    reason="needs gcc-arm-none-eabi and qemu-system-arm; .ci/run installs them",
)
def test_the_commands_of_the_page_do_what_it_says(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = re.search(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    assert printed in done.stdout + done.stderr
    assert (tmp_path / "fitted" / "onlad_model.h").is_file()
    assert "PortableMonitor" in done.stdout
