"""Build a program for the emulated board; SCons runs this."""

from SCons.Script import Default, DefaultEnvironment

CPU = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
PLACES = "-Wl,--defsym=CODE=0,--defsym=DATA=0x20000000,--defsym=STACK=0x20040000"

env = DefaultEnvironment()
tools = {name: f"arm-none-eabi-{tool}" for name, tool in (("CC", "gcc"), ("CXX", "g++"),
         ("LINK", "gcc"), ("AR", "ar"), ("RANLIB", "ranlib"))}  # fmt: skip
env.Replace(**tools, PROGSUFFIX=".elf")
env.Append(
    CCFLAGS=[*CPU, "-Os", "-Wall", "-Wextra", "-Werror"],
    LINKFLAGS=[*CPU, "-nostartfiles", "-T", "link.ld", PLACES],
    LIBS=["m"],
)
Default(env.BuildProgram())
