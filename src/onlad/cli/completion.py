"""`onlad completion`."""

from __future__ import annotations

import argparse

from onlad.cli.arguments import Commands, add_command

SHELLS = ("bash", "zsh", "fish")


def add(commands: Commands) -> None:
    """Add `onlad completion`."""
    parser = add_command(commands, "completion", run)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print a script that completes commands, options and files in your shell.

    Print a completion script for a shell.

        eval "$(onlad completion bash)"                  (in ~/.bashrc)
        eval "$(onlad completion zsh)"                   (in ~/.zshrc, after compinit)
        onlad completion fish > ~/.config/fish/completions/onlad.fish
    """
    import shtab  # noqa: PLC0415  (slow to import, and only this needs it)

    from onlad.cli import build_parser  # noqa: PLC0415  (it imports this module)

    print(shtab.complete(build_parser(), args.shell))
    return 0
