# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel modules that the first stage needs, from an image's root: for NICs, TPMs, mounts and watchdogs."""

from __future__ import annotations

import gzip
import lzma
import re
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import inside
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio

# Drivers of NICs that machines of a data centre boot from: virtual ones, Intel, Broadcom, NVIDIA, Realtek, Marvell,
# Amazon, Google, Microsoft. The first stage has no firmware files; none of these NICs needs one to bring up a link.
NETWORK = (
    *("virtio_net", "vmxnet3", "hv_netvsc", "ena", "gve"),
    *("e1000", "e1000e", "igb", "igc", "ixgbe", "ixgbevf", "i40e", "iavf", "ice"),
    *("bnxt_en", "tg3", "mlx4_en", "mlx5_core", "r8169", "atlantic"),
)
# The modules for the buses of NICs, and the one that udhcpc needs to send.
BUSES = ("virtio_pci", "virtio_mmio", "hv_vmbus", "af_packet")
MOUNTING = ("loop", "squashfs", "overlay")
# dm-verity requests sha256 by name, so modules.dep does not list it as a dependency.
VERITY = ("dm_mod", "dm_verity", "sha256_generic", "sha256_ssse3", "sha256_arm64", "sha2_ce")
# TPMs, where their drivers are not built in.
TPMS = ("tpm_tis", "tpm_crb", "tpm_tis_spi")
# Drivers of watchdogs, and of the devices of Intel's chip sets that have them (drivers/watchdog/Kconfig, ITCO_WDT).
WATCHDOGS, WITH_WATCHDOGS = "kernel/drivers/watchdog/", ("lpc_ich", "i2c_i801")

FILE = re.compile(r"(?:.*/)?([^/]+)\.ko(?:\.(gz|xz|zst))?")


def entries(root: Path, version: str, drivers: Sequence[str] = (), with_watchdogs: bool = False) -> list[cpio.Entry]:
    """Return the modules, unpacked (the archive is compressed as a whole), and modprobe's tables of them.

    ``drivers`` are modules beside the usual ones, ``with_watchdogs`` adds those of all watchdogs. Raises ImageError if
    the kernel is missing, or lacks one of these or something that the first stage requires.
    """
    subject = f"kernel {version}"
    folders = [f"{top}/modules/{version}" for top in ("usr/lib", "lib")]
    folder = next((name for name in folders if inside(root, name, follow=True).is_dir()), None)
    if folder is None:
        raise ImageError(
            f"has no directory in {root}/lib/modules", "give the version of a kernel in the image", subject=subject
        )
    try:
        dependencies = _dependencies(_table(root, folder, "modules.dep"))
        builtin = {module_name(path) for path in _table(root, folder, "modules.builtin").split()}
        aliases = _table(root, folder, "modules.alias").splitlines()
        soft = _soft_dependencies(inside(root, f"{folder}/modules.softdep", follow=True))
    except OSError as error:
        raise ImageError(
            f"{error.filename}: {error.strerror}",
            "install the complete kernel package, and run depmod",
            subject=subject,
        ) from error
    for name in MOUNTING:
        if name not in dependencies and name not in builtin:
            raise ImageError(f"has no {name}", "use a kernel package with all modules", subject=subject)
    if not any(name in dependencies or name in builtin for name in NETWORK):
        raise ImageError(
            f"has none of the network drivers {', '.join(NETWORK)}",
            "use a kernel package with all modules",
            subject=subject,
        )
    own = [driver.replace("-", "_") for driver in drivers]
    for name in own:
        if name not in dependencies and name not in builtin:
            remedy = "correct drivers of the layers; it must be in the layer that brings the kernel, or below it"
            raise ImageError(f"has no module {name}", remedy, subject=subject)

    usual = [*NETWORK, *BUSES, *MOUNTING, *VERITY, *TPMS]
    if with_watchdogs:
        usual += [name for name, (path, _needs) in dependencies.items() if path.startswith(WATCHDOGS)]
        usual += WITH_WATCHDOGS
    paths = _closure([*own, *usual], dependencies, soft)
    names = {module_name(path) for path in paths}
    place = f"lib/modules/{version}"
    files = [cpio.file(f"{place}/{plain(path)}", _unpacked(inside(root, f"{folder}/{path}", True))) for path in paths]
    table = [f"{plain(path)}: {' '.join(map(plain, dependencies[module_name(path)][1]))}".strip() for path in paths]
    alias_lines = [
        line for line in aliases if line.startswith("alias ") and line.split()[-1].replace("-", "_") in names
    ]
    files.append(cpio.file(f"{place}/modules.dep", _text(table)))
    files.append(cpio.file(f"{place}/modules.alias", _text(alias_lines)))
    return files


def _table(root: Path, folder: str, name: str) -> str:
    """Return the text of one of depmod's files; links are followed within the image. Raises OSError."""
    return inside(root, f"{folder}/{name}", follow=True).read_text("utf-8")


def module_name(path: str) -> str:
    """Return the kernel's name for the module in this file."""
    match = FILE.fullmatch(path)
    return (match.group(1) if match else path).replace("-", "_")


def plain(path: str) -> str:
    """Return the path without the suffix of its compression."""
    return re.sub(r"\.ko\.(gz|xz|zst)$", ".ko", path)


def _dependencies(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return name -> the module's path and the paths of all that it needs, also indirectly, as depmod writes them."""
    dependencies = {}
    for line in text.splitlines():
        path, _colon, needs = line.partition(":")
        dependencies[module_name(path)] = (path, needs.split())
    return dependencies


def _soft_dependencies(path: Path) -> dict[str, list[str]]:
    """Return name -> the names of its soft dependencies. Not every kernel has such a table."""
    dependencies: dict[str, list[str]] = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            fields = line.split()
            if fields[:1] == ["softdep"]:
                modules = [word.replace("-", "_") for word in fields[2:] if not word.endswith(":")]
                dependencies.setdefault(fields[1].replace("-", "_"), []).extend(modules)
    return dependencies


def _closure(names: list[str], dependencies: dict[str, tuple[str, list[str]]], soft: dict[str, list[str]]) -> list[str]:
    """Return the sorted paths of those ``names`` that the kernel has and of all modules that they need."""
    modules: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name not in dependencies or dependencies[name][0] in modules:
            continue
        path, needs = dependencies[name]
        modules.add(path)
        queue += [module_name(need) for need in needs] + soft.get(name, [])
    return sorted(modules)


def _unpacked(path: Path) -> bytes:
    """Return the module without the compression of its file. Raises ImageError if the file is missing or damaged."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(data)
        if path.suffix == ".xz":
            return lzma.decompress(data)
        if path.suffix == ".zst":
            return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    except (OSError, EOFError, zlib.error, lzma.LZMAError, subprocess.CalledProcessError) as error:
        raise ImageError(
            f"cannot be unpacked: {error}", "install the kernel's package again", subject=f"kernel module {path}"
        ) from error
    return data


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
