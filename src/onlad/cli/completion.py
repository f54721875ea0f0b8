"""`onlad completion`: scripts for shells, made from the parser, so that they never lag behind."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from onlad.cli.arguments import Commands, add_command


def add(commands: Commands) -> None:
    """Add `onlad completion`."""
    parser = add_command(commands, "completion", run)
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print a script that completes commands, options and files in your shell.

    Print a completion script for a shell.

        eval "$(onlad completion bash)"                  (in ~/.bashrc)
        eval "$(onlad completion zsh)"                   (in ~/.zshrc, after compinit)
        onlad completion fish > ~/.config/fish/completions/onlad.fish
    """
    from onlad.cli import build_parser  # noqa: PLC0415  (it imports this module)

    print(SHELLS[args.shell](described(build_parser())), end="")
    return 0


class Command(NamedTuple):
    """What a shell needs to know of one command."""

    name: str
    help: str
    options: list[argparse.Action]
    values: list[argparse.Action]  # arguments without a flag


def described(parser: argparse.ArgumentParser) -> list[Command]:
    """Return the commands of a parser."""
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return [
        Command(
            brief.dest,
            _plain(brief.help),
            [each for each in found.choices[brief.dest]._actions if each.option_strings],
            [each for each in found.choices[brief.dest]._actions if not each.option_strings],
        )
        for brief in found._choices_actions
    ]


def _plain(words: str | None) -> str:
    """Return words that are safe between single quotes and in brackets, in every shell."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w ,.;/()=+-]", " ", words or "")).strip()


def _choices(argument: argparse.Action) -> str:
    return " ".join(map(str, argument.choices or ()))


def _is_file(argument: argparse.Action) -> bool:
    return argument.type is Path or argument.dest == "source"


def bash(commands: list[Command]) -> str:
    """Return a script for bash."""
    values, words = [], []
    for command in commands:
        for option in command.options:
            if option.nargs != 0:
                pattern = "|".join(f'"{command.name} {flag}"' for flag in option.option_strings)
                values.append(f"        {pattern}) {_bash_reply(option)} return ;;")
        flags = " ".join(flag for option in command.options for flag in option.option_strings)
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


def _bash_reply(argument: argparse.Action) -> str:
    if argument.choices:
        return f'_onlad_words "{_choices(argument)}";'
    return "_onlad_files;" if _is_file(argument) else ""


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
        specs = [
            f"'{flag}[{_plain(option.help)}]{_zsh_value(option) if option.nargs != 0 else ''}'"
            for option in command.options
            for flag in option.option_strings
        ]
        specs += [f"'*{_zsh_value(value)}'" for value in command.values[:1]]
        joined = " \\\n            ".join(specs)
        cases.append(f"        {command.name}) _arguments \\\n            {joined} ;;")
    names = " ".join(f"'{command.name}:{command.help}'" for command in commands)
    return ZSH.format(names=names, cases="\n".join(cases))


def _zsh_value(argument: argparse.Action) -> str:
    files = "_files" if _is_file(argument) else " "
    kind = f"({_choices(argument)})" if argument.choices else files
    return f":{str(argument.metavar or argument.dest).upper()}:{kind}"


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
                for flag in option.option_strings
            )
            lines.append(f"{here} {flags}{_fish_value(option)} -d '{_plain(option.help)}'")
        for value in command.values[:1]:
            if value.choices or _is_file(value):
                lines.append(here + _fish_value(value).replace(" -x", "").replace(" -r", ""))
    return "\n".join(lines) + "\n"


def _fish_value(argument: argparse.Action) -> str:
    if argument.nargs == 0:
        return ""
    if argument.choices:
        return f" -x -a '{_choices(argument)}'"
    return " -r -F" if _is_file(argument) else " -x"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
