"""The audit trail: a chain that shows each change of it."""

import hashlib
import json
import os

import pytest

from onlad.cli import main
from onlad.serve.audit import FILE, Audit, AuditError, verify


@pytest.fixture
def trail(tmp_path):
    audit = Audit(tmp_path)
    for k in range(5):
        audit.note("label", device=f"pump/{k}", by="Kim")
    return tmp_path


def test_a_whole_chain_is_verified_and_printed(trail, capsys):
    digests = [digest for digest, _ in verify(trail)]
    assert main(["audit", str(trail), "--head", digests[2]]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["device"] for line in out.splitlines()] == [
        f"pump/{k}" for k in range(5)
    ]
    assert f"5 entries, the chain is intact. The newest digest is {digests[-1]}" in err


@pytest.mark.parametrize("how", ["changed", "taken out", "put in", "swapped", "no JSON"])
def test_any_change_breaks_the_chain(trail, how, capsys):
    lines = (trail / FILE).read_text().splitlines()
    if how == "changed":
        lines[1] = lines[1].replace("Kim", "Lee")
    elif how == "taken out":
        del lines[1]
    elif how == "put in":
        lines.insert(2, lines[1])
    elif how == "swapped":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        lines[2] = "nothing"
    (trail / FILE).write_text("".join(line + "\n" for line in lines))
    with pytest.raises(AuditError, match=r"line [23]: the chain is broken here"):
        list(verify(trail))
    assert main(["audit", str(trail)]) == 1
    assert "the chain is broken here" in capsys.readouterr().err


def test_a_trail_that_was_written_anew_lacks_the_digest(trail, tmp_path_factory):
    noted = [digest for digest, _ in verify(trail)][-1]
    (trail / FILE).unlink()
    Audit(trail).note("label", device="pump/0", by="Lee")
    with pytest.raises(AuditError, match=r"does not have the digest .*: the trail was rewritten"):
        list(verify(trail, noted))


def test_a_line_that_a_crash_tore_is_cut_off_and_the_chain_goes_on(trail):
    with (trail / FILE).open("a") as file:
        file.write('{"time": 1')
    with pytest.raises(AuditError, match="line 6: the line is torn"):
        list(verify(trail))
    Audit(trail).note("paused", device="pump/1")
    assert len(list(verify(trail))) == 6


def test_a_line_that_a_full_disk_cut_off_is_taken_back(trail, monkeypatch):
    audit, write = Audit(trail), os.write

    def half(file, data):
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(file, data[:-30])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            audit.note("label", device="pump/5")
    audit.note("label", device="pump/6")
    end = audit.end
    audit.note("reverted", device="pump/7")
    audit.note("label", device="pump/7")
    audit.take_back(end)
    audit.note("label", device="pump/8")
    assert [said["device"] for _, said in verify(trail)][5:] == ["pump/6", "pump/8"]


def test_there_must_be_a_trail(tmp_path):
    with pytest.raises(AuditError, match="cannot be read"):
        list(verify(tmp_path))


def test_a_snapshot_that_was_changed_is_found(trail):
    (trail / "snapshots").mkdir()
    file = trail / "snapshots" / "000001-000000000940.onlad"
    file.write_bytes(b"a model")
    digest = hashlib.sha256(b"a model").hexdigest()
    Audit(trail).note("snapshot", device="pump/1", file=file.name, sha256=digest)
    assert len(list(verify(trail))) == 6
    file.write_bytes(b"another")
    with pytest.raises(AuditError, match="is not the snapshot that was taken"):
        list(verify(trail))
    file.unlink()  # old ones are removed
    assert len(list(verify(trail))) == 6
