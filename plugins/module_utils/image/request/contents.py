# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the files, users, services and roles of a requested layer."""

from __future__ import annotations

import difflib
import json
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import File, Role, Services, User
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import forbidden

# Portable names (useradd(8)), with shadow's limit of 32 characters.
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
USER_RULE = "use at most 32 lower-case letters, digits, '_' and '-', starting with a letter or '_'"
SHELL = re.compile(r"(/[A-Za-z0-9._+-]{1,255}){1,15}")
NUMBER = re.compile(r"[0-9]{1,10}")
# chown(2): an id of 32 bits; the largest, (uid_t)-1, means "do not change".
LARGEST_ID = 2**32 - 2
MODE = re.compile(r"0?[0-7]{3}|[0-7]{4}")
# systemd.unit(5): 255 characters with the type; none begins with "@".
UNIT = re.compile(r"(?![@.])[A-Za-z0-9:_.\\@-]{1,247}")
# systemd.unit(5)
UNIT_TYPES = ("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope")
ROLE = re.compile(r"(?=.{1,255}$)[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_]*){0,2}")
# sshd(8), AUTHORIZED_KEYS FILE FORMAT: options, key type, base64, comment.
PUBLIC_KEY = re.compile(
    r"([^\r\n]*[ \t])?(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com"
    r"|sk-ecdsa-sha2-nistp256@openssh\.com) [A-Za-z0-9+/]+=*([ \t][^\r\n]*)?"
)
# An absolute path without "." and "..".
PATH = re.compile(r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]+)+")
# NAME_MAX of Linux (limits.h), and half of its PATH_MAX: the build's own directory comes before the path.
LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 2048
# Directories over which something is mounted at boot, so that their content in the image would have no effect.
MOUNTED = ("/dev", "/proc", "/run", "/sys", "/tmp", "/var/lock", "/var/run")
# Files that must differ between nodes; in an image, they would be the same on all nodes.
OF_THE_NODE = re.compile(r"/etc/machine-id|/var/lib/dbus/machine-id|/etc/ssh/ssh_host_.*")


def read_files(settings: Settings) -> tuple[File, ...]:
    """Return the layer's files by path. Raises ImageError."""
    files: dict[str, File] = {}
    for item in settings.parts("files"):
        item.only("path", "content", "source", "mode", "owner", "group")
        path = item.required("path", values.text)
        good = path.startswith("/") and path == posixpath.normpath(path) and path.isprintable()
        if not good or path.startswith("//") or path == "/":
            raise item.refuse(f"path {path!r} is not an absolute path", "write it like /etc/motd, without '..' or '//'")
        names_fit = all(len(os.fsencode(name)) <= LONGEST_NAME_BYTES for name in path.split("/"))
        if not names_fit or len(os.fsencode(path)) > LONGEST_PATH_BYTES:
            raise item.refuse(
                f"path '{path[:40]}...' is longer than a file's can be",
                f"use at most {LONGEST_NAME_BYTES} bytes a name, and {LONGEST_PATH_BYTES} in all",
            )
        if any(path == folder or path.startswith(f"{folder}/") for folder in MOUNTED):
            raise item.refuse(f"{path} would be hidden by a mount at boot", "use another directory, or tmpfiles.d")
        if OF_THE_NODE.fullmatch(path):
            raise item.refuse(f"{path} would be the same on every node", "leave it out; a node gets its own")
        if forbidden.takes_away(path):
            raise item.refuse(
                f"{path} would be removed from the image again, like all logs, caches, keys and data of one machine",
                "use another directory; a node gets its secrets through node_identity",
            )
        if path in files:
            raise item.refuse(f"{path} is given twice", "give it once in a layer; a layer above may replace it")
        content, source = item.data.get("content"), item.data.get("source")
        if (content is None) == (source is None):
            raise item.refuse(
                f"{path} has {'neither content nor' if source is None else 'both content and'} source",
                "give one of them",
            )
        if not isinstance(content if source is None else source, str):
            raise item.refuse(f"the content or source of {path} is not text", "quote it")
        if content is not None and re.search("[\ud800-\udfff]", content):
            raise item.refuse(f"the content of {path} is not UTF-8", "give it as a file, with source")
        if source is not None and not source.startswith("/"):
            raise item.refuse(f"source {source!r} is not an absolute path", "give the file on the build host")
        owner, group = (item.value(setting, _account, "root") for setting in ("owner", "group"))
        files[path] = File(path, content, source, _mode(item), owner, group)
    for path in files:
        for folder in _folders(path):
            if folder in files:
                raise settings.refuse(f"{folder} is both a file and a parent directory of {path}", "remove one of them")
    return tuple(files[path] for path in sorted(files))


def _folders(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _mode(settings: Settings) -> str:
    return settings.value("mode", values.matching(MODE, 'write octal digits in quotes: "0644"'), "0644").zfill(4)


def _account(value: Any) -> str:
    """Return the name or number of a user or a group."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    is_number = isinstance(text, str) and NUMBER.fullmatch(text)
    if not isinstance(text, str) or not (USER.fullmatch(text) or is_number) or (is_number and int(text) > LARGEST_ID):
        raise InvalidValueError(f"{value!r} is not a valid name or number", "write it like root or 1000")
    return text


def read_users(settings: Settings) -> tuple[User, ...]:
    """Return the layer's users. Raises ImageError."""
    users: dict[str, User] = {}
    for item in settings.parts("users"):
        item.only("name", "groups", "shell", "authorized_keys")
        name = item.required("name", values.matching(USER, USER_RULE))
        if name in users:
            raise item.refuse(f"user {name} is given twice", "give the user once in a layer")
        groups = item.value("groups", values.distinct(values.matching(USER, USER_RULE)), [])
        shell = item.value("shell", values.matching(SHELL, "write an absolute path, like /bin/bash"), "/bin/bash")
        keys = item.value("authorized_keys", values.each(_public_key), [])
        users[name] = User(name, tuple(sorted(groups)), shell, tuple(keys))
    return tuple(users.values())


def _public_key(value: Any) -> str:
    # The key is not shown: it may be a private one.
    if not isinstance(value, str) or not PUBLIC_KEY.fullmatch(value):
        raise InvalidValueError(
            "not a public key on one line", "give what ssh-keygen wrote to the file that ends in .pub"
        )
    return value


def read_services(settings: Settings) -> Services:
    """Return the layer's units by the state that they get. Raises ImageError."""
    item = settings.part("services")
    item.only("enabled", "disabled", "masked")
    fates: dict[str, str] = {}
    for fate in ("enabled", "disabled", "masked"):
        for text in item.value(fate, values.distinct(values.matching(UNIT)), []):
            stem, dot, ending = text.rpartition(".")
            # dbus-org.freedesktop.hostname1 is a service; "ssh.services" is a mistake.
            similar = difflib.get_close_matches(ending, UNIT_TYPES, 1, 0.8) if dot else []
            if similar and ending not in UNIT_TYPES:
                raise item.refuse(
                    f"{fate}: {text} has the unknown type {ending}", f"write {stem}.{similar[0]}, or add .service to it"
                )
            unit = text if ending in UNIT_TYPES else f"{text}.service"
            if unit in fates:
                raise item.refuse(f"{unit} is both {fates[unit]} and {fate}", "list it once")
            fates[unit] = fate
    return Services(
        *(tuple(sorted(unit for unit in fates if fates[unit] == fate)) for fate in ("enabled", "disabled", "masked"))
    )


def read_roles(settings: Settings) -> tuple[Role, ...]:
    """Return the layer's roles with their variables. Raises ImageError."""
    roles: dict[str, Role] = {}
    for item in settings.parts("roles"):
        item.only("name", "vars")
        name = item.required("name", values.matching(ROLE, "write it like sailloft.fleet.gpu_host"))
        if name in roles:
            raise item.refuse(f"role {name} is given twice", "apply it once in a layer")
        variables = item.value("vars", values.by_name, {})
        try:
            # A separate copy of plain data: the given object may change later.
            roles[name] = Role(name, json.loads(json.dumps(variables, allow_nan=False)))
        except (TypeError, ValueError, RecursionError) as error:
            raise item.refuse(
                f"vars of role {name} are not plain data: {error}", "use texts, numbers, lists and dictionaries"
            ) from error
    return tuple(roles.values())
