"""The command line: parse, call, print. Data to standard output, messages to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from onlad import __version__
from onlad.cli import completion, core, demo, export, files, fit, history, imports, service, watch
from onlad.cli.arguments import Parser
from onlad.errors import OnladError

#: Each module has a function `add`, which adds one or more commands.
COMMANDS = (watch, fit, history, files, imports, export, demo, service, core, completion)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 refused; argparse exits with 2."""
    if sys.stderr is None:  # closed by the shell: messages would go into the data
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:  # a write then fails with a reason
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    args = build_parser().parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except OnladError as error:
        print(f"onlad: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has ended. Python flushes once more at exit, so stdout must be valid.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # what a command writes: the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"onlad: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1
    return status


def build_parser() -> Parser:
    """Return the parser of all commands. Each one adds itself."""
    parser = Parser(
        prog="onlad",
        description="Monitor streams of sensor readings: learn what is normal, and report what is "
        "not.",
        epilog="examples:\n  onlad demo\n  onlad watch pump.csv\n  onlad COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"onlad {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser
