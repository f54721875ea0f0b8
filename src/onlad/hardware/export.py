"""A folder for Vivado and a PYNQ-Z1: Verilog, IP-XACT, a script that builds, a first program."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from string import Template

from onlad.errors import OnladError
from onlad.hardware.config import Config
from onlad.hardware.estimate import estimate

BOARDS = Path(__file__).parent / "boards"
SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
XILINX = "http://www.xilinx.com"
NAME, TOP = "onlad_core", "onlad_core_axis"

_STREAM = ("tdata", "tlast", "tvalid", "tready")
_PORTS = {  # direction and bits, as in boards/wrapper.v
    "aclk": ("in", 1),
    "aresetn": ("in", 1),
    **{f"s_axis_{name}": ("out" if name == "tready" else "in", 1) for name in _STREAM},
    **{f"m_axis_{name}": ("in" if name == "tready" else "out", 1) for name in _STREAM},
    "s_axis_tdata": ("in", 64),
    "m_axis_tdata": ("out", 32),
}


def export(config: Config, verilog: Callable[[], str], folder: Path) -> Path:
    """Write the core and all files around it into a folder, which is created if necessary.

    `verilog` is called after that, because it takes seconds.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OnladError(f"cannot write into {folder}: {error.strerror}") from None
    (folder / "onlad_core.v").write_text(verilog())
    (folder / "onlad_core_axis.v").write_text((BOARDS / "wrapper.v").read_text())
    (folder / "component.xml").write_text(component(config))
    for name in ("pynq_z1.tcl", "on_board.py"):
        (folder / name).write_text((BOARDS / name).read_text())
    guess = estimate(config)
    text = Template((BOARDS / "README.md").read_text()).substitute(
        n=config.n,
        hidden=config.hidden,
        lanes=config.lanes,
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
    ET.register_namespace("spirit", SPIRIT)
    ET.register_namespace("xilinx", XILINX)
    root = ET.Element(f"{{{SPIRIT}}}component")
    for tag, text in zip(
        ("vendor", "library", "name", "version"), ("onlad", "onlad", NAME, "1.0"), strict=True
    ):
        _add(root, tag, text)
    interfaces = _add(root, "busInterfaces")
    for name, mode in (("s_axis", "slave"), ("m_axis", "master")):
        maps = {port.upper(): f"{name}_{port}" for port in _STREAM}
        _interface(interfaces, name, ("interface", "axis"), mode, maps)
    streams = {"ASSOCIATED_BUSIF": "s_axis:m_axis", "ASSOCIATED_RESET": "aresetn"}
    _interface(interfaces, "aclk", ("signal", "clock"), "slave", {"CLK": "aclk"}, **streams)
    low = {"POLARITY": "ACTIVE_LOW"}
    _interface(interfaces, "aresetn", ("signal", "reset"), "slave", {"RST": "aresetn"}, **low)
    model = _add(root, "model")
    _views(_add(model, "views"))
    ports = _add(model, "ports")
    for name, (direction, bits) in _PORTS.items():
        port = _add(ports, "port")
        _add(port, "name", name)
        wire = _add(port, "wire")
        _add(wire, "direction", direction)
        if bits > 1:
            vector = _add(wire, "vector")
            _add(vector, "left", str(bits - 1))
            _add(vector, "right", "0")
    sets = _add(root, "fileSets")
    files = _add(sets, "fileSet")
    _add(files, "name", "sources")
    for name in ("onlad_core.v", "onlad_core_axis.v"):
        file = _add(files, "file")
        _add(file, "name", name)
        _add(file, "fileType", "verilogSource")
    size = f"{config.n} features, {config.hidden} hidden units, {config.lanes} lanes"
    _add(root, "description", f"ONLAD Core: {size}, {config.activation}, {config.width} bits")
    _vendor(root)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _add(parent: ET.Element, tag: str, text: str | None = None) -> ET.Element:
    element = ET.SubElement(parent, f"{{{SPIRIT}}}{tag}")
    element.text = text
    return element


def _interface(
    parent: ET.Element,
    name: str,
    kind: tuple[str, str],
    mode: str,
    maps: dict[str, str],
    **parameters: str,
) -> None:
    interface = _add(parent, "busInterface")
    _add(interface, "name", name)
    library, bus = kind
    for tag, suffix in (("busType", ""), ("abstractionType", "_rtl")):
        element = _add(interface, tag)
        reference = {"vendor": "xilinx.com", "library": library, "name": bus + suffix}
        for key, value in {**reference, "version": "1.0"}.items():
            element.set(f"{{{SPIRIT}}}{key}", value)
    _add(interface, mode)
    port_maps = _add(interface, "portMaps")
    for logical, physical in maps.items():
        port_map = _add(port_maps, "portMap")
        _add(_add(port_map, "logicalPort"), "name", logical)
        _add(_add(port_map, "physicalPort"), "name", physical)
    if parameters:
        holder = _add(interface, "parameters")
        for key, value in parameters.items():
            parameter = _add(holder, "parameter")
            _add(parameter, "name", key)
            _add(parameter, "value", value)


def _views(views: ET.Element) -> None:
    for name, what in (("synthesis", "synthesis"), ("simulation", "simulation")):
        view = _add(views, "view")
        _add(view, "name", f"xilinx_any{what}")
        _add(view, "envIdentifier", f"verilogSource:vivado.xilinx.com:{name}")
        _add(view, "language", "verilog")
        _add(view, "modelName", TOP)
        _add(_add(view, "fileSetRef"), "localName", "sources")


def _vendor(root: ET.Element) -> None:
    """Add what Vivado's catalogue shows."""
    extensions = ET.SubElement(_add(root, "vendorExtensions"), f"{{{XILINX}}}coreExtensions")
    families = ET.SubElement(extensions, f"{{{XILINX}}}supportedFamilies")
    for name in ("zynq", "artix7", "kintex7", "virtex7"):
        family = ET.SubElement(families, f"{{{XILINX}}}family")
        family.set(f"{{{XILINX}}}lifeCycle", "Beta")
        family.text = name
    taxonomies = ET.SubElement(extensions, f"{{{XILINX}}}taxonomies")
    ET.SubElement(taxonomies, f"{{{XILINX}}}taxonomy").text = "/UserIP"
    ET.SubElement(extensions, f"{{{XILINX}}}displayName").text = "ONLAD Core"
