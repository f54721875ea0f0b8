"""Files on the disk: whole or not at all, whatever happens while one is written."""

import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from model_files import trained
from onlad.detector import Detector
from onlad.persist import load, save


def test_what_cannot_be_read_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        save(trained(), tmp_path / "none" / "m")
    with pytest.raises(IsADirectoryError):
        save(trained(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_a_new_file_or_of_the_old_one(tmp_path):
    path = tmp_path / "m"
    before = os.umask(0o027)
    try:
        save(trained(), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        for mode in (0o600, 0o444, 0o664):
            path.chmod(mode)
            save(trained(), path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real/m")
    save(trained(), link)
    assert link.is_symlink()
    assert [p.name for p in (tmp_path / "real").iterdir()] == ["m"]
    load(link)


def test_a_name_without_a_folder_is_in_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(trained(), "m")
    load("m")


def test_a_long_name_can_be_saved(tmp_path):
    save(trained(), tmp_path / ("m" * 255))


@pytest.mark.parametrize("broken", ["replace", "fsync", "fchmod"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, broken, error):
    path = tmp_path / "m"
    save(trained(start="nothing"), path)
    before = path.read_bytes()

    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(error):
            save(trained(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "m"
    save(trained(start="nothing"), path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(trained(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_the_order_is_write_sync_replace_sync(tmp_path, monkeypatch):
    path, done = tmp_path / "m", []
    sync, replace = os.fsync, os.replace

    def watched_sync(descriptor):
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append("sync folder" if folder else f"sync {os.fstat(descriptor).st_size}")
        sync(descriptor)

    def watched_replace(source, target):
        assert os.path.dirname(source) == os.path.dirname(target)
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(trained(), path)
    assert done == [f"sync {path.stat().st_size}", "replace", "sync folder"]


def test_many_may_save_to_one_path_at_once(tmp_path):
    path = tmp_path / "m"
    detectors = [Detector(n_hidden=8, seed=seed) for seed in range(4)]
    save(detectors[0], path)
    failures = []

    def work(detector):
        try:
            for _ in range(20):
                save(detector, path)
                assert load(path).seed in range(4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(detector,)) for detector in detectors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


# Nothing but writing, so that a kill falls into it: the bytes are made before, and fsync, which
# matters to a power cut and not to a kill, is left out. Megabytes, for a write that lasts.
SAVER = """
import os, sys
import numpy as np
from onlad import modelfile, persist
from onlad.detector import Detector

files = []
for seed in range(2):
    detector = Detector(n_hidden=64, seed=seed)
    detector.learn_one(np.zeros(4096))
    files.append(modelfile.encode(persist._described(detector)))
os.fsync = lambda descriptor: None
persist.save(detector, sys.argv[1])
print("saved", flush=True)
while True:
    for data in files:
        modelfile.replace(sys.argv[1], data)
"""


def killed_while_saving(path, times):
    """Kill a process that does nothing but save, `times` times; the file must load each time."""
    rng = np.random.default_rng(0)
    command = [sys.executable, "-c", SAVER, str(path)]
    for _ in range(times):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as saver:
            assert saver.stdout.readline() == b"saved\n"
            time.sleep(rng.uniform(0.0, 0.1))
            saver.kill()
        load(path)
    rest = [p.name for p in path.parent.iterdir() if p != path]
    assert all(re.fullmatch(r"\.onlad-[0-9a-f]{16}\.tmp", name) for name in rest)


def test_a_killed_save_leaves_a_file_that_loads(tmp_path):
    killed_while_saving(tmp_path / "m", 5)


@pytest.mark.slow
def test_many_killed_saves_leave_a_file_that_loads(tmp_path):
    killed_while_saving(tmp_path / "m", 60)
