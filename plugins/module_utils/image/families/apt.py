# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fetch the packages of a layer with apt, then install them: in two rooms, of which the second has no network.

While apt fetches, it reads none of the tree's settings except its preferences, and no code of a package runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, file_inside, inside
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt_digests
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.archive import readable_paths
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.downloads import Downloads

# The environment of packages' scripts. INITRD=No: the hooks of initramfs-tools and dracut make no initrd, since the
# node boots with our first stage. PYTHONHASHSEED: sets in byte-compiled files always have the same order.
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "INITRD": "No",
    "PYTHONHASHSEED": "0",
}
ARCHIVES, LISTS = "var/cache/apt/archives", "var/lib/apt/lists"
STATUS = "var/lib/dpkg/status"
# This file marks a directory that has all its lists: a build may have been killed while it fetched them.
WHOLE = "whole"
INSTALL = ("install", "-y", "--allow-change-held-packages")
SHOWN = r"(\d+ upgraded, \d+ newly installed.*)"


def sources(archives: Sequence[Archive]) -> list[str]:
    """Return the lines of sources.list(5)."""
    lines = []
    for archive in archives:
        for suite in archive.suites:
            options = [f"signed-by={archive.keyring}"] if archive.keyring else []
            if suite in archive.release_sha256:
                # A pinned state may be past the archive's own expiry date.
                options.append("check-valid-until=no")
                if not archive.keyring:
                    # The digest that the user pinned proves more than a signature; apt_digests checks that apt used it.
                    options.append("trusted=yes")
            option = f"[{' '.join(options)}] " if options else ""
            # apt does not copy packages of "file:" archives, and dpkg runs in the image.
            url = re.sub("^file:", "copy:", archive.url)
            lines.append(" ".join([f"deb {option}{url}", suite, *archive.components]))
    return lines


def fetch(
    root: Path,
    layer: Layer,
    run: Run,
    digests: Mapping[str, str],
    caches: Caches,
    packages: Sequence[str],
    alone: bool = False,
) -> None:
    """Fetch the packages that ``root`` needs for ``packages``, or only these if ``alone``.

    Raises ToolError, and ImageError for other archives.
    """
    folder = _folder(root, layer)
    downloads = Downloads(run.subject, list(caches.folders.values()))
    with caches.downloading(root, run):
        status = file_inside(root, STATUS) or folder / "status"
        (folder / "fetch.conf").write_text(_lines({**_common(layer, folder), **_outside(root, folder, status)}))
        environment = {**ENVIRONMENT, "APT_CONFIG": f"{folder}/fetch.conf"}
        readable = readable_paths(layer.archives)

        def get(*argv: str, show: str | None = None) -> None:
            command = entered(
                root, [*prefix, "apt-get", "-q", *argv], network=True, readable=readable, writable=[folder]
            )
            run(command, env=environment, show=show, fault=downloads)

        def get_packages() -> list[str]:
            """Return the packages that are not as in the lists, and are removed: apt gets them again."""
            get(*(("download",) if alone else (*INSTALL, "--download-only")), "--", *packages, show=SHOWN)
            return apt_digests.remove_altered(archives, lists)

        lists, archives = (inside(root, name, follow=True) for name in (LISTS, ARCHIVES))
        # apt downloads a package alone into the present directory.
        prefix = ["env", f"--chdir={archives}"] if alone else []
        archives.mkdir(parents=True, exist_ok=True)
        if not (lists / WHOLE).exists():
            run.progress(f"{run.subject}: running apt-get update")
            get("update")
        (lists / WHOLE).unlink(missing_ok=True)
        apt_digests.require_releases(lists, layer.name, digests)
        apt_digests.require_lists(lists)
        (lists / WHOLE).touch()
        altered = get_packages() and get_packages()
        if altered:
            raise ImageError(
                f"apt got {altered[0]} with another sha256 than its list has",
                "use another mirror of the archive",
                subject=layer.subject,
            )


def install(root: Path, layer: Layer, run: Run, caches: Caches, packages: Sequence[str]) -> None:
    """Install ``packages`` and their dependencies, which ``fetch`` has fetched, into ``root``. Raises ToolError."""
    folder = _folder(root, layer)
    (folder / "install.conf").write_text(_lines({**_common(layer, folder), **_inside(root)}))
    argv = ["apt-get", "-q", *INSTALL, "--", *packages]
    command = entered(root, argv, network=layer.network, readable=[folder])
    with caches.lent(root, run):
        run(command, env={**ENVIRONMENT, "APT_CONFIG": f"{folder}/install.conf"})


def _folder(root: Path, layer: Layer) -> Path:
    """Return the directory of apt's settings for this tree, with the layer's sources."""
    folder = root.parent / f"apt-{root.name}"
    folder.mkdir(exist_ok=True)
    (folder / "sources.list").write_text("".join(f"{line}\n" for line in sources(layer.archives)))
    (folder / "status").touch()
    return folder


def _common(layer: Layer, folder: Path) -> dict[str, str]:
    return {
        "Dir::Etc::SourceList": f"{folder}/sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::TrustedParts": "/etc/apt/trusted.gpg.d/",
        "APT::Architecture": layer.architecture,
        "APT::Architectures::": layer.architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
    }


def _outside(root: Path, folder: Path, status: Path) -> dict[str, str]:
    """Return the settings that keep apt from running or writing anything of the tree."""
    return {
        "Dir::State": f"{folder}/",
        "Dir::State::Lists": f"{inside(root, LISTS, follow=True)}/",
        "Dir::State::Status": f"{status}",
        "Dir::Cache": f"{folder}/",
        "Dir::Cache::Archives": f"{inside(root, ARCHIVES, follow=True)}/",
        "Dir::Log": f"{folder}/",
        "Dir::Etc::Main": "/dev/null",
        "Dir::Etc::Parts": "/dev/null",
        "Dir::Etc::Preferences": f"{root}/etc/apt/preferences",
        "Dir::Etc::PreferencesParts": f"{root}/etc/apt/preferences.d",
    }


def _inside(root: Path) -> dict[str, str]:
    """Return the settings for working on ``root`` from outside of it; dpkg itself runs in it."""
    return {
        "Dir": f"{root}/",
        "DPkg::Chroot-Directory": f"{root}",
        "Dpkg::Use-Pty": "false",
        "DPkg::Options::": "--force-confdef,confold",
    }


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f'{name} "{value}";\n' for name, value in settings.items())
