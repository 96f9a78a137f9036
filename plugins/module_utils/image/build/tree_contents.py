# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Put the users, files and services of a layer into the image's tree."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import File, Layer, User
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    Run,
    ToolError,
    file_inside,
    inside,
)


def apply(root: Path, layer: Layer, run: Run) -> None:
    """Put the layer's users, then its files, then its services into ``root``. Raises ImageError."""
    for user in layer.users:
        _user(root, layer, user, run)
    for file in layer.files:
        _file(root, layer, file)
    for action, units in (
        ("enable", layer.services.enabled),
        ("disable", layer.services.disabled),
        ("mask", layer.services.masked),
    ):
        if units:
            _services(root, layer, action, units, run)


def _services(root: Path, layer: Layer, action: str, units: tuple[str, ...], run: Run) -> None:
    try:
        run(entered(root, ["systemctl", f"--root={root}", action, "--", *units]))
    except ToolError as error:
        reason = " / ".join(line for line in error.output.strip().splitlines()) or "it gave no reason"
        raise ImageError(
            f"systemctl {action} {' '.join(units)}: {reason}",
            "correct the unit's name, or add the package that has it",
            subject=layer.subject,
        ) from error


def _user(root: Path, layer: Layer, user: User, run: Run) -> None:
    subject = f"layer {layer.name}: user {user.name}"
    if not file_inside(root, user.shell.lstrip("/")):
        raise ImageError(f"its shell {user.shell} is not in the image", "add the package that has it", subject=subject)
    account = _account(root, "passwd", user.name)
    command = ["usermod"] if account else ["useradd", "--create-home", "--user-group"]
    groups = ["--append", "--groups", ",".join(user.groups)] if account else ["--groups", ",".join(user.groups)]
    try:
        run(
            entered(
                root,
                [
                    "chroot",
                    os.fspath(root),
                    *command,
                    "--shell",
                    user.shell,
                    *(groups if user.groups else []),
                    user.name,
                ],
            )
        )
    except ToolError as error:
        reason = " / ".join(error.output.strip().splitlines()) or "it gave no reason"
        remedy = (
            "create the group with a package, or correct its name"
            if "group" in reason
            else "add passwd to its packages"
        )
        raise ImageError(reason, remedy, subject=subject) from error
    if not user.authorized_keys:
        return
    fields = _required_account(root, subject, "passwd", user.name)
    owner, group, home = int(fields[2]), int(fields[3]), fields[5]
    path = inside(root, f"{home}/.ssh/authorized_keys")
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
        os.chown(path.parent, owner, group)
    _write(path, "".join(f"{key}\n" for key in user.authorized_keys).encode(), 0o600, owner, group)


def _file(root: Path, layer: Layer, file: File) -> None:
    subject = f"layer {layer.name}: file {file.path}"
    owner, group = _number(root, subject, "passwd", file.owner), _number(root, subject, "group", file.group)
    try:
        data = _data(subject, file)
    except OSError as error:
        raise ImageError(
            f"cannot read {file.source}: {error.strerror}", "give a file on the build host", subject=subject
        ) from error
    path = inside(root, file.path)
    if path.is_dir() and not path.is_symlink():
        raise ImageError("is a directory in the image", "give the path of a file", subject=subject)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ImageError(
            f"{error.filename} is not a directory in the image", "correct the path", subject=subject
        ) from error
    _write(path, data, int(file.mode, 8), owner, group)


def _data(subject: str, file: File) -> bytes:
    if file.source is not None:
        return Path(file.source).read_bytes()
    if file.content is None:
        raise ImageError("has neither content nor source", "give one of them", subject=subject)
    return file.content.encode()


def _write(path: Path, data: bytes, mode: int, owner: int, group: int) -> None:
    # Writing would follow a link, so the existing file is removed first.
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    os.chown(path, owner, group)
    os.chmod(path, mode)


def _account(root: Path, database: str, name: str) -> list[str] | None:
    """Return the fields of a name in the image's own /etc/passwd or /etc/group."""
    path = file_inside(root, f"etc/{database}")
    for line in path.read_text().splitlines() if path else []:
        fields = line.split(":")
        if fields[0] == name:
            return fields
    return None


def _number(root: Path, subject: str, database: str, name: str) -> int:
    if name.isdecimal():
        return int(name)
    return int(_required_account(root, subject, database, name)[2])


def _required_account(root: Path, subject: str, database: str, name: str) -> list[str]:
    """Return the fields as ``_account`` does. Raises ImageError, about ``subject``, if the image lacks the name."""
    fields = _account(root, database, name)
    if fields is None:
        noun = "user" if database == "passwd" else "group"
        raise ImageError(
            f"there is no {noun} {name} in the image", f"add the {noun}, or correct its name", subject=subject
        )
    return fields
