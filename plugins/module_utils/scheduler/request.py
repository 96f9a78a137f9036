# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's settings of a Slurm cluster: controllers, partitions of groups, accounting, each checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import nearest
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError

# A text in slurm.conf, gres.conf or topology.conf: "#" begins a comment, blanks end a value.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VERSION = re.compile(r"(\d\d)\.(\d\d)(\.\S+)?")
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_VALUE = re.compile(r"[^\s#\"'=][^\s#\"']*")
_TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}|UNLIMITED")
SCHEDULERS = ("slurm", "lsf")
# No names to slurm.conf(5): DEFAULT is the defaults of later lines, of nodes and partitions; ALL is all nodes.
_DEFAULT, _ALL = "default", "all"
# Settings of Slurm alone.
_OF_SLURM = (
    *("version", "accounting", "prolog", "epilog", "reimage_command", "state_directory"),
    *("options", "container_directory"),
)
# Part of programs and of files of settings, which have it without quotes.
DIRECTORY = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
# Lines that the plan makes itself; a line Include would hide another file from it.
_LINES = ("nodename", "partitionname", "downnodes", "nodeset", "frontendname", "include")


@dataclass(frozen=True)
class SlurmPartition:
    """A partition and its nodes. ``options``: further settings of its line."""

    name: str
    nodes: tuple[str, ...]
    is_default: bool = False
    max_time: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Accounting:
    """The host of slurmdbd, and its database."""

    host: str
    database: str = "slurm_acct_db"
    storage_host: str = "localhost"
    user: str = "slurm"


@dataclass(frozen=True)
class SchedulerRequest:
    """All settings. ``controllers``: the first one is the primary. ``version``: year and month of Slurm's release.

    ``reimage_command``: what the controllers run to reboot nodes; empty: the nodes run /usr/sbin/reboot.
    ``container_directory``: where nodes have the containers of jobs; empty: jobs have none.
    """

    scheduler: str
    cluster: str
    version: tuple[int, int]
    controllers: tuple[str, ...]
    partitions: tuple[SlurmPartition, ...]
    accounting: Accounting | None
    prolog: str
    epilog: str
    reimage_command: tuple[str, ...]
    state_directory: str
    container_directory: str
    options: Mapping[str, str]
    checkpoint: Mapping[str, Any]

    @property
    def nodes(self) -> list[str]:
        """Return the nodes of all partitions, each once."""
        return list(dict.fromkeys(node for partition in self.partitions for node in partition.nodes))


def read(data: Mapping[str, Any], groups: Mapping[str, Iterable[str]], planned: Iterable[str]) -> SchedulerRequest:
    """Return the checked settings. ``planned``: the settings of slurm.conf that the plan makes. Raises SchedulerError.

    ``groups`` has the hosts of each group of the inventory.
    """
    settings = Settings(SchedulerError, "scheduler", data)
    settings.only("scheduler", "cluster", "controllers", "partitions", "checkpoint", *_OF_SLURM)
    scheduler = settings.value("scheduler", values.among(*SCHEDULERS), "slurm")
    for name in _OF_SLURM if scheduler == "lsf" else ():
        if name in data:
            raise settings.refuse_setting(name, "LSF has no such setting", "leave it out")
    word = values.matching(_WORD, "use letters, digits, '_', '.' and '-'")
    return SchedulerRequest(
        scheduler=scheduler,
        cluster=settings.value("cluster", word, "cluster"),
        version=_version(settings),
        controllers=tuple(_needed(settings, "controllers", values.distinct(word))),
        partitions=_partitions(settings, groups),
        accounting=_accounting(settings, word),
        prolog=settings.value("prolog", values.path, ""),
        epilog=settings.value("epilog", values.path, ""),
        reimage_command=tuple(settings.value("reimage_command", values.texts, [])),
        state_directory=settings.value("state_directory", values.path, "/var/lib/slurm/slurmctld"),
        container_directory=settings.value(
            "container_directory", values.matching(DIRECTORY, 'write it like "/scratch/containers"'), ""
        ),
        checkpoint=_checkpoint(settings),
        options=_options(settings, {*(name.lower() for name in planned), *_LINES}),
    )


def _needed(settings: Settings, name: str, check: values.Check) -> list[Any]:
    elements = settings.required(name, check)
    if not elements:
        raise settings.refuse_setting(name, "the list is empty", "name at least one")
    return elements


def _version(settings: Settings) -> tuple[int, int]:
    text = settings.value("version", values.matching(_VERSION, 'write it like "22.05"'), "22.05")
    year, month = text.split(".")[:2]
    return int(year), int(month)


def _checkpoint(settings: Settings) -> Mapping[str, Any]:
    if "checkpoint" not in settings.data:
        return {}
    part = settings.part("checkpoint")
    part.only("gb", "write_gb_s", "failures", "node_days", "published")
    part.need("gb", "write_gb_s")
    return part.data


def _accounting(settings: Settings, word: values.Check) -> Accounting | None:
    if "accounting" not in settings.data:
        return None
    checks = dict.fromkeys(("host", "database", "storage_host", "user"), word)
    return settings.part("accounting").load(Accounting, checks)


def _partitions(settings: Settings, groups: Mapping[str, Iterable[str]]) -> tuple[SlurmPartition, ...]:
    partitions: list[SlurmPartition] = []
    for part in settings.parts("partitions"):
        part.only("name", "groups", "default", "max_time", "options")
        name = part.required("name", values.matching(_WORD, "use letters, digits, '_', '.' and '-'"))
        if name.lower() == _DEFAULT:
            raise part.refuse(f"{name!r} means something else in slurm.conf", "give the partition another name")
        if name.lower() in (earlier.name.lower() for earlier in partitions):
            raise part.refuse(f"there are two partitions of the name {name}", "give each its own name")
        partition = SlurmPartition(
            name,
            tuple(_nodes(part, groups)),
            part.value("default", values.flag, False),
            part.value("max_time", values.matching(_TIME, 'write it like "2-00:00:00" or UNLIMITED'), ""),
            _options(part, {"nodes", "default", "maxtime"}),
        )
        if partition.is_default and any(earlier.is_default for earlier in partitions):
            raise part.refuse("there are two default partitions", "set default: true for one of them")
        partitions.append(partition)
    if not partitions:
        raise settings.refuse_setting("partitions", "there is none", "add {name: gpu, groups: [gpu_nodes]}")
    return tuple(partitions)


def _nodes(part: Settings, groups: Mapping[str, Iterable[str]]) -> list[str]:
    nodes: dict[str, None] = {}
    for group in _needed(part, "groups", values.distinct(values.text)):
        if group not in groups:
            suggestion = nearest(group, groups)
            remedy = f"did you mean {suggestion}?" if suggestion else f"the inventory has {', '.join(sorted(groups))}"
            raise part.refuse(f"the inventory has no group {group}", remedy)
        hosts = list(groups[group])
        if not hosts:
            raise part.refuse(f"group {group} has no hosts", "add hosts, or leave the group out")
        nodes.update(dict.fromkeys(hosts))
    for node in nodes:
        if not _WORD.fullmatch(node) or node.lower() in (_DEFAULT, _ALL):
            remedy = f"use letters, digits, '_', '.' and '-', and neither {_DEFAULT} nor {_ALL}"
            raise part.refuse(f"{node!r} cannot be the name of a node", remedy)
    return list(nodes)


def _options(settings: Settings, planned: set[str]) -> dict[str, str]:
    options = {}
    for name, value in settings.value("options", values.by_name, {}).items():
        text = "yes" if value is True else "no" if value is False else str(value)
        if not _OPTION.fullmatch(name):
            raise settings.refuse_setting(f"options.{name}", "Slurm has no such setting", "look for a typing error")
        if name.lower() in planned:
            raise settings.refuse_setting(f"options.{name}", "the plan makes it", "leave it out")
        if not _VALUE.fullmatch(text):
            raise settings.refuse_setting(
                f"options.{name}", f"{text!r} cannot be a value of Slurm", "write it without blanks, quotes and '#'"
            )
        options[name] = text
    return options
