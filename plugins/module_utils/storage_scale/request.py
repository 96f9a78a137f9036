# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's request for Storage Scale clients, checked: the cluster, remote file systems, caches of buckets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings

# Access modes of mmafmcosconfig: read-only, single-writer, independent-writer, local-updates, manual-updates.
MODES = {
    "ro": "read-only",
    "sw": "single-writer",
    "iw": "independent-writer",
    "lu": "local-updates",
    "mu": "manual-updates",
}
# Without white space, quotes and what a shell expands: IBM's roles put these into command lines.
NAME = values.matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"), "use letters, digits, '.', '_' and '-'")
MOUNT = values.matching(re.compile(r"(/[A-Za-z0-9._-]+)+"), "give an absolute path of plain names")
ENDPOINT = values.matching(re.compile(r"https?://[A-Za-z0-9._:@/-]+"), "give the URL of the object storage")


class ScaleError(SailloftError):
    """A request or reading of Storage Scale that cannot be used."""


@dataclass(frozen=True)
class RemoteFileSystem:
    """A file system of another cluster: its name here and its mount point, its name there and that cluster."""

    name: str
    mount: str
    remote_name: str
    remote_cluster: str


@dataclass(frozen=True)
class BucketCache:
    """A fileset that AFM fills from a bucket. ``mode`` is a key of MODES."""

    file_system: str
    fileset: str
    endpoint: str
    bucket: str
    mode: str


@dataclass(frozen=True)
class ScaleRequest:
    """The request. ``rails`` are the numbers of the RDMA ports that Scale uses; empty: all."""

    cluster: str
    file_systems: tuple[RemoteFileSystem, ...]
    caches: tuple[BucketCache, ...]
    rails: tuple[int, ...]
    fabric_per_rail: bool
    gpudirect: bool


def options() -> dict[str, Any]:
    """Return the options of the modules as an argument_spec."""
    text = {"type": "str", "required": True}
    file_system = {"name": text, "mount": text, "remote_name": text, "remote_cluster": text}
    cache = {"file_system": text, "fileset": text, "endpoint": text, "bucket": text}
    mode = {"type": "str", "choices": list(MODES), "default": "iw"}
    return {
        "cluster": text,
        "file_systems": {"type": "list", "elements": "dict", "default": [], "options": file_system},
        "caches": {"type": "list", "elements": "dict", "default": [], "options": {**cache, "mode": mode}},
        "rails": {"type": "list", "elements": "int", "default": []},
        "fabric_per_rail": {"type": "bool", "default": False},
        "gpudirect": {"type": "bool", "default": False},
        "readings": {"type": "dict", "required": True},
    }


def read(data: dict[str, Any]) -> ScaleRequest:
    """Return the request in a module's arguments. Raises ScaleError."""
    settings = Settings(ScaleError, "storage_scale", data)
    file_systems = tuple(
        RemoteFileSystem(
            part.required("name", NAME),
            part.required("mount", MOUNT),
            part.required("remote_name", NAME),
            part.required("remote_cluster", NAME),
        )
        for part in settings.parts("file_systems")
    )
    caches = tuple(
        BucketCache(
            part.required("file_system", NAME),
            part.required("fileset", NAME),
            part.required("endpoint", ENDPOINT),
            part.required("bucket", NAME),
            part.value("mode", values.among(*MODES), "iw"),
        )
        for part in settings.parts("caches")
    )
    for title, names in (
        ("file_systems", [item.name for item in file_systems]),
        ("file_systems", [item.mount for item in file_systems]),
        ("caches", [f"{item.file_system}:{item.fileset}" for item in caches]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise settings.refuse_setting(title, f"{twice[0]} is there twice", "remove one of both")
    return ScaleRequest(
        settings.required("cluster", NAME),
        file_systems,
        caches,
        tuple(settings.value("rails", values.each(values.within(0, 255)), [])),
        settings.value("fabric_per_rail", values.flag, False),
        settings.value("gpudirect", values.flag, False),
    )
