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
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from onlad import modelfile, persist
from onlad.errors import ModelFileError, OnladError
from onlad.monitor import Monitor
from onlad.serve.alarm import Alarm
from onlad.serve.frames import Mark
from onlad.serve.journal import Journal

if TYPE_CHECKING:
    from onlad.serve.watcher import Watcher

Alarms: TypeAlias = list[dict[str, Any]]  # as they stand in a file

FORMAT = 4
SNAPSHOTS = 20  # of each device
# The samples that a young monitor keeps take half the bytes so, and what it learned two thirds.
SUFFIX, LEVEL = ".onlad.gz", 1
_SNAPSHOT = re.compile(r"([0-9]{6,})-[0-9]{12}-[0-9]{3}\.onlad\.gz")
_SEALED = re.compile(rb'\{"sha256": "([0-9a-f]{64})", "state": (.*)\}\n', re.DOTALL)


class StateError(OnladError):
    """The state folder cannot be used; the message says why."""


class Said(NamedTuple):
    """What is published of the last sample. It survives a restart, as alarms do."""

    time: float
    ready: bool
    score: float
    threshold: float
    drifting: str | None = None


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
    alarm_file: str = ""
    since: int = 0  # the first segment of the journal with something that the model lacks
    windows: tuple[str, ...] = ()  # times of maintenance, besides those of the file


@dataclass
class OnDisk:
    """What the disk has of a device."""

    since: int = 0  # the first segment of the journal with what the model's file lacks, if known
    changes: int = -1  # of the watcher when its model was written; -1: it never was
    alarms: int = -1  # and of its alarms
    saved: Saved | None = None
    size: int = 0
    snapped: float | None = None  # when the newest snapshot was taken, by the monotonic clock


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
        if values["format"] != FORMAT:
            what = f"{self.folder} has format {values['format']}; this onlad reads {FORMAT}"
            way = "Use the onlad that wrote it, or move the folder away: devices then start anew"
            raise StateError(f"{what}. {way}")
        self.generation = values["generation"]
        watchers = tuple(_unpacked(entry) for entry in values["watchers"])
        marks = tuple(Mark(*mark) for mark in values["marks"])
        timed, outbox = base64.b64decode(values["timed"]), tuple(values["outbox"])
        return Checkpoint(values["segment"], watchers, outbox, marks, timed, values["next"], False)

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
            return []
        path = self.models / Path(saved.alarm_file).name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}. Restore it") from None
        return [Alarm(**alarm) for alarm in self._opened(path, data)]

    def save(self, saved: Saved, model: Monitor, alarms: Alarms | None) -> tuple[Saved, int]:
        """Write a model under a new name, and the alarms if they are new.

        Return what a checkpoint may say of them from now on, and the bytes that were written.
        """
        self.generation += 1
        name = f"{saved.number:06d}-{self.generation:010d}"
        data, said = _zipped(model), b"" if alarms is None else _sealed(alarms)
        modelfile.replace(self.models / f"{name}{SUFFIX}", data)
        if said:
            modelfile.replace(self.models / f"{name}.json", said)
            saved = saved._replace(alarm_file=f"{name}.json")
        return saved._replace(file=f"{name}{SUFFIX}"), len(data) + len(said)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint the one that is resumed from, and clear up behind it."""
        values = checkpoint._asdict() | {
            "timed": base64.b64encode(checkpoint.timed).decode(),
            "format": FORMAT,
            "generation": self.generation,
            "watchers": [saved._asdict() for saved in checkpoint.watchers],
        }
        modelfile.replace(self.folder / "state.json", _sealed(values))
        self.journal.forget(checkpoint.segment, self._archive)
        named = {name for saved in checkpoint.watchers for name in (saved.file, saved.alarm_file)}
        for path in self.models.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)

    def keep_forgotten(self, watcher: Watcher) -> str:
        """Write what a device is to a file of its own, to be put back from; return its name."""
        folder, name = self.folder / "forgotten", f"{watcher.number:06d}.json"
        folder.mkdir(exist_ok=True)
        model = base64.b64encode(persist.to_bytes(watcher.monitor)).decode()
        values = entry(watcher)._asdict() | {"alarms": alarms_of(watcher), "model": model}
        modelfile.replace(folder / name, _sealed(values))
        return name

    def snapshot(self, number: int, model: Monitor, file: str = "") -> str:
        """Keep a model as it is now; return the name of its file. Old ones of the device go.

        If it was just saved in `file`, that gets a second name, which takes no bytes.
        """
        folder, stem = self.folder / "snapshots", f"{number:06d}-{model.n_seen:012d}"
        folder.mkdir(exist_ok=True)
        # A model may change without a row: an alarm was marked as normal.
        same = [int(name[len(stem) + 1 :][:3]) for name in self.snapshots(number) if stem in name]
        name = f"{stem}-{max(same, default=-1) + 1:03d}{SUFFIX}"
        if file:
            with contextlib.suppress(OSError):  # a file system without links
                os.link(self.models / file, folder / name)
        if not (folder / name).exists():
            modelfile.replace(folder / name, _zipped(model))
        for old in self.snapshots(number)[:-SNAPSHOTS]:
            if old not in self._read_again:
                (folder / old).unlink(missing_ok=True)
        return name

    def snapshots(self, number: int) -> list[str]:
        """Return the snapshots of a device, the newest last."""
        return [path.name for path in snapshots(self.folder, number)]

    def digest(self, name: str) -> str:
        """Return the digest of a snapshot's file."""
        return hashlib.sha256((self.folder / "snapshots" / name).read_bytes()).hexdigest()

    def taken(self, name: str) -> float:
        """Return when a snapshot was taken, or 0 if it is gone."""
        with contextlib.suppress(OSError):
            return (self.folder / "snapshots" / name).stat().st_mtime
        return 0.0

    def newest_snapshots(self) -> dict[int, float]:
        """Return when the newest snapshot of each device was taken, by its number."""
        newest: dict[int, float] = {}
        for path in (self.folder / "snapshots").glob("*"):
            if match := _SNAPSHOT.fullmatch(path.name):
                number = int(match[1])
                newest[number] = max(self.taken(path.name), newest.get(number, 0.0))
        return newest

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

    def forgotten(self, name: str) -> tuple[Saved, Monitor, list[Alarm]]:
        """Return what a device was that has been forgotten."""
        path = self.folder / "forgotten" / Path(name).name
        try:
            values = self._opened(path, path.read_bytes())
            model = persist.from_bytes(base64.b64decode(values["model"]))
            saved, alarms = _unpacked(values), [Alarm(**alarm) for alarm in values["alarms"]]
        except (OSError, ValueError, KeyError, TypeError, OnladError) as error:
            raise StateError(f"{path} is no file of a forgotten device: {error}") from None
        if not isinstance(model, Monitor):
            raise StateError(f"{path} holds no monitor")
        return saved, model, alarms

    def forgotten_devices(self) -> set[tuple[str, str]]:
        """Return stream and device of each file of a forgotten device."""
        found = set()
        for path in (self.folder / "forgotten").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                values = json.loads(path.read_bytes())["state"]
                found.add((str(values["stream"]), str(values["device"])))
        return found

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
    try:
        data = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    model = persist.from_bytes(data, path)
    if not isinstance(model, Monitor):
        raise StateError(f"{path} holds no monitor. Restore it from a copy")
    return model


def alarms_of(watcher: Watcher) -> Alarms:
    """Return the alarms of a watcher, as a file has them."""
    return [asdict(alarm) for alarm in watcher.alarms]


def _sealed(values: Any) -> bytes:
    """Return the bytes of a file with a checksum of itself."""
    body = json.dumps(values).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    return b'{"sha256": "%b", "state": %b}\n' % (digest, body)


def _unpacked(values: dict[str, Any]) -> Saved:
    saved = Saved(**{name: values[name] for name in Saved._fields})
    last = saved.last and Said(*saved.last)
    return saved._replace(last=last, windows=tuple(saved.windows))


def entry(watcher: Watcher, file: str = "", alarm_file: str = "") -> Saved:
    """Return what a checkpoint says of a watcher as it is now, besides its alarms."""
    w = watcher
    now = (w.paused, w.lost, w.last, w.seen, w.silent)
    return Saved(
        w.number, w.stream.name, w.device, file, *now, alarm_file=alarm_file, windows=w.windows
    )
