# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The systemd units of a node's storage, and the files that they read. Pure.

Each unit is ordered before slurmd, so that no job starts on a node without its storage.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import NfsMount, S3Mount, StorageRequest

BOOT_UNIT = "sailloft-storage.service"
CACHE_UNIT, CACHE_CONFIG = "sailloft-cachefilesd.service", "/etc/sailloft/cachefilesd.conf"
S3_UNIT, S3_KEYS = "sailloft-s3-{}.service", "/etc/sailloft/s3_{}.env"
HEAD = "# Written by sailloft.fleet.storage_client; changes here are lost.\n"
# The file systems of drives are made by a service, which starts later than systemd's local mounts. Without default
# dependencies, a target that wants a unit does not wait for it: systemd.target(5). If the service fails, a drive may be
# another node's, or a part of a stripe: it is not mounted, and the health check tells.
# By "/dev/disk/by-label" the mount would also wait for the device, and fail after 90 s (DefaultDeviceTimeoutSec), also
# while the service makes the file system.
LOCAL = """[Unit]
Description=Local storage {label} (Sailloft)
DefaultDependencies=no
Conflicts=umount.target
Requires={boot}
After={boot}
Before=umount.target multi-user.target slurmd.service

[Mount]
What=LABEL={label}
Where={path}
Type=xfs
Options=noatime

[Install]
WantedBy=multi-user.target
"""
NFS = """[Unit]
Description={source} (Sailloft)
Wants=network-online.target{requires}
After=network-online.target{after}
Before=slurmd.service

[Mount]
What={source}
Where={path}
Type=nfs
Options={options}

[Install]
WantedBy=remote-fs.target
"""
# cachefilesd(8): -n stays in the foreground. Only one daemon can have the kernel's cache.
CACHE = """[Unit]
Description=Cache of NFS (Sailloft)
Conflicts=cachefilesd.service
RequiresMountsFor={cache}
Before=slurmd.service

[Service]
ExecStartPre=-/sbin/modprobe cachefiles
ExecStartPre=/bin/mkdir -p {directory}
ExecStart=/sbin/cachefilesd -n -f {config}
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
# cachefilesd.conf(5). Objects are removed when less than bcull of the blocks (fcull of the files) are free, until brun
# (frun) are; below bstop (fstop) nothing is added. These are the kernel's defaults.
CACHE_LIMITS = """dir {directory}
tag sailloft
brun 7%
bcull 5%
bstop 1%
frun 7%
fcull 5%
fstop 1%
"""
# rclone takes its configuration from the environment. The keys are in a file that only root may read.
S3 = """[Unit]
Description=S3 bucket {bucket} (Sailloft)
Wants=network-online.target
After=network-online.target
RequiresMountsFor={cache}
StartLimitIntervalSec=0
Before=slurmd.service

[Service]
Type=notify
{environment}
EnvironmentFile=-{keys}
ExecStartPre=/bin/mkdir -p {path} {directory}
ExecStart=/usr/bin/rclone mount {name}:{bucket} {path} {flags}
ExecStop=/bin/fusermount3 -u {path}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class WantedUnit:
    """A unit. ``reads``: the files besides its own after whose change it is restarted."""

    name: str
    text: str
    wanted_by: str = "multi-user.target"
    reads: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Return its path."""
        return f"/etc/systemd/system/{self.name}"

    @property
    def wants(self) -> str:
        """Return the link that starts it at boot."""
        return f"/etc/systemd/system/{self.wanted_by}.wants/{self.name}"


def mount_unit(path: str) -> str:
    """Return the name of the unit of a mount point, as systemd-escape(1) makes it."""

    def escaped(position: int, character: str) -> str:
        is_plain = character.isascii() and (character.isalnum() or character in ":_" or (character == "." and position))
        return "-" if character == "/" else character if is_plain else f"\\x{ord(character):02x}"

    return "".join(escaped(*pair) for pair in enumerate(path.strip("/"))) + ".mount"


def wanted(request: StorageRequest) -> list[WantedUnit]:
    """Return the units in the order in which they start."""
    units = [
        WantedUnit(mount_unit(path), HEAD + LOCAL.format(label=label, path=path, boot=BOOT_UNIT))
        for storage in request.local
        for label in storage.labels
        for path in (storage.path_of(label),)
    ]
    if request.nfs_cache:
        terms = {"cache": request.cache_path(request.nfs_cache), "directory": cache_directory(request)}
        text = HEAD + CACHE.format(config=CACHE_CONFIG, **terms)
        units.append(WantedUnit(CACHE_UNIT, text, reads=(CACHE_CONFIG,)))
    units += [_nfs(nfs) for nfs in request.nfs]
    return [*units, *(_s3(s3, request) for s3 in request.s3)]


def cache_directory(request: StorageRequest) -> str:
    """Return the directory of cachefilesd."""
    return f"{request.cache_path(request.nfs_cache)}/cachefilesd"


def config_files(request: StorageRequest) -> dict[str, str]:
    """Return the text of the files that units read, without secret ones."""
    return {CACHE_CONFIG: HEAD + CACHE_LIMITS.format(directory=cache_directory(request))} if request.nfs_cache else {}


def secret_files(request: StorageRequest) -> dict[str, str]:
    """Return the text of the files of keys."""
    return {
        S3_KEYS.format(name): f"{HEAD}AWS_ACCESS_KEY_ID={keys.access_key_id}\n"
        f"AWS_SECRET_ACCESS_KEY={keys.secret_access_key}\n"
        for name, keys in request.keys.items()
    }


def health(request: StorageRequest) -> tuple[list[str], list[str]]:
    """Return the paths that must be mounted and the units that must be active, for the health check."""
    services = [unit.name for unit in wanted(request) if unit.name.endswith(".service")]
    return list(request.mounts), [*([BOOT_UNIT] if request.local else []), *services]


def _nfs(nfs: NfsMount) -> WantedUnit:
    unit = f" {CACHE_UNIT}" if nfs.cache else ""
    text = NFS.format(
        source=nfs.source,
        path=nfs.path,
        options=",".join(nfs.mount_options) or "defaults",
        requires=unit,
        after=unit,
    )
    return WantedUnit(mount_unit(nfs.path), HEAD + text, "remote-fs.target")


def _s3(s3: S3Mount, request: StorageRequest) -> WantedUnit:
    directory = f"{request.cache_path(s3.cache)}/rclone"
    settings = {
        "TYPE": "s3",
        "PROVIDER": s3.provider,
        "ENDPOINT": s3.endpoint,
        "REGION": s3.region,
        "ENV_AUTH": "true",
        # rclone would try to make a bucket that it may not list.
        "NO_CHECK_BUCKET": "true",
    }
    flags = [
        "--config=",
        "--allow-other",
        f"--cache-dir={directory}",
        "--vfs-cache-mode=full",
        f"--vfs-cache-max-size={s3.size_gib}G",
        # What is read once is read again, in weeks: only the size evicts.
        "--vfs-cache-max-age=10000h",
    ]
    flags += [f"--vfs-cache-min-free-space={s3.min_free_gib}G"] if s3.min_free_gib else []
    # Jobs of all users write to a bucket that is not read-only.
    flags += ["--read-only"] if s3.read_only else ["--umask=000", "--dir-perms=0777", "--file-perms=0666"]
    environment = "\n".join(
        f"Environment=RCLONE_CONFIG_{s3.name.upper()}_{key}={value}" for key, value in settings.items() if value
    )
    keys = S3_KEYS.format(s3.name)
    text = S3.format(
        name=s3.name,
        bucket=s3.bucket,
        path=s3.path,
        cache=request.cache_path(s3.cache),
        directory=directory,
        environment=environment,
        flags=" ".join(flags),
        keys=keys,
    )
    return WantedUnit(S3_UNIT.format(s3.name), HEAD + text, reads=(keys,))
