# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The storage that a node shall have: local file systems, NFS and S3, each setting checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import (
    InvalidValueError,
    among,
    distinct,
    flag,
    matching,
    path,
    within,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

# A label of XFS has 12 characters (xfs_format.h, XFSLABEL_MAX); those of single drives end with up to two digits. A
# name without a digit at its end cannot be the label of another's drive.
NAME = matching(
    re.compile(r"[a-z]([a-z0-9]{0,8}[a-z])?"), "use 1 to 10 small letters and digits, a letter first and last"
)
PCI_ADDRESS = matching(
    re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]"),
    "write a PCI address as recordings have it: 0000:5e:00.0",
)
ACCOUNT = matching(re.compile(r"[a-z_][a-z0-9_-]*|\d+"), "give the name or the number of a user or group")
MODE = matching(re.compile(r"[0-7]{4}"), 'write four octal digits in quotes: "0770"')
SOURCE = matching(re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):/[\w./@+-]*", re.ASCII), "write SERVER:/PATH")
OPTION = matching(re.compile(r"[a-z_]+(=[\w.:/-]+)?", re.ASCII), "give one option of nfs(5), such as nconnect=8")
BUCKET = matching(re.compile(r"[a-z0-9][a-z0-9.-]+(/[\w.=-]+)*", re.ASCII), "write BUCKET or BUCKET/PREFIX")
ENDPOINT = matching(re.compile(r"https?://[\w.:\[\]/-]+", re.ASCII), "write https://HOST[:PORT]")
WORD = matching(re.compile(r"[\w-]+", re.ASCII), "use letters, digits, '_' and '-'")
# What is in a file of the environment needs no quotes.
KEY = matching(re.compile(r"[\w+/=.-]+", re.ASCII), "look for a typing error; the value is not shown")
STRIPE, SINGLE = "stripe", "single"
# The mode of the directory by purpose.
MODES = {"scratch": "1777", "cache": "0700", "checkpoints": "0755"}
# The options of nfs(5) that have a setting of their own.
SET_ELSEWHERE = ("fsc", "proto", "rdma", "tcp", "port")
RDMA_PORT = 20049


def plain_path(value: Any) -> str:
    """Return an absolute path that means the same to systemd. Raises InvalidValueError."""
    checked = path(value)
    if not re.fullmatch(r"/[\w./-]+", checked, re.ASCII):
        raise InvalidValueError(f"{checked!r} is no path of plain characters", "use letters, digits and '_-./'")
    return checked


@dataclass(frozen=True)
class LocalStorage:
    """File systems on local drives: ``drives`` by PCI address, or ``count`` drives of ``numa_node``.

    ``keep``: a file system that has the label when the node was imaged again is used on; otherwise it is made anew.
    ``mode``, ``owner`` and ``group`` are those of the directory, which ``purpose`` gives its mode.
    """

    name: str
    path: str
    drives: tuple[str, ...] = ()
    numa_node: int = -1
    count: int = 0
    layout: str = STRIPE
    purpose: str = "scratch"
    keep: bool = True
    owner: str = "root"
    group: str = "root"
    mode: str = ""

    @property
    def is_striped(self) -> bool:
        """Return whether its drives are one array. One drive needs none."""
        return self.layout == STRIPE and self.count > 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of its file systems: the name, or with a number for each of several single drives."""
        if self.is_striped or self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}{number}" for number in range(self.count))

    def path_of(self, label: str) -> str:
        """Return where the file system with a label is mounted."""
        return self.path + label[len(self.name) :]


@dataclass(frozen=True)
class NfsMount:
    """An NFS export. ``cache``: the local storage in which cachefilesd keeps what was read; "" for none."""

    source: str
    path: str
    rdma: bool = False
    cache: str = ""
    options: tuple[str, ...] = ()

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Return the options of nfs(5)."""
        transport = ("proto=rdma", f"port={RDMA_PORT}") if self.rdma else ()
        return (*transport, *(("fsc",) if self.cache else ()), *self.options)


@dataclass(frozen=True)
class S3Mount:
    """A bucket, or a part of it, as files. ``cache``: the local storage of rclone's cache, and its limits."""

    name: str
    endpoint: str
    bucket: str
    path: str
    cache: str
    size_gib: int
    min_free_gib: int = 0  # 0 for no limit
    read_only: bool = False
    provider: str = "Other"
    region: str = ""


@dataclass(frozen=True)
class S3Keys:
    """The keys of an S3Mount, secret."""

    access_key_id: str
    secret_access_key: str


@dataclass(frozen=True)
class StorageRequest:
    """All storage of a node. ``keys``: by name of the S3Mount; without them a file on the node has them."""

    local: tuple[LocalStorage, ...]
    nfs: tuple[NfsMount, ...]
    s3: tuple[S3Mount, ...]
    keys: Mapping[str, S3Keys]

    @property
    def mounts(self) -> dict[str, str]:
        """Return what is mounted, by path."""
        local = {mount.path_of(label): f"the file system {label}" for mount in self.local for label in mount.labels}
        return {
            **local,
            **{mount.path: mount.source for mount in self.nfs},
            **{mount.path: f"the bucket {mount.bucket}" for mount in self.s3},
        }

    def cache_path(self, name: str) -> str:
        """Return the path of the local storage ``name``."""
        return next(storage.path_of(storage.labels[0]) for storage in self.local if storage.name == name)

    @property
    def nfs_cache(self) -> str:
        """Return the local storage of cachefilesd; "" for none."""
        return next((nfs.cache for nfs in self.nfs if nfs.cache), "")


def read_request(data: Mapping[str, Any]) -> StorageRequest:
    """Return the checked settings of ``local``, ``nfs``, ``s3`` and ``s3_keys``. Raises RequestError."""
    settings = Settings(RequestError, "storage_client", data)
    request = StorageRequest(
        tuple(_local(part) for part in settings.parts("local")),
        tuple(_nfs(part) for part in settings.parts("nfs")),
        tuple(_s3(part) for part in settings.parts("s3")),
        _keys(settings.part("s3_keys")),
    )
    _check_together(settings, request)
    return request


def _local(part: Settings) -> LocalStorage:
    drives = tuple(part.value("drives", distinct(PCI_ADDRESS), []))
    has_node = "numa_node" in part.data
    if bool(drives) == has_node:
        raise part.refuse("give either drives or numa_node", "name the drives by PCI address, or a node with count")
    if has_node:
        part.need("count")
    elif "count" in part.data:
        raise part.refuse_setting("count", "it belongs to numa_node", "leave it out: drives names them all")
    purpose = part.value("purpose", among(*MODES), "scratch")
    fixed = {"drives": drives, "count": len(drives), "mode": MODES[purpose], "path": f"/{part.required('name', NAME)}"}
    checks = {
        "name": NAME,
        "path": plain_path,
        "drives": lambda _value: drives,
        "numa_node": within(0, 1023),
        "count": within(1, 64),
        "layout": among(STRIPE, SINGLE),
        "purpose": among(*MODES),
        "keep": flag,
        "owner": ACCOUNT,
        "group": ACCOUNT,
        "mode": MODE,
    }
    local: LocalStorage = part.load(LocalStorage, checks, **fixed)
    if purpose == "checkpoints" and not local.keep:
        raise part.refuse_setting("keep", "checkpoints would be lost", "leave keep at true, or use another purpose")
    return local


def _nfs(part: Settings) -> NfsMount:
    checks = {
        "source": SOURCE,
        "path": plain_path,
        "rdma": flag,
        "cache": NAME,
        "options": lambda value: tuple(distinct(OPTION)(value)),
    }
    nfs: NfsMount = part.load(NfsMount, checks)
    for option in nfs.options:
        if option.partition("=")[0] in SET_ELSEWHERE:
            raise part.refuse_setting("options", f"{option} has a setting of its own", "use rdma and cache")
    return nfs


def _s3(part: Settings) -> S3Mount:
    checks = {
        "name": NAME,
        "endpoint": ENDPOINT,
        "bucket": BUCKET,
        "path": plain_path,
        "cache": NAME,
        "size_gib": within(1, 1 << 20, "GiB"),
        "min_free_gib": within(1, 1 << 20, "GiB"),
        "read_only": flag,
        "provider": WORD,
        "region": WORD,
    }
    s3: S3Mount = part.load(S3Mount, checks)
    return s3


def _keys(part: Settings) -> dict[str, S3Keys]:
    keys = {}
    for name in part.data:
        key = part.part(name)
        key.only("access_key_id", "secret_access_key")
        key.need("access_key_id", "secret_access_key")
        try:
            keys[name] = S3Keys(KEY(key.data["access_key_id"]), KEY(key.data["secret_access_key"]))
        except InvalidValueError:  # its cause shows the value
            raise key.refuse("a key has other characters than keys of S3 have", "look at the vault") from None
    return keys


def _check_together(settings: Settings, request: StorageRequest) -> None:
    names = [entry.name for entry in request.local]
    paths = [entry.path_of(label) for entry in request.local for label in entry.labels]
    users: list[NfsMount | S3Mount] = [*request.nfs, *request.s3]
    paths += [user.path for user in users]
    drives = [address for entry in request.local for address in entry.drives]
    s3_names = [entry.name for entry in request.s3]
    for title, listed in (("name", names), ("path", paths), ("drive", drives), ("name of s3", s3_names)):
        twice = sorted({item for item in listed if listed.count(item) > 1})
        if twice:
            raise settings.refuse(f"the {title} {twice[0]} is used twice", "give each its own")
    by_name = {entry.name: entry for entry in request.local}
    for user in users:
        if user.cache and user.cache not in by_name:
            raise settings.refuse(f"{user.path}: cache: there is no local storage {user.cache}", "name one of local")
    if len({entry.cache for entry in request.nfs if entry.cache}) > 1:
        raise settings.refuse("nfs: the kernel has one cache for all NFS", "name the same local storage in each cache")
    for s3 in request.s3:
        if not s3.read_only and not by_name[s3.cache].keep:
            raise settings.refuse(
                f"{s3.path}: what is written, and not yet uploaded, would be lost with the cache {s3.cache}",
                f"set read_only: true, or keep: true for {s3.cache}",
            )
    unknown = sorted(set(request.keys) - set(s3_names))
    if unknown:
        raise settings.refuse(f"s3_keys: there is no bucket {unknown[0]} in s3", "use the names of s3")
