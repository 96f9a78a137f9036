# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's request for the software of a GPU node, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import openpgp
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.releases import BY_DRIVER, RELEASES
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.modes import NVIDIA_FS, P2PDMA
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

DKMS, PRECOMPILED = "dkms", "precompiled"
DMABUF, PEERMEM = "dmabuf", "peermem"
INBOX, DOCA = "inbox", "doca"
STORAGE = ("none", P2PDMA, NVIDIA_FS)
# "nvswitch": the board's switches are NVSwitch functions (HGX A100, H100, H200); "nvlink5": its NVLink 5 switches are
# none (HGX B200, B300).
AUTO, NONE, NVSWITCH, NVLINK5 = "auto", "none", "nvswitch", "nvlink5"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# Names as in deb-src-control(5) and rpm-packaging, without options or versions.
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
# Without white space and brackets, which would end the URL or begin options in a line of sources.list(5).
URL = re.compile(r"(https?|file)://?[^\s\[\]]+|file:/[^\s\[\]]+")
SUITE = re.compile(r"[A-Za-z0-9./][A-Za-z0-9._/+-]*")


@dataclass(frozen=True)
class Repository:
    """An archive of packages. ``suite`` and ``components`` are apt's; "/" is a flat archive, as NVIDIA's are."""

    name: str
    url: str
    key: str
    suite: str
    components: tuple[str, ...]


@dataclass(frozen=True)
class SoftwareRequest:
    """The requested software of a node, and the settings of the files that belong to it."""

    driver: str
    modules: str
    gpudirect: str
    rdma: str
    fabric: str
    dcgm: bool
    storage: str
    cufile: dict[str, Any]
    extra_packages: tuple[str, ...]
    rails_on_one_subnet: bool
    signing: bool
    repositories: tuple[Repository, ...]


def read(data: Any) -> SoftwareRequest:
    """Return the request in the module's arguments. Raises RequestError."""
    settings = Settings(RequestError, "gpu_node", data)
    driver = settings.value("driver", values.text, RELEASES[0].driver)
    if driver not in BY_DRIVER:
        raise settings.refuse(
            f"driver {driver} is not in the table of releases, which lists what goes with it",
            f"use one of {', '.join(BY_DRIVER)}",
        )
    storage = settings.value("storage", values.among(*STORAGE), NONE)
    return SoftwareRequest(
        driver=driver,
        modules=settings.value("modules", values.among(DKMS, PRECOMPILED), DKMS),
        gpudirect=settings.value("gpudirect", values.among(DMABUF, PEERMEM, NONE), DMABUF),
        rdma=settings.value("rdma", values.among(INBOX, DOCA), INBOX),
        fabric=settings.value("fabric", values.among(AUTO, NONE, NVSWITCH, NVLINK5), AUTO),
        dcgm=settings.value("dcgm", values.flag, True),
        storage=storage,
        cufile=_cufile(settings, storage),
        extra_packages=tuple(_named(settings, name) for name in settings.value("extra_packages", values.texts, [])),
        rails_on_one_subnet=settings.value("rails_on_one_subnet", values.flag, False),
        signing=settings.value("signing", values.flag, False),
        repositories=tuple(_repository(part) for part in settings.parts("repositories")),
    )


def _cufile(settings: Settings, storage: str) -> dict[str, Any]:
    """Return the settings of cufile.json by path; none without GPUDirect Storage."""
    chosen = settings.part("storage_settings")
    if storage != NONE:
        return cufile.settings(chosen, storage)
    if chosen.data:
        raise settings.refuse_setting("storage_settings", "there is no GPUDirect Storage", "set gpu_node_storage")
    return {}


def _named(settings: Settings, name: str) -> str:
    if not PACKAGE.fullmatch(name):
        raise settings.refuse(
            f"extra_packages: {name!r} is not the name of a package", "name it without version and options"
        )
    return name


def _repository(settings: Settings) -> Repository:
    settings.only("name", "url", "suite", "components", "key", "fingerprints")
    settings.need("name", "url", "key", "fingerprints")
    name, url = settings.value("name", values.text), settings.value("url", values.text)
    suite = settings.value("suite", values.text, "/")
    components = settings.value("components", values.texts, [])
    if not NAME.fullmatch(name):
        raise settings.refuse(f"name {name!r} becomes part of file names", "use lower-case letters, digits and '-'")
    if not URL.fullmatch(url):
        raise settings.refuse(f"url {url!r} is not the URL of an archive", "start it with https://, http:// or file:/")
    for word in (suite, *components):
        if not SUITE.fullmatch(word):
            raise settings.refuse(f"{word!r} is not a suite or component", "write it as in sources.list(5)")
    if suite.endswith("/") == bool(components):
        raise settings.refuse(
            "a flat archive (suite /) has no components, any other has", "correct suite and components"
        )
    # The key has several lines, which values.text would refuse.
    key = settings.value("key", str)
    _check_key(settings, key)
    return Repository(name, url, key if key.endswith("\n") else key + "\n", suite, tuple(components))


def _check_key(settings: Settings, key: str) -> None:
    """Refuse a key whose fingerprint is not among those in the inventory, which come from another source."""
    trusted = {re.sub(r"\s", "", text).upper() for text in settings.value("fingerprints", values.texts)}
    try:
        fingerprints = openpgp.fingerprints(key)
    except openpgp.KeyFormatError as error:
        raise settings.refuse(f"key: {error}", "give the armored public key (gpg --armor --export)") from error
    strange = [fingerprint for fingerprint in fingerprints if fingerprint not in trusted]
    if strange:
        raise settings.refuse(
            f"the key has the fingerprint {', '.join(strange)}, which is not in fingerprints",
            "compare the key with the one that its owner publishes, and correct key or fingerprints",
        )
