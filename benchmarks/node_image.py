#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Building an image against bare mmdebstrap + mksquashfs, with the same packages and the same packages downloaded.

Needs root. Prints seconds and ratios; exits with 1 where a ratio is above its limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / ".collections"), str(REPOSITORY / "tests" / "image")]

from conftest import BASE, Site

from ansible_collections.sailloft.fleet.plugins.module_utils.image.squashfs import OPTIONS

ROUNDS = 3
BUILD_LIMIT, UNCHANGED_LIMIT_S, PACKAGE_LIMIT = 1.15, 5.0, 0.25
PACKAGES = [*BASE["packages"], "openssh-server", "iproute2", "python3-minimal", "ethtool", "pciutils"]
ARCHIVE = BASE["archives"][0]
SOURCE = f"deb [signed-by={ARCHIVE['keyring']}] {ARCHIVE['url']} bookworm main"


def bare(folder: Path, archives: Path, initrd: bool) -> float:
    """Seconds of the two tools by themselves; ``initrd``: with Debian's own initrd, as they do it unasked."""
    root = folder / "root"
    started = time.monotonic()
    subprocess.run(
        [
            *(
                "mmdebstrap",
                "--quiet",
                "--mode=root",
                "--variant=essential",
                '--aptopt=APT::Install-Recommends "false"',
            ),
            f"--include={','.join(PACKAGES)}",
            "--skip=download/empty,essential/unlink,cleanup/apt/cache",
            f'--setup-hook=mkdir -p "$1/var/cache/apt/archives"; mount --bind {archives} "$1/var/cache/apt/archives"',
            '--customize-hook=umount "$1/var/cache/apt/archives"',
            *("bookworm", root, SOURCE),
        ],
        check=True,
        env={**os.environ, **({} if initrd else {"INITRD": "No"})},
    )
    subprocess.run(
        ["mksquashfs", root, folder / "root.squashfs", "-quiet", "-no-progress", *OPTIONS],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - started
    shutil.rmtree(root)
    (folder / "root.squashfs").unlink()
    return seconds


def main() -> int:
    """The benchmark."""
    folder = Path(tempfile.mkdtemp(prefix="sailloft-bench-", dir="/var/tmp"))
    try:
        keys = folder / "keys"
        keys.mkdir()
        command = ["minisign", "-G", "-W", "-p", keys / "image.pub", "-s", keys / "image.key"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wished = {"base": {**BASE, "packages": PACKAGES}, "site": {"parent": "base", "packages": ["less"]}}
        images = {"node": {"layer": "base"}}
        first = Site(folder / "first", keys)
        first.build(wished, images)  # downloads all packages
        archives = first.cache / "apt" / "archives-debian"
        times: dict[str, list[float]] = {"bare": [], "bare, no initrd": [], "node_image": []}
        for number in range(ROUNDS):
            times["bare"].append(bare(folder, archives, True))
            times["bare, no initrd"].append(bare(folder, archives, False))
            site = Site(folder / f"site-{number}", keys)
            for path in sorted((first.cache / "apt").glob("archives-*")):
                shutil.copytree(path, site.cache / "apt" / path.name)
            times["node_image"].append(site.build(wished, images)[2])
        best = {name: min(values) for name, values in times.items()}
        unchanged = min(first.build(wished, images)[2] for _round in range(ROUNDS))
        first.build(wished, {"node": {"layer": "site"}})
        wished["site"]["packages"].append("jq")
        added = first.build(wished, {"node": {"layer": "site"}})[2]
    finally:
        shutil.rmtree(folder)
    for name, seconds in best.items():
        print(f"  {name:<40}{seconds:8.1f} s (best of {ROUNDS})")
    rows = [
        ("a build, against bare", best["node_image"] / best["bare"], BUILD_LIMIT, ""),
        ("a package added, against a build", added / best["node_image"], PACKAGE_LIMIT, ""),
        ("an unchanged image", unchanged, UNCHANGED_LIMIT_S, " s"),
    ]
    for name, value, limit, unit in rows:
        print(f"  {name:<40}{value:8.2f}{unit} (at most {limit}{unit})")
    print(f"  {'for comparison, against bare, no initrd':<40}{best['node_image'] / best['bare, no initrd']:8.2f}")
    return int(any(value > limit for _name, value, limit, _unit in rows))


if __name__ == "__main__":
    sys.exit(main())
