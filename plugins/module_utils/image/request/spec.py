# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's settings of images and their layers: checked once, here, so that later code can rely on them."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST, canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_name
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import forbidden


@dataclass(frozen=True)
class Family:
    """The common properties of the distributions of one package system."""

    builder: str
    architectures: tuple[str, ...]  # by the distribution's own names
    package: re.Pattern[str]  # the form of one entry of a layer's packages


# Neither may begin with "-" (the builder's tool would read an option) nor hold a comma or white space (it would read
# two packages). Debian: sources.list(5) and deb-version(7), NAME[:ARCH][=VERSION | /RELEASE]; a "-" at the end has
# apt-get(8) remove it. dnf(8): NAME-VERSION, globs and @group.
DEBIAN = Family(
    "mmdebstrap", ("amd64", "arm64"), re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?([=/][A-Za-z0-9.+~:-]+)?(?<!-)")
)
RPM = Family("dnf", ("x86_64", "aarch64"), re.compile(r"@?[A-Za-z0-9][A-Za-z0-9._+~^:*?-]*"))
DISTRIBUTIONS = {"debian": DEBIAN, "ubuntu": DEBIAN, "rhel": RPM, "rocky": RPM}

URL = re.compile(r"https?://[^/\s@?#]+(/[^\s?#]*)?|file:///[^\s?#]*")
# It becomes an option in brackets of sources.list(5), and a line of dnf's configuration.
KEYRING = re.compile(r"/[^\s\[\]]+")
# A suite becomes part of a URL; Debian's "updates/main"-like and flat archives' ("./", "/") are allowed.
SUITE = re.compile(r"[A-Za-z0-9./][A-Za-z0-9._/+-]*")
COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
# repodata/repomd.xml is the file with the digests of an RPM repository's other files.
RPM_RELEASE = "repomd"
# useradd(8): portable names; also shadow's limit of 32.
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
NUMBER = re.compile(r"[0-9]{1,10}")
MODE = re.compile(r"0?[0-7]{3}|[0-7]{4}")
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
# systemd.unit(5)
UNIT_TYPES = ("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope")
ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_]*){0,2}")
# sshd(8), AUTHORIZED_KEYS FILE FORMAT: options, key type, base64, comment.
PUBLIC_KEY = re.compile(
    r"([^\r\n]*[ \t])?(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com"
    r"|sk-ecdsa-sha2-nistp256@openssh\.com) [A-Za-z0-9+/]+=*([ \t][^\r\n]*)?"
)
# The characters that iPXE passes on unchanged: it interprets quotes, backslashes and ${} itself.
ARGUMENT = re.compile(r"[A-Za-z0-9_][!#-&(-\[\]-~]*")
# The first stage's own arguments; boot.ipxe and the node's script set them.
RESERVED_ARGUMENTS = ("sailloft.", "BOOTIF=")
# Linux cuts the command line off at 2048 bytes (COMMAND_LINE_SIZE in arch/x86/include/asm/setup.h and
# arch/arm64/include/uapi/asm/setup.h) and reports it only in its log; a quarter is left for the boot's additions.
MOST_ARGUMENT_BYTES = 1536
# Folders that are mounted over at boot, so that their content in the image would have no effect.
MOUNTED = ("/dev", "/proc", "/run", "/sys", "/tmp", "/var/lock", "/var/run")
# Files that must differ between nodes; the image would give all nodes the same.
OF_THE_NODE = re.compile(r"/etc/machine-id|/var/lib/dbus/machine-id|/etc/ssh/ssh_host_.*")
LEAST_WRITABLE_MIB = 16


@dataclass(frozen=True)
class Archive:
    """A source of packages. ``release_sha256``: suite -> digest of its InRelease ("repomd" -> repomd.xml's)."""

    url: str
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    keyring: str | None = None
    release_sha256: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class File:
    """A file of the image: ``content``, or the content of the build machine's file ``source``; one is None."""

    path: str
    content: str | None = None
    source: str | None = None
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class User:
    """A user of the image; ``groups`` are in addition to the one of the user's own name."""

    name: str
    groups: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    authorized_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Services:
    """systemd units by the state that they get; each name has its type ("ssh.service")."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Role:
    """An Ansible role to apply inside the image, with its variables (plain data)."""

    name: str
    vars: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """One delta on ``parent``.

    ``distribution``, ``suite`` and ``architecture`` are the lowest layer's. ``archives`` are all sources of its
    packages: its ancestors' first, then its own. All other fields have the layer's own part only.
    """

    name: str
    parent: str | None
    distribution: str
    suite: str
    architecture: str
    archives: tuple[Archive, ...]
    packages: tuple[str, ...] = ()  # sorted
    files: tuple[File, ...] = ()  # by path
    users: tuple[User, ...] = ()
    services: Services = field(default_factory=Services)
    roles: tuple[Role, ...] = ()
    kernel_arguments: tuple[str, ...] = ()

    def sources(self) -> dict[str, str]:
        """Return path in the image -> file on the build machine, for the files that are not given by their content."""
        return {file.path: file.source for file in self.files if file.source is not None}

    def inputs(self, content_digests: Mapping[str, str]) -> dict[str, Any]:
        """Return the layer as plain data that is the same on every build machine: digests stand for files and roles.

        ``content_digests``: sha256 by path of each of ``sources()`` and by name of each of ``roles``; exactly these.
        Raises ImageError for another set.
        """
        needed = {*self.sources(), *(role.name for role in self.roles)}
        if set(content_digests) != needed:
            odd = sorted(needed ^ set(content_digests))
            raise ImageError(
                f"layer {self.name}",
                f"digests of its files and roles are missing or too many: {', '.join(odd)}",
                "give one for each file with a source and for each role",
            )
        return {
            "name": self.name,
            "parent": self.parent,
            "distribution": self.distribution,
            "suite": self.suite,
            "architecture": self.architecture,
            "archives": [
                {
                    "url": archive.url,
                    "suites": list(archive.suites),
                    "components": list(archive.components),
                    "release_sha256": dict(archive.release_sha256),
                    # apt's lists of sources name it, in the image too; dnf's configuration is the builder's.
                    **({"keyring": archive.keyring} if DISTRIBUTIONS[self.distribution] is DEBIAN else {}),
                }
                for archive in self.archives
            ],
            "packages": list(self.packages),
            "files": [
                {
                    "path": file.path,
                    "sha256": content_digests[file.path]
                    if file.content is None
                    else hashlib.sha256(file.content.encode()).hexdigest(),
                    "mode": file.mode,
                    "owner": file.owner,
                    "group": file.group,
                }
                for file in self.files
            ],
            "users": [
                {
                    "name": user.name,
                    "groups": list(user.groups),
                    "shell": user.shell,
                    "authorized_keys": list(user.authorized_keys),
                }
                for user in self.users
            ],
            "services": {
                "enabled": list(self.services.enabled),
                "disabled": list(self.services.disabled),
                "masked": list(self.services.masked),
            },
            "roles": [
                # Variables may contain values that must not be in a manifest, which anyone may fetch.
                {
                    "name": role.name,
                    "vars_sha256": hashlib.sha256(canonical_json(role.vars)).hexdigest(),
                    "sha256": content_digests[role.name],
                }
                for role in self.roles
            ],
            "kernel_arguments": list(self.kernel_arguments),
        }


@dataclass(frozen=True)
class Image:
    """A chain of layers, lowest first. ``kernel_arguments`` has the layers', lowest first, then the image's own."""

    name: str
    layers: tuple[Layer, ...]
    kernel_arguments: tuple[str, ...]
    writable_mib: int


def read_images(images: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Image]:
    """Return all images by name, from the variables ``node_image_images`` and ``node_image_layers``, in their order.

    None stands for "not given", as Ansible passes it. Every layer is checked, used or not. Raises ImageError for the
    first problem.
    """
    if not isinstance(layers, Mapping) or not isinstance(images, Mapping):
        what = "node_image_layers" if not isinstance(layers, Mapping) else "node_image_images"
        raise ImageError(what, "not a dictionary", "write each by its name: base: {...}")
    given = {checked_name(name, "layer"): _Record(f"layer {name}", data) for name, data in layers.items()}
    read: dict[str, Layer] = {}
    for name in given:
        for below in reversed(_ancestry(name, given)):
            if below not in read:
                parent = given[below].data.get("parent")
                read[below] = _layer(below, given[below], read.get(parent) if parent else None)
    return {name: _image(name, data, read) for name, data in images.items()}


def _ancestry(name: str, given: Mapping[str, _Record]) -> list[str]:
    """Return the layer and those below it, the lowest last."""
    chain = [name]
    while True:
        parent = given[chain[-1]].data.get("parent")
        if parent is None:
            return chain
        if not isinstance(parent, str) or parent not in given:
            raise ImageError(
                f"layer {chain[-1]}",
                f"its parent {parent!r} is not there",
                f"define it in node_image_layers, or name one of {', '.join(sorted(given))}",
            )
        if parent in chain:
            circle = " -> ".join([*chain[chain.index(parent) :], parent])
            raise ImageError(
                f"layer {chain[-1]}", f"is on top of itself: {circle}", "take the parent away from the lowest of them"
            )
        chain.append(parent)


def _image(name: Any, data: Any, layers: Mapping[str, Layer]) -> Image:
    checked_name(name, "image")
    record = _Record(f"image {name}", data)
    record.only("layer", "writable_mib", "kernel_arguments")
    top = record.data.get("layer")
    if not isinstance(top, str) or top not in layers:
        raise record.refuse(
            f"its layer {top!r} is not there",
            f"define it in node_image_layers, or name one of {', '.join(sorted(layers))}",
        )
    chain: list[Layer] = []
    while top is not None:
        chain.insert(0, layers[top])
        top = layers[top].parent
    writable = record.data.get("writable_mib", 1024)
    if isinstance(writable, bool) or not isinstance(writable, int) or writable < LEAST_WRITABLE_MIB:
        raise record.refuse(
            f"writable_mib {writable!r} is not a whole number of at least {LEAST_WRITABLE_MIB}",
            "give the MiB of memory that the writable layer may take",
        )
    arguments = (*(argument for layer in chain for argument in layer.kernel_arguments), *_arguments(record))
    size_bytes = len(" ".join(arguments))
    if size_bytes > MOST_ARGUMENT_BYTES:
        raise record.refuse(
            f"its kernel arguments take {size_bytes} bytes", f"leave some out, {MOST_ARGUMENT_BYTES} are the most"
        )
    return Image(name, tuple(chain), arguments, writable)


def _layer(name: str, record: _Record, parent: Layer | None) -> Layer:
    lowest = ("distribution", "suite", "architecture")
    record.only("parent", *lowest, "archives", "packages", "files", "users", "services", "roles", "kernel_arguments")
    if parent:
        for setting in lowest:
            if setting in record.data:
                raise record.refuse(
                    f"it says {setting}, which a layer has from its parent {parent.name}", f"take {setting} away"
                )
        family = DISTRIBUTIONS[parent.distribution]
        base = parent
    else:
        for setting in (*lowest, "archives", "packages"):
            if not record.data.get(setting):
                raise record.refuse(f"it has no parent and no {setting}", f"give it a parent, or {setting}")
        distribution = record.text("distribution")
        if distribution not in DISTRIBUTIONS:
            raise record.refuse(
                f"distribution {distribution!r} is unknown", f"there are {', '.join(sorted(DISTRIBUTIONS))}"
            )
        family = DISTRIBUTIONS[distribution]
        architecture = record.text("architecture")
        if architecture not in family.architectures:
            raise record.refuse(
                f"architecture {architecture!r} is unknown to {distribution}",
                f"there are {', '.join(family.architectures)}",
            )
        suite = record.text("suite")
        if not COMPONENT.fullmatch(suite):
            raise record.refuse(f"suite {suite!r} is not a name", 'give the release, such as bookworm or "9"')
        base = Layer(name, None, distribution, suite, architecture, ())
    archives = base.archives + tuple(_archive(item, family) for item in record.records("archives"))
    return replace(
        base,
        name=name,
        parent=parent.name if parent else None,
        archives=archives,
        packages=_packages(record, family),
        files=_files(record),
        users=_users(record),
        services=_services(record),
        roles=_roles(record),
        kernel_arguments=_arguments(record),
    )


def _archive(record: _Record, family: Family) -> Archive:
    record.only("url", "suites", "components", "keyring", "release_sha256")
    url = record.text("url")
    if not URL.fullmatch(url):
        raise record.refuse(
            f"url {url!r} is not one of http, https or file without user and password",
            "write it like https://deb.debian.org/debian",
        )
    suites = record.texts("suites", SUITE)
    components = record.texts("components", COMPONENT)
    keyring = record.data.get("keyring")
    if keyring is not None and (not isinstance(keyring, str) or not KEYRING.fullmatch(keyring)):
        raise record.refuse(
            f"keyring {keyring!r} is not an absolute path without spaces and brackets",
            "give the file on the machine that builds",
        )
    if family is DEBIAN:
        if not suites:
            raise record.refuse("it has no suites", 'name them, such as [bookworm], or ["./"] of a flat archive')
        flat = [suite for suite in suites if suite.endswith("/")]
        if flat and components:
            raise record.refuse(f"suite {flat[0]!r} is a flat archive's, which has no components", "take them away")
        if not components and len(flat) < len(suites):
            raise record.refuse("it has no components", "name them, such as [main]")
        places = suites
    else:
        if suites or components:
            raise record.refuse(
                "an RPM repository has no suites and components", "give the url of the folder over repodata"
            )
        places = (RPM_RELEASE,)
    pins = record.mapping("release_sha256")
    for place, pin in pins.items():
        if place not in places:
            raise record.refuse(f"release_sha256 is of {place!r}, which is not there", f"there are {', '.join(places)}")
        if not isinstance(pin, str) or not DIGEST.fullmatch(pin):
            raise record.refuse(
                f"release_sha256 of {place} is {pin!r}, not a sha256", "give 64 hexadecimal digits, lower case"
            )
    if family is RPM and keyring is None and not pins:
        raise record.refuse("nothing proves its packages", f"give a keyring, or release_sha256: {{{RPM_RELEASE}: ...}}")
    return Archive(url.rstrip("/"), suites, components, keyring, dict(pins))


def _packages(record: _Record, family: Family) -> tuple[str, ...]:
    packages = record.texts("packages", family.package)
    return tuple(sorted(packages))


def _files(record: _Record) -> tuple[File, ...]:
    files: dict[str, File] = {}
    for item in record.records("files"):
        item.only("path", "content", "source", "mode", "owner", "group")
        path = item.text("path")
        good = path.startswith("/") and path == posixpath.normpath(path) and path.isprintable()
        if not good or path.startswith("//") or path == "/":
            raise item.refuse(f"path {path!r} is not an absolute path", "write it like /etc/motd, without '..' or '//'")
        if any(path == folder or path.startswith(f"{folder}/") for folder in MOUNTED):
            raise item.refuse(
                f"{path} would be hidden by what is mounted at boot", "use a folder that stays, or tmpfiles.d"
            )
        if OF_THE_NODE.fullmatch(path):
            raise item.refuse(f"{path} would be the same on every node", "leave it out; a node gets its own")
        if forbidden.takes_away(path):
            raise item.refuse(
                f"{path} would be taken out of the image again, with logs, caches, keys and all that is of one machine",
                "use another folder; a node gets its secrets by node_identity",
            )
        if path in files:
            raise item.refuse(f"{path} is given twice", "give it once in a layer; a layer above may give another")
        content, source = item.data.get("content"), item.data.get("source")
        if (content is None) == (source is None):
            raise item.refuse(
                f"{path} has {'neither content nor' if source is None else 'both content and'} source",
                "give one of them",
            )
        if not isinstance(content if source is None else source, str):
            raise item.refuse(f"the content or source of {path} is not a text", "quote it")
        if content is not None and re.search("[\ud800-\udfff]", content):
            raise item.refuse(f"the content of {path} is not UTF-8", "give it as a file, with source")
        if source is not None and not source.startswith("/"):
            raise item.refuse(f"source {source!r} is not an absolute path", "give the file on the machine that builds")
        files[path] = File(path, content, source, _mode(item), _account(item, "owner"), _account(item, "group"))
    for path in files:
        for folder in _folders(path):
            if folder in files:
                raise record.refuse(f"{folder} is a file and the folder of {path}", "leave one of them out")
    return tuple(files[path] for path in sorted(files))


def _folders(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _mode(record: _Record) -> str:
    mode = record.data.get("mode", "0644")
    if not isinstance(mode, str) or not MODE.fullmatch(mode):
        raise record.refuse(f"mode {mode!r} is not a text of octal digits", 'quote it: "0644"')
    return mode.zfill(4)


def _account(record: _Record, setting: str) -> str:
    name = record.data.get(setting, "root")
    text = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
    if not isinstance(text, str) or not (USER.fullmatch(text) or NUMBER.fullmatch(text)):
        raise record.refuse(f"{setting} {name!r} is not a name or a number of one", "write it like root or 1000")
    return text


def _users(record: _Record) -> tuple[User, ...]:
    users: dict[str, User] = {}
    for item in record.records("users"):
        item.only("name", "groups", "shell", "authorized_keys")
        name = item.text("name")
        if not USER.fullmatch(name):
            raise item.refuse(
                f"user name {name!r} is none",
                "use lower-case letters, digits, '_' and '-', 32 at most, a letter or '_' first",
            )
        if name in users:
            raise item.refuse(f"user {name} is given twice", "give the user once in a layer")
        shell = item.data.get("shell", "/bin/bash")
        if not isinstance(shell, str) or not re.fullmatch(r"(/[A-Za-z0-9._+-]+)+", shell):
            raise item.refuse(f"shell {shell!r} of user {name} is not an absolute path", "write it like /bin/bash")
        keys = item.data.get("authorized_keys", [])
        if not isinstance(keys, (list, tuple)):
            raise item.refuse(f"authorized_keys of user {name} is not a list", "write it as [ssh-ed25519 AAAA...]")
        for at, key in enumerate(keys):
            # The key is not shown: it may be a private one.
            if not isinstance(key, str) or not PUBLIC_KEY.fullmatch(key):
                raise item.refuse(
                    f"authorized_keys[{at}] of user {name} is not a public key on one line",
                    "give what ssh-keygen wrote to the file that ends in .pub",
                )
        users[name] = User(name, tuple(sorted(item.texts("groups", USER))), shell, tuple(keys))
    return tuple(users.values())


def _services(record: _Record) -> Services:
    item = _Record(f"{record.subject}: services", record.data.get("services", {}))
    item.only("enabled", "disabled", "masked")
    fates: dict[str, str] = {}
    for fate in ("enabled", "disabled", "masked"):
        for text in item.texts(fate, UNIT):
            unit = text if text.rpartition(".")[2] in UNIT_TYPES else f"{text}.service"
            if unit in fates:
                raise item.refuse(f"{unit} is {fates[unit]} and {fate}", "name it once")
            fates[unit] = fate
    return Services(
        *(tuple(sorted(unit for unit in fates if fates[unit] == fate)) for fate in ("enabled", "disabled", "masked"))
    )


def _roles(record: _Record) -> tuple[Role, ...]:
    roles: dict[str, Role] = {}
    for item in record.records("roles"):
        item.only("name", "vars")
        name = item.text("name")
        if not ROLE.fullmatch(name):
            raise item.refuse(f"role {name!r} is not a name of one", "write it like sailloft.fleet.gpu_host")
        if name in roles:
            raise item.refuse(f"role {name} is given twice", "apply it once in a layer")
        variables = item.mapping("vars")
        try:
            # A separate copy of plain data: the given object may change later.
            roles[name] = Role(name, json.loads(json.dumps(variables, allow_nan=False)))
        except (TypeError, ValueError, RecursionError) as error:
            raise item.refuse(
                f"vars of role {name} are not plain data: {error}", "use texts, numbers, lists and dictionaries"
            ) from error
    return tuple(roles.values())


def _arguments(record: _Record) -> tuple[str, ...]:
    arguments = record.data.get("kernel_arguments", [])
    if not isinstance(arguments, (list, tuple)):
        raise record.refuse("kernel_arguments is not a list", "write it as [console=ttyS0, quiet]")
    for argument in arguments:
        if isinstance(argument, str) and re.search(r"\s", argument):
            raise record.refuse(f"kernel argument {argument!r} has white space", "give each argument by itself")
        if not isinstance(argument, str) or not ARGUMENT.fullmatch(argument) or "${" in argument:
            raise record.refuse(
                f"kernel argument {argument!r} cannot be passed on by iPXE",
                "use printable ASCII, a letter, digit or '_' first, without quotes, backslashes and ${",
            )
        if argument.startswith(RESERVED_ARGUMENTS):
            raise record.refuse(f"kernel argument {argument!r} is set at boot", "leave it out")
    return tuple(arguments)


class _Record(Settings):
    """A part of an image's spec."""

    refusal = ImageError

    def text(self, setting: str) -> str:
        value = self.data.get(setting)
        if not isinstance(value, str) or not value:
            raise self.refuse(f"{setting} {value!r} is not a text", "give one, in quotes where it looks like a number")
        return value

    def texts(self, setting: str, form: re.Pattern[str]) -> tuple[str, ...]:
        values = self.data.get(setting, [])
        if not isinstance(values, (list, tuple)):
            raise self.refuse(f"{setting} is not a list", f"write it as {setting}: [one, another]")
        for value in values:
            if not isinstance(value, str) or not form.fullmatch(value):
                raise self.refuse(f"{setting}: {value!r} is not a name", "look for a typing error, or a missing quote")
            if values.count(value) > 1:
                raise self.refuse(f"{setting}: {value} is there twice", "name it once")
        return tuple(values)

    def mapping(self, setting: str) -> dict[str, Any]:
        value = self.data.get(setting, {})
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self.refuse(f"{setting} is not a dictionary", "write it as values by name")
        return dict(value)

    def records(self, setting: str) -> list[_Record]:
        values = self.data.get(setting, [])
        if not isinstance(values, (list, tuple)):
            raise self.refuse(f"{setting} is not a list", f"write it as {setting}: [{{...}}]")
        return [_Record(f"{self.subject}: {setting}[{at}]", value) for at, value in enumerate(values)]
