"""The commands of the service: `onlad serve`, and what is done to its state while it is stopped."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from onlad.cli.arguments import Commands, add_command, service
from onlad.cli.models import say
from onlad.errors import OnladError


def add(commands: Commands) -> None:
    """Add `onlad serve`, `forget`, `revert`, `repair` and `audit`."""
    parser = add_command(commands, "serve", serve)
    _add_config(parser, "a TOML file; see docs/reference/configuration.md")
    parser.add_argument(
        "--check", action="store_true",
        help="only check the configuration, and print settings that do not apply to devices "
        "which have already learned",
    )  # fmt: skip
    parser = add_command(commands, "forget", forget)
    _add_device(parser, nargs="?")
    parser.add_argument("--undo", metavar="FILE", help="restore the device of this file")
    parser = add_command(commands, "revert", revert)
    _add_device(parser)
    parser.add_argument("--to", metavar="SNAPSHOT", help="the snapshot to restore")
    text = "learn the samples since then again, from the journal"
    parser.add_argument("--replay", action="store_true", help=text)
    parser = add_command(commands, "repair", repair)
    _add_state(parser)
    parser = add_command(commands, "audit", audit)
    _add_state(parser)
    parser.add_argument("--head", metavar="DIGEST", help="a digest that the trail must contain")
    text = "prove the models, with the configuration of the service"
    parser.add_argument("--replay", type=Path, metavar="CONFIG", help=text)


def _add_config(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--config", type=Path, required=True, metavar="PATH", help=help)


def _add_device(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    name = "name of the stream in the configuration"
    parser.add_argument("stream", nargs=nargs, metavar="STREAM", help=name)
    omitted = "name of the device; omit it if the device has none"
    parser.add_argument("device", nargs="?", default="", metavar="DEVICE", help=omitted)
    _add_config(parser, "the configuration of the service")


def _add_state(parser: argparse.ArgumentParser) -> None:
    folder = "the folder that `state` names in the configuration"
    parser.add_argument("state", type=Path, metavar="STATE", help=folder)


def serve(args: argparse.Namespace) -> int:
    """Run a service that monitors streams from MQTT and HTTP.

    Monitor the streams of a configuration file. Samples arrive by MQTT or HTTP; verdicts and alarms
    are sent by MQTT, WebSocket and webhook. What was learned survives a crash at any moment.
    SIGTERM or Ctrl-C saves everything and stops.

        onlad serve --config onlad.toml
    """
    settings = service("config").load(args.config)
    if args.check:
        for line in service("devices").check(settings):
            say(line)
        return 0
    try:
        service("run").serve(settings)
    except OSError as error:
        raise OnladError(f"the service ended: {error}") from error
    return 0


def forget(args: argparse.Namespace) -> int:
    """Make onlad serve forget a device.

    Forget a device of a service that is stopped: the next sample of the device starts a new model.
    While the service runs, use its page, or DELETE /streams/STREAM/devices/DEVICE. The forgotten
    model is kept in a file, from which --undo restores it.

        onlad forget --config onlad.toml plant pump
        onlad forget --config onlad.toml --undo 000007.json
    """
    if (args.stream is None) == (args.undo is None):
        args.usage("give a STREAM, or --undo")
    config = service("config").load(args.config)
    if args.undo is not None:
        print(f"{service('run').undo(config, args.undo)} is restored")
        return 0
    file = service("run").forget(config, args.stream, args.device)
    print(f"forgotten. To undo it: onlad forget --config {args.config} --undo {file}")
    return 0


def revert(args: argparse.Namespace) -> int:
    """Restore a snapshot of a device of onlad serve.

    List the snapshots of a device of a service that is stopped, or restore one. While the service
    runs, use its page, or POST /streams/STREAM/revert. By default a snapshot is taken every day;
    its name says how many samples the model had seen.

        onlad revert --config onlad.toml plant pump
        onlad revert --config onlad.toml plant pump --to 000001-000000086400-000.onlad.gz
        onlad revert --config onlad.toml plant pump --to 000001-000000086400-000.onlad.gz --replay
    """
    if args.replay and args.to is None:
        args.usage("argument --replay: needs argument --to")
    config = service("config").load(args.config)
    for name in service("run").revert(config, args.stream, args.device, args.to, args.replay):
        print(name)
    return 0


def repair(args: argparse.Namespace) -> int:
    """Salvage a damaged state folder of onlad serve.

    Salvage the state folder of a service that does not start because of damaged files: keep what
    can be read, and print how many rows of which devices are kept and lost. The service must be
    stopped. Damaged files are moved to the subfolder `damaged`.

        onlad repair /var/lib/onlad
    """
    for line in service("repair").repair(args.state):
        print(line)
    return 0


def audit(args: argparse.Namespace) -> int:
    """Verify and print the audit trail of onlad serve.

    Print the audit trail of a state folder as JSON lines, and verify it: each line has the digest
    of the line before. The newest digest is printed last. Keep it elsewhere: with --head DIGEST the
    command proves that the trail was not rewritten. With --replay, the samples of the journal and
    what people did are replayed from the oldest snapshots, which must lead to the later snapshots
    and to the models, bit for bit.

        onlad audit /var/lib/onlad
        onlad audit /var/lib/onlad --replay /etc/onlad.toml
    """
    head, count = "", 0
    for digest, entry in service("audit").verify(args.state, args.head):
        del entry["before"]
        print(json.dumps(entry, ensure_ascii=False))
        head, count = digest, count + 1
    say(f"{count:,} entries, the chain is intact. The newest digest is {head or 'none'}")
    wrong = 0
    if args.replay is not None:
        for proved in service("proof").prove(args.state, service("config").load(args.replay)):
            say(proved.text)
            wrong += proved.wrong
    if wrong:
        raise OnladError(f"{wrong} devices are not what the log leads to")
    return 0
