"""`onlad completion`: scripts for shells, made from the parser, so that they never lag behind."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from onlad.cli.arguments import Commands, Help


def add(commands: Commands) -> None:
    """Add `onlad completion`."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands, options and files in your shell",
        description="Print a completion script for a shell.",
        formatter_class=Help,
        epilog="examples:\n"
        '  eval "$(onlad completion bash)"                  (in ~/.bashrc)\n'
        '  eval "$(onlad completion zsh)"                   (in ~/.zshrc, after compinit)\n'
        "  onlad completion fish > ~/.config/fish/completions/onlad.fish",
    )
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Print."""
    from onlad.cli import build_parser  # noqa: PLC0415  (it imports this module)

    print(SHELLS[args.shell](described(build_parser())), end="")
    return 0


class Argument(NamedTuple):
    """What a shell needs to know of one argument."""

    flags: tuple[str, ...]  # none: positional
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    is_file: bool
    name: str


class Command(NamedTuple):
    """What a shell needs to know of one command."""

    name: str
    help: str
    arguments: list[Argument]

    @property
    def options(self) -> list[Argument]:
        """Arguments with a flag."""
        return [each for each in self.arguments if each.flags]

    @property
    def values(self) -> list[Argument]:
        """Arguments without one."""
        return [each for each in self.arguments if not each.flags]


def described(parser: argparse.ArgumentParser) -> list[Command]:
    """Return the commands of a parser."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words = {each.dest: each.help or "" for each in action._choices_actions}
            for name, command in action.choices.items():
                arguments = [_argument(each) for each in command._actions]
                found.append(Command(name, _plain(words.get(name, "")), arguments))
    return found


def _argument(action: argparse.Action) -> Argument:
    is_file = action.type is Path or action.dest == "source"
    return Argument(
        tuple(action.option_strings),
        _plain(action.help or ""),
        action.nargs != 0,
        tuple(map(str, action.choices or ())),
        is_file,
        str(action.metavar or action.dest).upper(),
    )


def _plain(words: str) -> str:
    """Return words that are safe between single quotes and in brackets, in every shell."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w ,.;/()=+-]", " ", words)).strip()


def bash(commands: list[Command]) -> str:
    """Return a script for bash."""
    values, words = [], []
    for command in commands:
        for option in command.options:
            if not option.takes_value:
                continue
            pattern = "|".join(f'"{command.name} {flag}"' for flag in option.flags)
            values.append(f"        {pattern}) {_bash_reply(option)} return ;;")
        flags = " ".join(flag for option in command.options for flag in option.flags)
        reply = _bash_reply(command.values[0]) if command.values else ""
        words.append(
            f'        {command.name}) if [[ $cur == -* ]]; then _onlad_words "{flags}"; '
            f"else {reply or ':;'} fi ;;"
        )
    return BASH.format(
        names=" ".join(command.name for command in commands),
        values="\n".join(values),
        words="\n".join(words),
    )


def _bash_reply(argument: Argument) -> str:
    if argument.choices:
        return f'_onlad_words "{" ".join(argument.choices)}";'
    return "_onlad_files;" if argument.is_file else ""


BASH = """\
_onlad_words() {{ mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }}
_onlad_files() {{ compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }}
_onlad() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then _onlad_words "{names} --help --version"; return; fi
    case "${{COMP_WORDS[1]}} $prev" in
{values}
    esac
    case ${{COMP_WORDS[1]}} in
{words}
    esac
}}
complete -F _onlad onlad
"""


def zsh(commands: list[Command]) -> str:
    """Return a script for zsh."""
    cases = []
    for command in commands:
        specs = [_zsh_option(flag, option) for option in command.options for flag in option.flags]
        specs += [f"'*:{value.name}:{_zsh_kind(value)}'" for value in command.values[:1]]
        joined = " \\\n            ".join(specs)
        cases.append(f"        {command.name}) _arguments \\\n            {joined} ;;")
    names = " ".join(f"'{command.name}:{command.help}'" for command in commands)
    return ZSH.format(names=names, cases="\n".join(cases))


def _zsh_option(flag: str, option: Argument) -> str:
    value = f":{option.name}:{_zsh_kind(option)}" if option.takes_value else ""
    return f"'{flag}[{option.help}]{value}'"


def _zsh_kind(argument: Argument) -> str:
    if argument.choices:
        return f"({' '.join(argument.choices)})"
    return "_files" if argument.is_file else " "


ZSH = """\
#compdef onlad
_onlad() {{
    local -a names
    names=({names})
    if (( CURRENT == 2 )); then _describe command names; return; fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{cases}
    esac
}}
if [[ $funcstack[1] == _onlad ]]; then _onlad "$@"; else compdef _onlad onlad; fi
"""


def fish(commands: list[Command]) -> str:
    """Return a script for fish."""
    lines = ["complete -c onlad -f"]
    lines += [
        f"complete -c onlad -n __fish_use_subcommand -a {command.name} -d '{command.help}'"
        for command in commands
    ]
    for command in commands:
        here = f"complete -c onlad -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in option.flags
            )
            lines.append(f"{here} {flags}{_fish_value(option)} -d '{option.help}'")
        for value in command.values[:1]:
            if value.choices:
                lines.append(f"{here} -a '{' '.join(value.choices)}'")
            elif value.is_file:
                lines.append(f"{here} -F")
    return "\n".join(lines) + "\n"


def _fish_value(option: Argument) -> str:
    if not option.takes_value:
        return ""
    if option.choices:
        return f" -x -a '{' '.join(option.choices)}'"
    return " -r -F" if option.is_file else " -x"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
