"""Checkpoints: the models and what else must outlive the process, whole or not at all.

A state folder has ``state.json``, the models and files of alarms that it names, and the journal
from the segment that it names. A model may be older than the checkpoint: the journal has what came
after it. ``state.json`` and files of alarms have a checksum of themselves. ``state.json`` is
replaced in one step when everything it names is on the disk, so there is always exactly one
checkpoint.

No name from the network is a part of a path: a model's file is named by numbers.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import re
import time
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from onlad import modelfile, persist
from onlad.errors import ModelFileError, OnladError
from onlad.monitor import Monitor
from onlad.serve.alarm import Alarm
from onlad.serve.frames import Mark
from onlad.serve.journal import Journal
from onlad.serve.watcher import Said, Watcher

FORMAT = 3
SNAPSHOTS = 20  # of each device
OLDEST = 2  # format that is read: it has the alarms in state.json
# The samples that a young monitor keeps take half the bytes so, and what it learned two thirds.
SUFFIX, LEVEL = ".onlad.gz", 1
_SNAPSHOT = re.compile(r"([0-9]{6,}-[0-9]{12})-([0-9]{3})\.onlad(\.gz)?")
_SEALED = re.compile(rb'\{"sha256": "([0-9a-f]{64})", "state": (.*)\}\n', re.DOTALL)


class StateError(OnladError):
    """The state folder cannot be used; the message says why."""


class Saved(NamedTuple):
    """One watcher in a checkpoint."""

    number: int
    stream: str
    device: str
    file: str
    paused: bool
    lost: int
    last: Said | None
    seen: float
    silent: bool
    alarms: list[Alarm]  # empty when they are in a file
    alarm_file: str = ""
    since: int = 0  # the first segment of the journal with something that the model lacks
    windows: tuple[str, ...] = ()  # times of maintenance, besides those of the file


class Checkpoint(NamedTuple):
    """What a service resumes from; at its very first start there is nothing in it."""

    segment: int = 1  # of the journal, the first that is not covered
    watchers: tuple[Saved, ...] = ()
    outbox: tuple[dict[str, Any], ...] = ()  # alarms that are not delivered yet
    marks: tuple[Mark, ...] = ()
    timed: bytes = b""  # of `Marks`
    next: int = 1  # number of the next device
    is_first: bool = True


class Store:
    """A state folder, locked: two services would overwrite each other's models."""

    def __init__(self, folder: Path, archive: int = 0) -> None:
        self.folder, self.models = folder, folder / "models"
        self._archive = archive  # bytes of the journal that are kept for a replay
        try:
            self.models.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise StateError(f"{folder} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StateError(f"{folder} is in use by another onlad serve") from None
        for left in folder.rglob(".onlad-*.tmp"):  # by a crash while a file was replaced
            left.unlink()
        self.journal = Journal(folder / "journal")
        self.generation = 0  # grows with each file, so that no name is taken twice
        self._read_again: set[str] = set()  # snapshots that a replay of the journal may need

    def read(self) -> Checkpoint:
        """Return the last checkpoint."""
        path = self.folder / "state.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            # A state without its first segment is one whose state.json was removed.
            segments = self.journal.segments()
            if segments[:1] != [1] and (segments or any(self.models.iterdir())):
                raise StateError(f"{path} is missing. Restore it from a copy") from None
            return Checkpoint()
        return self.parse(self._opened(path, data))

    def _opened(self, path: Path, data: bytes) -> Any:
        """Return what is in a file with a checksum of itself."""
        sealed = _SEALED.fullmatch(data)
        if sealed is None or hashlib.sha256(sealed[2]).hexdigest().encode() != sealed[1]:
            way = f"Restore it from a copy, or take what can be read: onlad repair {self.folder}"
            raise StateError(f"{path} is damaged: its checksum is not that of its bytes. {way}")
        return json.loads(sealed[2])

    def parse(self, values: dict[str, Any]) -> Checkpoint:
        """Return the checkpoint in the values of ``state.json``."""
        if not OLDEST <= values["format"] <= FORMAT:
            what = f"{self.folder} has format {values['format']}; this onlad reads {FORMAT}"
            raise StateError(what)
        self.generation = values["generation"]
        watchers = [_unpacked(entry) for entry in values["watchers"]]
        marks = [Mark(*mark) for mark in values["marks"]]
        point = (values["segment"], tuple(watchers), tuple(values["outbox"]), tuple(marks))
        timed, following = base64.b64decode(values["timed"]), values.get("next", 1)
        return Checkpoint(*point, timed, following, is_first=False)

    def model(self, saved: Saved) -> Monitor:
        """Return the model of a watcher; never a new one in place of a damaged one."""
        path = self.models / Path(saved.file).name
        way = f"Restore it from a copy, or start the device anew: onlad repair {self.folder}"
        try:
            return monitor(path)
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}. {way}") from None
        except ModelFileError as error:
            raise ModelFileError(f"{error}. {way}") from None

    def alarms(self, saved: Saved) -> list[Alarm]:
        """Return the alarms of a watcher."""
        if not saved.alarm_file:
            return saved.alarms
        path = self.models / Path(saved.alarm_file).name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}. Restore it") from None
        return [Alarm(**alarm) for alarm in self._opened(path, data)]

    def save(self, saved: Saved, model: Monitor, is_new: bool) -> tuple[Saved, int]:
        """Write a model under a new name, and the alarms if they are new.

        Return what a checkpoint may say of them from now on, and the bytes that were written.
        """
        self.generation += 1
        name = f"{saved.number:06d}-{self.generation:010d}"
        data = _zipped(model)
        modelfile.replace(self.models / f"{name}{SUFFIX}", data)
        size = len(data)
        if is_new:
            alarms = _sealed([asdict(alarm) for alarm in saved.alarms])
            modelfile.replace(self.models / f"{name}.json", alarms)
            saved, size = saved._replace(alarm_file=f"{name}.json"), size + len(alarms)
        return saved._replace(file=f"{name}{SUFFIX}", alarms=[]), size

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint the one that is resumed from, and clear up behind it."""
        values = {
            "segment": checkpoint.segment,
            "outbox": checkpoint.outbox,
            "marks": checkpoint.marks,
            "timed": base64.b64encode(checkpoint.timed).decode(),
            "next": checkpoint.next,
            "format": FORMAT,
            "generation": self.generation,
            "watchers": [_packed(saved) for saved in checkpoint.watchers],
        }
        modelfile.replace(self.folder / "state.json", _sealed(values))
        self.journal.forget(checkpoint.segment, self._archive)
        named = {saved.file for saved in checkpoint.watchers}
        named |= {saved.alarm_file for saved in checkpoint.watchers}
        for path in self.models.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)

    def keep_forgotten(self, saved: Saved, model: Monitor) -> str:
        """Write what a device was to a file of its own, to be put back from; return its name."""
        folder, name = self.folder / "forgotten", f"{saved.number:06d}.json"
        folder.mkdir(exist_ok=True)
        data = base64.b64encode(persist.to_bytes(model)).decode()
        modelfile.replace(folder / name, _sealed(_packed(saved) | {"model": data}))
        return name

    def snapshot(self, number: int, model: Monitor) -> str:
        """Keep a model as it is now; return the name of its file. Old ones of the device go."""
        name = self._next_snapshot(number, model.n_seen)
        modelfile.replace(self.folder / "snapshots" / name, _zipped(model))
        self._drop_snapshots(number)
        return name

    def snap_saved(self, saved: Saved, seen: int) -> str:
        """Keep the file of a model that was just saved as a snapshot: that takes no bytes."""
        name = self._next_snapshot(saved.number, seen)
        file, kept = self.models / saved.file, self.folder / "snapshots" / name
        try:
            os.link(file, kept)
        except OSError:  # a file system without links
            modelfile.replace(kept, file.read_bytes())
        self._drop_snapshots(saved.number)
        return name

    def _next_snapshot(self, number: int, seen: int) -> str:
        """Return a name. A model may change without a row: an alarm was marked as normal."""
        (self.folder / "snapshots").mkdir(exist_ok=True)
        stem = f"{number:06d}-{seen:012d}"
        found = [_SNAPSHOT.fullmatch(name) for name in self.snapshots(number)]
        same = [int(match[2]) for match in found if match is not None and match[1] == stem]
        return f"{stem}-{max(same, default=-1) + 1:03d}{SUFFIX}"

    def _drop_snapshots(self, number: int) -> None:
        for old in self.snapshots(number)[:-SNAPSHOTS]:
            if old not in self._read_again:
                (self.folder / "snapshots" / old).unlink(missing_ok=True)

    def snapshots(self, number: int) -> list[str]:
        """Return the snapshots of a device, the newest last."""
        return [path.name for path in snapshots(self.folder, number)]

    def digest(self, name: str) -> str:
        """Return the digest of a snapshot's file."""
        return hashlib.sha256((self.folder / "snapshots" / name).read_bytes()).hexdigest()

    def age(self, name: str) -> float:
        """Return the seconds since a snapshot was taken."""
        try:
            return time.time() - (self.folder / "snapshots" / name).stat().st_mtime
        except OSError:
            return float("inf")

    def snapshot_ages(self) -> dict[int, float]:
        """Return the seconds since the newest snapshot of each device, by its number."""
        ages: dict[int, float] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.folder / "snapshots"):
                if match := _SNAPSHOT.fullmatch(name):
                    number, age = int(match[1][:-13]), self.age(name)
                    ages[number] = min(age, ages.get(number, age))
        return ages

    def snapped(self, number: int, name: str) -> Monitor:
        """Return the model of a snapshot of a device."""
        if name not in self.snapshots(number):
            raise StateError(f"there is no snapshot {name!r:.80} of the device")
        try:
            model = monitor(self.folder / "snapshots" / name)
        except (OSError, OnladError) as error:
            raise StateError(f"the snapshot cannot be read: {error}") from None
        self._read_again.add(name)
        return model

    def forgotten(self, name: str) -> tuple[Saved, Monitor]:
        """Return what a device was that has been forgotten."""
        path = self.folder / "forgotten" / Path(name).name
        try:
            values = self._of_forgotten(path)
            model = persist.from_bytes(base64.b64decode(values.pop("model")))
            saved = _unpacked(values)
        except (OSError, ValueError, KeyError, TypeError, OnladError) as error:
            raise StateError(f"{path} is no file of a forgotten device: {error}") from None
        if not isinstance(model, Monitor):
            raise StateError(f"{path} holds no monitor")
        return saved, model

    def forgotten_devices(self) -> set[tuple[str, str]]:
        """Return stream and device of each file of a forgotten device."""
        found = set()
        for path in (self.folder / "forgotten").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                values = json.loads(path.read_bytes())
                values = values.get("state", values)
                found.add((str(values["stream"]), str(values["device"])))
        return found

    def _of_forgotten(self, path: Path) -> dict[str, Any]:
        """Return what is in a file of a forgotten device; older ones have no checksum."""
        data = path.read_bytes()
        sealed = _SEALED.match(data)
        values: dict[str, Any] = self._opened(path, data) if sealed else json.loads(data)
        return values

    def close(self) -> None:
        """Let another service have the folder."""
        self.journal.close()
        os.close(self._lock)


def snapshots(folder: Path, number: int) -> list[Path]:
    """Return the snapshots of a device in a state folder, the newest last."""
    paths = (folder / "snapshots").glob(f"{number:06d}-*")
    return sorted(path for path in paths if _SNAPSHOT.fullmatch(path.name))


def peek(folder: Path) -> list[Saved]:
    """Return the devices of the last checkpoint, if there is one; a service may use the folder.

    A model of them may be replaced, and its file removed, at any moment.
    """
    try:
        watchers = json.loads((folder / "state.json").read_bytes())["state"]["watchers"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [_unpacked(each)._replace(file=Path(each["file"]).name) for each in watchers]


def _zipped(model: Monitor) -> bytes:
    """Return the bytes of a file of a model."""
    return gzip.compress(persist.to_bytes(model), LEVEL, mtime=0)


def monitor(path: Path) -> Monitor:
    """Return the monitor in a file."""
    data = path.read_bytes()
    try:  # before files were packed their names had no such end
        data = gzip.decompress(data) if path.name.endswith(SUFFIX) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    model = persist.from_bytes(data, path)
    if not isinstance(model, Monitor):
        raise StateError(f"{path} holds no monitor. Restore it from a copy")
    return model


def alarms_of(watcher: Watcher) -> list[Alarm]:
    """Return a copy of the alarms of a watcher."""
    return [Alarm(**asdict(alarm)) for alarm in watcher.alarms]


def _sealed(values: Any) -> bytes:
    """Return the bytes of a file with a checksum of itself."""
    body = json.dumps(values).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    return b'{"sha256": "%b", "state": %b}\n' % (digest, body)


def _packed(saved: Saved) -> dict[str, Any]:
    return saved._asdict() | {"alarms": [asdict(alarm) for alarm in saved.alarms]}


def _unpacked(values: dict[str, Any]) -> Saved:
    last = values["last"] and Said(*values["last"])
    alarms = [Alarm(**alarm) for alarm in values["alarms"]]
    windows = tuple(values.get("windows", ()))
    return Saved(**values | {"last": last, "alarms": alarms, "windows": windows})


def entry(watcher: Watcher, file: str = "", alarm_file: str = "") -> Saved:
    """Return what a checkpoint says of a watcher as it is now, besides its alarms."""
    return Saved(
        number=watcher.number,
        stream=watcher.stream.name,
        device=watcher.device,
        file=file,
        paused=watcher.paused,
        lost=watcher.lost,
        last=watcher.last,
        seen=watcher.seen,
        silent=watcher.silent,
        alarms=[],
        alarm_file=alarm_file,
        windows=watcher.windows,
    )
