"""A folder for Vivado and a PYNQ-Z1: Verilog, IP-XACT, a script that builds, a first program."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from string import Template

from onlad.errors import OnladError
from onlad.hardware.config import Config
from onlad.hardware.estimate import estimate

BOARDS = Path(__file__).parent / "boards"
WRAPPER = (BOARDS / "wrapper.v").read_text()
SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
XILINX = "http://www.xilinx.com"
NAME, TOP = "onlad_core", "onlad_core_axis"

_COMPONENT = f"""
<component xmlns="{SPIRIT}" xmlns:s="{SPIRIT}" xmlns:x="{XILINX}">
  <vendor>onlad</vendor><library>onlad</library><name>{NAME}</name><version>1.0</version>
  <busInterfaces>{{interfaces}}</busInterfaces>
  <model><views>{{views}}</views><ports>{{ports}}</ports></model>
  <fileSets><fileSet><name>sources</name>{{files}}</fileSet></fileSets>
  <description>ONLAD Core: {{config.n}} features, {{config.hidden}} hidden units, {{config.lanes}} \
lanes, {{config.activation}}, {{config.width}} bits</description>
  <vendorExtensions><x:coreExtensions>
    <x:supportedFamilies>{{families}}</x:supportedFamilies>
    <x:taxonomies><x:taxonomy>/UserIP</x:taxonomy></x:taxonomies>
    <x:displayName>ONLAD Core</x:displayName>
  </x:coreExtensions></vendorExtensions>
</component>"""
_STREAM = ("tdata", "tlast", "tvalid", "tready")
_PORT = re.compile(r"(in|out)put +wire +(?:\[(\d+):0\])? *(\w+)")


def export(config: Config, verilog: Callable[[], str], folder: Path) -> Path:
    """Write the core and all files around it into a folder, which is created if necessary.

    `verilog` is called after that, because it takes seconds.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OnladError(f"cannot write into {folder}: {error.strerror}") from None
    (folder / "onlad_core.v").write_text(verilog())
    (folder / "onlad_core_axis.v").write_text(WRAPPER)
    (folder / "component.xml").write_text(component(config))
    for name in ("pynq_z1.tcl", "on_board.py"):
        (folder / name).write_text((BOARDS / name).read_text())
    guess = estimate(config)
    text = Template((BOARDS / "README.md").read_text()).substitute(
        asdict(config),
        config=f"`{config}`",
        train=guess.train,
        predict=guess.predict,
        train_us=f"{guess.train / 100:.0f}",
        predict_us=f"{guess.predict / 100:.0f}",
    )
    (folder / "README.md").write_text(text)
    return folder


def component(config: Config) -> str:
    """Return the core's IP-XACT description (IEEE 1685-2009, with what Vivado adds to it)."""
    streams = (
        _interface(name, mode, "interface", "axis", **{w.upper(): f"{name}_{w}" for w in _STREAM})
        for name, mode in (("s_axis", "slave"), ("m_axis", "master"))
    )
    clock = _interface("aclk", "slave", "signal", "clock", CLK="aclk", parameters=_parameters(
        ASSOCIATED_BUSIF="s_axis:m_axis", ASSOCIATED_RESET="aresetn"))  # fmt: skip
    low = _parameters(POLARITY="ACTIVE_LOW")
    reset = _interface("aresetn", "slave", "signal", "reset", RST="aresetn", parameters=low)
    files = (
        f"<file><name>{name}</name><fileType>verilogSource</fileType></file>"
        for name in ("onlad_core.v", "onlad_core_axis.v")
    )
    families = (
        f'<x:family x:lifeCycle="Beta">{name}</x:family>'
        for name in ("zynq", "artix7", "kintex7", "virtex7")
    )
    text = _COMPONENT.format(
        interfaces="".join([*streams, clock, reset]),
        views="".join(map(_view, ("synthesis", "simulation"))),
        ports="".join(_port(*found) for found in _PORT.findall(WRAPPER)),
        files="".join(files),
        families="".join(families),
        config=config,
    )
    ET.register_namespace("spirit", SPIRIT)
    ET.register_namespace("xilinx", XILINX)
    root = ET.fromstring(text)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _interface(
    name: str, mode: str, library: str, bus: str, parameters: str = "", **wires: str
) -> str:
    kind = 's:vendor="xilinx.com" s:library="{}" s:name="{}" s:version="1.0"'
    maps = (
        f"<portMap><logicalPort><name>{ours}</name></logicalPort>"
        f"<physicalPort><name>{theirs}</name></physicalPort></portMap>"
        for ours, theirs in wires.items()
    )
    return (
        f"<busInterface><name>{name}</name><busType {kind.format(library, bus)}/>"
        f"<abstractionType {kind.format(library, bus + '_rtl')}/><{mode}/>"
        f"<portMaps>{''.join(maps)}</portMaps>{parameters}</busInterface>"
    )


def _parameters(**values: str) -> str:
    each = (f"<parameter><name>{k}</name><value>{v}</value></parameter>" for k, v in values.items())
    return f"<parameters>{''.join(each)}</parameters>"


def _view(what: str) -> str:
    return (
        f"<view><name>xilinx_any{what}</name>"
        f"<envIdentifier>verilogSource:vivado.xilinx.com:{what}</envIdentifier>"
        f"<language>verilog</language><modelName>{TOP}</modelName>"
        "<fileSetRef><localName>sources</localName></fileSetRef></view>"
    )


def _port(direction: str, left: str, name: str) -> str:
    vector = f"<vector><left>{left}</left><right>0</right></vector>" if left else ""
    return (
        f"<port><name>{name}</name><wire><direction>{direction}</direction>{vector}</wire></port>"
    )
