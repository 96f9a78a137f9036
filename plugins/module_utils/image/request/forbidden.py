# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remove files that must not be in an image, and files that do not belong to the layer."""

from __future__ import annotations

import errno
import filecmp
import fnmatch
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import inside
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats.listing import is_whiteout

# Directories over which something is mounted at boot, or whose content belongs to one running machine.
EMPTIED = ("dev", "proc", "sys", "run", "tmp", "var/tmp", "var/lib/systemd/coredump", "lost+found")
# Only the files in these are removed; their directories stay, since services expect them.
FILES_GO = ("var/log", "var/cache")
# debconf's answers are in a cache directory but are not a cache: the layer above needs them.
KEPT = ("var/cache/debconf",)
# Globs of files that are random or specific to the node or the build.
REMOVED = (
    # Keys that all nodes would share.
    *("etc/ssh/ssh_host_*_key", "etc/ssh/ssh_host_*_key.pub"),
    *("etc/munge/munge.key", "etc/bind/rndc.key", "etc/dropbear/dropbear_*_host_key"),
    *("etc/ssl/private/ssl-cert-snakeoil.key", "etc/ssl/certs/ssl-cert-snakeoil.pem"),
    *("var/lib/NetworkManager/secret_key", "var/lib/NetworkManager/seen-bssids"),
    # The key with which DKMS signs modules (dkms(8), mok_signing_key; on Ubuntu the other), and logs, which have times.
    *("var/lib/dkms/mok.key", "var/lib/dkms/mok.pub", "var/lib/shim-signed/mok"),
    *("var/lib/dkms/*/*/build", "var/lib/dkms/*/*/*/*/log"),
    # Names and seeds that must differ between nodes; the services create them.
    *("etc/nvme/hostid", "etc/nvme/hostnqn", "etc/iscsi/initiatorname.iscsi", "var/lib/dbus/machine-id"),
    *("var/lib/systemd/random-seed", "var/lib/systemd/credential.secret", "var/lib/urandom/random-seed"),
    # shadow's copies of the previous files.
    *(f"etc/{name}-" for name in ("passwd", "shadow", "group", "gshadow", "subuid", "subgid")),
    # The node fetches our first stage and a kernel by HTTP, and reads neither from its root.
    *("boot/initrd*", "boot/initramfs*", "boot/vmlinuz*", "boot/System.map*", "boot/.vmlinuz*", "boot/loader"),
    *("vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old", "usr/lib/modules/*/vmlinuz", "lib/modules/*/vmlinuz"),
    *("root/.ansible", "root/.bash_history", "root/.cache", "root/.wget-hsts", "root/.lesshst"),
)
# machine-id(5): if the file is empty, an ID is made at each boot. With "uninitialized", each boot would count as the
# first: systemd-firstboot would wait for input at the console, and systemd would apply its presets, which enable units
# that the image has disabled.
MACHINE_ID = ""
DAY_S = 86400
OVERLAY = "trusted.overlay."
# squashfs cannot store ACLs (system.posix_acl_*); systemd-tmpfiles sets those of the journal again at boot.
NOT_KEPT = (OVERLAY, "system.")
OPAQUE = "trusted.overlay.opaque"


def takes_away(path: str) -> bool:
    """Return whether ``normalise`` removes a file at this absolute path, by its name."""
    parts = path.strip("/").split("/")

    def below(pattern: str) -> bool:
        wanted = pattern.split("/")
        return len(wanted) <= len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))

    if any(map(below, KEPT)):
        return False
    return any(map(below, (*EMPTIED, *FILES_GO, *REMOVED)))


def normalise(root: Path, epoch: int) -> None:
    """Remove files from ``root`` that differ between builds or must differ between nodes. ``epoch``: s since 1970."""
    for name in EMPTIED:
        folder = _own(root, name)
        if folder and folder.is_dir():
            for entry in list(folder.iterdir()):
                _remove(entry)
    for name in FILES_GO:
        folder = _own(root, name)
        for path in (
            _files_below(folder, [root / kept_path for kept_path in KEPT]) if folder and folder.is_dir() else []
        ):
            path.unlink()
    for pattern in REMOVED:
        for path in sorted(root.glob(pattern)):
            if _own(root, os.fspath(path.parent.relative_to(root))) or path.parent == root:
                _remove(path)
    machine_id = inside(root, "/etc/machine-id")
    if machine_id.parent.is_dir() and (machine_id.is_symlink() or _text(machine_id) != MACHINE_ID):
        machine_id.unlink(missing_ok=True)
        machine_id.write_text(MACHINE_ID)
        machine_id.chmod(0o444)
    _shadow(root, epoch)


def prune(upper: Path, parent: Path, epoch: int) -> None:
    """Remove from overlayfs's ``upper`` all that equals ``parent`` (the tree below it), and overlayfs's own attributes.

    The result depends only on the content, not on the kernel or on which files a package manager rewrote.
    """
    _strip(upper)  # since Linux 6.6, it has a random UUID as an attribute
    _prune(upper, parent)
    status = parent.stat()
    os.chown(upper, status.st_uid, status.st_gid)
    upper.chmod(stat.S_IMODE(status.st_mode))
    os.utime(upper, (epoch, epoch))


def _prune(upper: Path, parent: Path, opaque: bool = False) -> None:
    for entry in sorted(upper.iterdir()):
        lower = parent / entry.name
        status = entry.lstat()
        lower_status = lower.lstat() if os.path.lexists(lower) else None
        if is_whiteout(status):
            if lower_status is None:
                entry.unlink()
        elif stat.S_ISDIR(status.st_mode):
            _prune_folder(entry, lower, lower_status, opaque)
        else:
            _strip(entry)
            if lower_status is not None and _equal(entry, status, lower, lower_status):
                entry.unlink()


def _prune_folder(entry: Path, lower: Path, lower_status: os.stat_result | None, opaque: bool) -> None:
    # All directories in an opaque directory are opaque, even if overlayfs does not mark them (as ovl_create_upper in
    # Linux' fs/overlayfs/dir.c).
    opaque = opaque or OPAQUE in _xattr_names(entry)
    if lower_status is None or not stat.S_ISDIR(lower_status.st_mode):
        # There is nothing below to hide: overlayfs may or may not set "opaque" here, and a whiteout removes nothing.
        _strip_tree(entry)
        return
    if opaque:
        # A whiteout for each name that it hides replaces the attribute. The layer then needs no attribute that only
        # root can read, and its listing is complete.
        names = {path.name for path in entry.iterdir()}
        for hidden in lower.iterdir():
            if hidden.name not in names:
                os.mknod(entry / hidden.name, stat.S_IFCHR, os.makedev(0, 0))
    _strip(entry)
    _prune(entry, lower, opaque)
    if not any(entry.iterdir()) and _same_inode(entry, entry.lstat(), lower, lower_status):
        entry.rmdir()


def _strip_tree(folder: Path) -> None:
    _strip(folder)
    for entry in sorted(folder.iterdir()):
        status = entry.lstat()
        if is_whiteout(status):
            entry.unlink()
        elif stat.S_ISDIR(status.st_mode):
            _strip_tree(entry)
        else:
            _strip(entry)


def _strip(path: Path) -> None:
    """Remove overlayfs's attributes (the origin of a file, the mark of a directory with changes)."""
    for name in _xattr_names(path):
        if name.startswith(OVERLAY):
            os.removexattr(path, name, follow_symlinks=False)


def _equal(entry: Path, status: os.stat_result, lower: Path, lower_status: os.stat_result) -> bool:
    if not _same_inode(entry, status, lower, lower_status):
        return False
    if stat.S_ISREG(status.st_mode):
        return status.st_size == lower_status.st_size and filecmp.cmp(entry, lower, shallow=False)
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(entry) == os.readlink(lower)
    return status.st_rdev == lower_status.st_rdev


def _same_inode(entry: Path, status: os.stat_result, lower: Path, lower_status: os.stat_result) -> bool:
    """Return whether type, mode, owner, group and extended attributes are the same; times are not compared."""
    return (status.st_mode, status.st_uid, status.st_gid) == (
        lower_status.st_mode,
        lower_status.st_uid,
        lower_status.st_gid,
    ) and _xattrs(entry) == _xattrs(lower)


def _xattrs(path: Path) -> dict[str, bytes]:
    return {
        name: os.getxattr(path, name, follow_symlinks=False)
        for name in _xattr_names(path)
        if not name.startswith(NOT_KEPT)
    }


def _xattr_names(path: Path) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        # A squashfs without any attribute does not support them.
        if error.errno == errno.ENOTSUP:
            return []
        raise


def _own(root: Path, name: str) -> Path | None:
    """Return the path of ``name`` in the image; None if a link leads elsewhere, where the target has its own name."""
    path = inside(root, f"/{name}")
    return path if path == root / name and not path.is_symlink() else None


def _files_below(folder: Path, kept_paths: list[Path]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry in kept_paths or entry.is_symlink():
            continue
        if entry.is_dir():
            yield from _files_below(entry, kept_paths)
        else:
            yield entry


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _text(path: Path) -> str | None:
    return path.read_text(errors="replace") if path.is_file() else None


def _shadow(root: Path, epoch: int) -> None:
    """Limit the days of password changes (shadow(5), field 3) to that of ``epoch``; some tools write today's date."""
    path = _own(root, "etc/shadow")
    if path is None or not path.is_file():
        return
    day = epoch // DAY_S
    old = path.read_text()

    def clamped(match: re.Match[str]) -> str:
        return match.group(1) + str(min(int(match.group(2)), day)) + ":"

    new = re.sub(r"^([^:\n]*:[^:\n]*:)(\d+):", clamped, old, flags=re.MULTILINE)
    if new != old:
        path.write_text(new)
