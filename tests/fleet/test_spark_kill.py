"""A query whose driver is killed at random moments says each verdict once, and the same one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'onlad[fleet]'")

from fleet_data import QUICK, SLOW, assert_said, devices, plain_loop, write

from onlad.errors import OnladError
from onlad.fleet.spark.session import need_java

HERE = Path(__file__).parent


def run(folder):
    """Start a driver in a process group of its own, so that its JVM dies with it."""
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, HERE / "drive.py", str(folder)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(driver):
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def commits(folder):
    found = list((folder / "checkpoint" / "commits").glob("[0-9]*"))
    return len(found)


@pytest.mark.parametrize(
    ("files", "rows", "kills"), [(6, 72, 2), pytest.param(24, 240, 10, marks=pytest.mark.slow)]
)
def test_a_killed_query_goes_on_where_it_was(tmp_path, files, rows, kills):
    try:
        need_java()
    except OnladError as error:
        pytest.skip(str(error))
    frame = devices(200, rows)
    write([part for _, part in frame.groupby(frame["time"] * files // rows)], tmp_path / "in")
    moments, killed = random.Random(0), 0
    driver = run(tmp_path)
    try:
        while driver.poll() != 0:
            if driver.poll() is not None:  # it gave up by itself: may it go on?
                assert SLOW in (tmp_path / "log").read_text(), (tmp_path / "log").read_text()[
                    -4000:
                ]
                driver = run(tmp_path)
            if killed < kills and commits(tmp_path) > killed * files // (kills + 1):
                time.sleep(moments.uniform(0, 2))
                if driver.poll() is None:
                    kill(driver)
                    killed += 1
                    driver = run(tmp_path)
            time.sleep(0.02)
    finally:
        if driver.poll() is None:
            kill(driver)
    assert killed == kills
    # Files that no commit names are those of killed writers: the log of the sink says which count.
    from onlad.fleet import spark as fleet

    with fleet.session(2, **QUICK) as spark:
        said = spark.read.parquet(f"{tmp_path}/said").toPandas()
    assert said["ready"].any()
    assert_said(said, plain_loop(frame))
