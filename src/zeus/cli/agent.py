"""`zeus agent`: the node agent, which sets GPU knobs for users without root.

With `--json`, `status` prints one object, `leases` and `revoke` a list of leases (`lease`, `gpu`,
`knob`, `value`, `previous`, `original`, `since`, `changes`, `holder`), `audit` one object per line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeus import __version__
from zeus.cli._holds import show_value
from zeus.cli._parser import (
    Parser,
    UsageError,
    add_json_option,
    listen_address,
    number,
    whole_number,
)
from zeus.cli._terminal import MISSING, Console
from zeus.device._records import GRAPHICS_CLOCK, MEMORY_CLOCK, POWER_LIMIT
from zeus.errors import CapabilityError, Reason


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    parser.description = (
        "Run the node agent, or ask the one that runs. The agent is one small process per machine "
        "with the rights to set power limits and clocks. Programs of all users find it by its "
        "socket: their holds become leases, which end with their process. A policy says who may "
        "set what."
    )
    parser.epilog = """\
examples:
  zeus agent leases                                   who holds what
  sudo zeus agent run                                 start it by hand
  ZEUS_SIMULATE=a100x8 zeus agent run --socket /tmp/agent.sock
  ZEUS_AGENT=/tmp/agent.sock zeus env                 use that one
  sudo zeus agent revoke --user alice                 end leases
  zeus agent policy check /etc/zeus/agent.toml --user alice --gpu 0 --power-limit 250"""
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    for name, summary, configure_action in _ACTIONS:
        own = actions.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        configure_action(own)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    _add_socket(parser)
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="policy (default: /etc/zeus/agent.toml)"
    )
    parser.add_argument("--audit", metavar="FILE", help="audit log, or `none`")
    parser.add_argument(
        "--socket-mode",
        type=_mode,
        default=0o666,
        metavar="MODE",
        help="permissions of the socket (default: 666; the policy decides who may do what)",
    )
    parser.add_argument("--socket-group", default="", metavar="NAME", help="group of the socket")
    parser.add_argument(
        "--export",
        type=listen_address,
        metavar="[HOST:]PORT",
        help="also run `zeus export` there, in a second process without rights",
    )
    parser.add_argument(
        "--export-user",
        default="nobody",
        metavar="NAME",
        help="user that it runs as (default: one without rights)",
    )


def _configure_status(parser: argparse.ArgumentParser) -> None:
    _add_socket(parser)
    add_json_option(parser)


def _configure_revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lease", nargs="?", metavar="LEASE", help="the lease to end")
    parser.add_argument("--user", metavar="NAME", help="all leases of this user")
    parser.add_argument("--slurm-job", metavar="ID", help="all leases of this Slurm job")
    parser.add_argument("--gpu", metavar="N", help="all leases on this GPU, by number or key")
    _configure_status(parser)


def _configure_audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", type=Path, metavar="FILE", help="the log (default: the agent's)")
    parser.add_argument("--user", metavar="NAME", help="events of this user only")
    parser.add_argument("--last", type=whole_number(1), metavar="N", help="the last N events only")
    _configure_status(parser)


def _configure_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("check", choices=("check",), metavar="check", help="check a policy")
    parser.add_argument("file", type=Path, metavar="FILE", help="the policy")
    parser.add_argument("--user", metavar="NAME", help="say what this user may do")
    parser.add_argument("--slurm-job", default="", metavar="ID", help="in this Slurm job")
    parser.add_argument("--cgroup", default="", metavar="PATH", help="in this control group")
    parser.add_argument("--pod", default="", metavar="UID", help="in this Kubernetes pod")
    parser.add_argument("--gpu", default="0", metavar="N|NAME", help="with this GPU (default: 0)")
    parser.add_argument("--power-limit", type=number(0.0, unit="watts", above=True), metavar="W")
    parser.add_argument("--graphics-clock", type=whole_number(1), metavar="MHZ")
    parser.add_argument("--memory-clock", type=whole_number(1), metavar="MHZ")


def _configure_job(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Note that a job of the scheduler begins or ends on this node, from its prolog and epilog. "
        "At the end, its leases end, and knobs of its GPUs get the values from its beginning."
    )
    parser.add_argument("what", choices=("begin", "end"), metavar="begin|end", help="which")
    parser.add_argument("id", metavar="JOB", help="number of the job")
    parser.add_argument("--user", metavar="NAME", help="begin: user that it runs as")
    parser.add_argument("--gpus", default="", metavar="N,N", help="begin: its GPUs")
    _configure_status(parser)


_ACTIONS = (
    ("run", "run the agent", _configure_run),
    ("status", "show the agent that runs here", _configure_status),
    ("leases", "show who holds which knob", _configure_status),
    ("revoke", "end leases of others, as an operator", _configure_revoke),
    ("audit", "show what was changed, by whom", _configure_audit),
    ("policy", "check a policy before the agent reads it", _configure_policy),
    ("job", "note the beginning or end of a scheduler's job", _configure_job),
)


def _add_socket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", help="socket (default: /run/zeus/agent.sock)"
    )


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise argparse.ArgumentTypeError(f"must be octal, 0 to 777, but got {text!r}")
    return mode


def run(arguments: argparse.Namespace) -> int:
    """Run the action."""
    console = Console(sys.stdout)
    if arguments.action == "run":
        return _run(arguments)
    if arguments.action == "policy":
        return _check_policy(arguments, console)
    with contextlib.closing(_client(arguments.socket)) as client:
        show = {
            "status": _status,
            "leases": _leases,
            "revoke": _revoke,
            "audit": _audit,
            "job": _job,
        }[arguments.action]
        show(client, arguments, console)
    return 0


# --- the agent itself ---------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    from zeus.agent._agent import Agent  # noqa: PLC0415
    from zeus.agent._audit import Audit  # noqa: PLC0415
    from zeus.agent._exporter import Exporter  # noqa: PLC0415
    from zeus.agent._jobs import Jobs  # noqa: PLC0415
    from zeus.agent._paths import default_audit, default_socket, jobs_path, lock_path  # noqa: PLC0415
    from zeus.agent._policy import PolicyError  # noqa: PLC0415
    from zeus.agent._service import Service, only_agent  # noqa: PLC0415
    from zeus.cli import print_message  # noqa: PLC0415
    from zeus.device import current_node  # noqa: PLC0415
    from zeus.device._agent_place import AGENT_VARIABLE  # noqa: PLC0415

    path = arguments.socket or default_socket()
    os.environ[AGENT_VARIABLE] = "0"  # it is the agent, not a client of one
    audit = default_audit() if arguments.audit is None else Path(arguments.audit)
    policy = _read_policy(arguments.policy)
    with only_agent(lock_path()):
        node = current_node()  # which restores what an agent that was killed had changed
        log = Audit(None if arguments.audit == "none" else audit)
        agent = Agent(node, policy, log, Jobs(jobs_path(path)), version=__version__)
        service = Service(agent, path, arguments.socket_mode, arguments.socket_group)

        def reload() -> None:
            try:
                agent.adopt(_read_policy(arguments.policy))
                print_message("the policy was read again", "note")
            except (PolicyError, OSError) as error:
                print_message(f"the policy stays as it was: {error}", "error")

        exporter = None
        if arguments.export is not None:
            exporter = Exporter(arguments.export, path, arguments.export_user)
            exporter.start()

        def ready() -> None:
            print_message(f"node agent at {path}, {len(node.drivers)} GPUs", "note")

        try:
            service.run(reload, ready)
        finally:
            if exporter is not None:
                exporter.end()
    return 0


def _read_policy(path: Path | None) -> Any:
    from zeus.agent._paths import POLICY  # noqa: PLC0415
    from zeus.agent._policy import DEFAULT, PolicyError, parse_policy  # noqa: PLC0415

    if path is None and not POLICY.exists():
        return DEFAULT
    file = path or POLICY
    try:
        return parse_policy(file.read_text(encoding="utf-8"))
    except (PolicyError, UnicodeDecodeError) as error:
        raise PolicyError(f"{file}: {error}") from None


# --- asking it ----------------------------------------------------------------------------------


def _client(path: Path | None) -> Any:
    from zeus.agent._paths import default_socket  # noqa: PLC0415
    from zeus.device._agent_client import AgentClient  # noqa: PLC0415

    path = path or default_socket()
    try:
        return AgentClient(path)
    except (FileNotFoundError, ConnectionRefusedError):
        raise CapabilityError(
            Reason.DRIVER_ABSENT,
            f"no node agent runs at {path}",
            "systemctl start zeus-agent, or sudo zeus agent run",
        ) from None


def _status(client: Any, arguments: argparse.Namespace, console: Console) -> None:
    found = client.request("status")
    if arguments.json:
        console.print_json(found)
        return
    rows = [
        ("agent", f"zeus {found['zeus']}, process {found['pid']}"),
        ("since", _instant(found["started"])),
        ("socket", f"{client.path}"),
        ("audit log", found["audit"] or "none"),
        ("clients", f"{found['clients']}"),
        ("leases", f"{found['leases']}"),
        *(("job", f"{job['job']} on {len(job['gpus'])} GPUs") for job in found["jobs"]),
        *(("GPU", f"{gpu['index']}  {gpu['name']}") for gpu in found["gpus"]),
    ]
    console.print_table(rows)


def _leases(client: Any, arguments: argparse.Namespace, console: Console) -> None:
    _show_leases(client.request("leases"), arguments, console, "There are no leases.")


def _revoke(client: Any, arguments: argparse.Namespace, console: Console) -> None:
    wanted = {
        "lease": arguments.lease,
        "user": arguments.user,
        "slurm_job": arguments.slurm_job,
        "gpu": arguments.gpu,
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if not wanted:
        raise UsageError("`zeus agent revoke` needs a lease, --user, --slurm-job or --gpu")
    ended = client.request("revoke", **wanted)
    _show_leases(ended, arguments, console, "No such lease.")


def _show_leases(
    leases: Sequence[dict[str, Any]],
    arguments: argparse.Namespace,
    console: Console,
    nothing: str,
) -> None:
    if arguments.json:
        console.print_json(leases)
        return
    if not leases:
        console.print(nothing)
        return
    heading = ("lease", "gpu", "knob", "value", "restored after", "holder", "since")
    console.print_table([heading, *(_lease_row(lease) for lease in leases)])


def _lease_row(lease: dict[str, Any]) -> tuple[str, ...]:
    holder = lease["holder"]
    who = f"{holder['user']}, process {holder['pid']} {holder.get('command', '')}".strip()
    who += f", job {holder['slurm_job']}" if "slurm_job" in holder else ""
    return (
        lease["lease"],
        f"{lease['gpu']['index']}",
        lease["knob"].replace("_", " "),
        show_value(lease["knob"], lease["value"]),
        show_value(lease["knob"], lease["previous"]),
        who,
        _instant(lease["since"]),
    )


def _audit(client: Any, arguments: argparse.Namespace, console: Console) -> None:
    from zeus.agent._audit import read_audit  # noqa: PLC0415

    file = arguments.file or client.request("status")["audit"]
    if file is None:
        raise CapabilityError(Reason.UNSUPPORTED, "this node agent keeps no audit log")
    events = [
        event
        for event in read_audit(Path(file))
        if arguments.user in (None, event.get("who", {}).get("user"))
    ][-(arguments.last or 0) :]
    if arguments.json:
        for event in events:
            console.print(json.dumps(event))
        return
    for event in events:
        console.print(_event_line(event))


def _event_line(event: dict[str, Any]) -> str:
    who = event.get("who", {})
    parts = [event.get("time", MISSING), event.get("event", "")]
    if who:
        parts.append(f"{who.get('user')} ({who.get('pid')} {who.get('command', '')})")
    knob = event.get("knob")
    if knob:
        parts.append(f"GPU {event.get('gpu')} {knob.replace('_', ' ')}")
        for name in ("before", "after", "value", "restored"):
            if name in event:
                parts.append(f"{name} {show_value(knob, event[name])}")
    parts += [f"{name} {event[name]}" for name in ("job", "why", "left_out") if name in event]
    return "  ".join(parts)


def _job(client: Any, arguments: argparse.Namespace, console: Console) -> None:
    import pwd  # noqa: PLC0415

    if arguments.what == "end":
        found = client.request("job_end", job=arguments.id)
    else:
        if arguments.user is None:
            raise UsageError("`zeus agent job begin` needs --user")
        try:
            uid = (
                int(arguments.user)
                if arguments.user.isdecimal()
                else pwd.getpwnam(arguments.user).pw_uid
            )
        except KeyError:
            raise UsageError(
                f"--user must be a user of this machine, not {arguments.user!r}"
            ) from None
        gpus = [each.strip() for each in arguments.gpus.split(",") if each.strip()]
        found = client.request("job_begin", job=arguments.id, uid=uid, gpus=gpus)
    if arguments.json:
        console.print_json(found)


def _check_policy(arguments: argparse.Namespace, console: Console) -> int:
    """Check a policy; say what a user may do by it."""
    import grp  # noqa: PLC0415
    import pwd  # noqa: PLC0415

    from zeus.agent._peer import Peer  # noqa: PLC0415
    from zeus.agent._policy import GpuName  # noqa: PLC0415
    from zeus.cli import FAILED  # noqa: PLC0415

    policy = _read_policy(arguments.file)
    if arguments.user is None:
        rules, ceilings = len(policy.rules), len(policy.ceilings)
        console.print(f"{arguments.file}: {rules} rules, {ceilings} ceilings; it can be used.")
        return 0
    try:
        user = pwd.getpwnam(arguments.user)
        groups = frozenset(
            grp.getgrgid(g).gr_name for g in os.getgrouplist(user.pw_name, user.pw_gid)
        )
        uid = user.pw_uid
    except KeyError:
        uid, groups = -1, frozenset()  # a user of another machine
    peer = Peer(
        0,
        uid,
        arguments.user,
        groups,
        cgroup=arguments.cgroup,
        slurm_job=arguments.slurm_job,
        pod=arguments.pod,
    )
    index = int(arguments.gpu) if arguments.gpu.isdecimal() else -1
    gpu = GpuName(index, arguments.gpu, arguments.gpu)
    values = {
        POWER_LIMIT: arguments.power_limit,
        GRAPHICS_CLOCK: arguments.graphics_clock,
        MEMORY_CLOCK: arguments.memory_clock,
    }
    refused = False
    for knob, value in values.items():
        bounds = policy.bounds(peer, gpu, knob, frozenset({gpu.key}), frozenset({0}))
        if bounds is None:
            answer = "not allowed"
        elif value is not None and (refusal := bounds.refusal(knob, value)):
            answer = refusal
        else:
            answer = bounds.words(knob)
        wrong = bounds is None or bool(value is not None and bounds.refusal(knob, value))
        refused |= wrong and value is not None
        console.print(f"{knob.replace('_', ' ')}: {answer}")
    allowed = policy.cpu_energy(peer, frozenset({0}))
    console.print(f"CPU energy: {'allowed' if allowed else 'not allowed'}")
    return FAILED if refused else 0


def _instant(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
