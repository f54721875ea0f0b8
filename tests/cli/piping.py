"""The command as others run it: a process with pipes."""

import contextlib
import os
import select
import subprocess
import sys
import time

import numpy as np

ONLAD = [sys.executable, "-W", "error", "-m", "onlad"]
PATIENCE = 60  # seconds for an answer, on a loaded machine


def run(*args, **options):
    return subprocess.run(
        [*ONLAD, *map(str, args)],
        capture_output=True,
        text=not isinstance(options.get("input"), bytes),
        timeout=PATIENCE,
        check=False,
        **options,
    )


class Running:
    """A command that is given lines and asked for its answers while it runs."""

    def __init__(self, *args, stderr=subprocess.PIPE):
        self.process = subprocess.Popen(
            [*ONLAD, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        self._out = b""

    def give(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def line(self):
        """Return the next line of standard output, and fail if none comes."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._out:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            assert ready, "no answer"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, self.process.communicate()[1].decode()
            self._out += data
        line, self._out = self._out.split(b"\n", 1)
        return line.decode()

    def error_line(self):
        return self.process.stderr.readline().decode()

    def stop(self, number):
        self.process.send_signal(number)
        return self.end()

    def end(self):
        """Close the input, and return exit status, the rest of the output, and the words."""
        with contextlib.suppress(BrokenPipeError):
            out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (self._out + out).decode(), err.decode()


@contextlib.contextmanager
def running(*args, **options):
    command = Running(*args, **options)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
        for pipe in (command.process.stdin, command.process.stdout, command.process.stderr):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        command.process.wait()


def stream(rows=600, seed=0):
    """Return samples of three sensors with a fault near the end, and where it is."""
    rng = np.random.default_rng(seed)
    load = np.sin(np.arange(rows) / 20)
    X = np.column_stack([50 + 9 * load, 800 + 90 * load, 41 + 3 * load])
    X += rng.normal(size=X.shape) * [0.5, 5, 0.2]
    X[50::97, 1] = np.nan
    X[rows - 60 : rows - 50, 0] += 30
    return X


NAMES = ("flow", "power", "bearing")


def table(X, first=0, header=True):
    lines = [",".join(("time", *NAMES))] if header else []
    for t, row in enumerate(X.tolist(), first):
        cells = ["" if v != v else repr(v) for v in row]
        lines.append(",".join([f"2026-01-01T{t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}", *cells]))
    return "\n".join(lines) + "\n"
