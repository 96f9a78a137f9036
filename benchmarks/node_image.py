#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build an image, against bare mmdebstrap + mksquashfs with the same packages and the same downloads.

    benchmarks/node_image.py [ROUNDS]

Needs root. Prints the ratios of the processor time of all processes, so that other load on the machine does not count,
and the ratios of elapsed time; exits with 1 if a ratio of processor time is above its limit.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / ".collections"), str(REPOSITORY / "tests" / "support" / "image")]

from build_host import BASE, BuildHost, make_keys

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.squashfs import OPTIONS

ROUNDS = 3
BUILD_LIMIT, UNCHANGED_LIMIT_S, PACKAGE_LIMIT = 1.15, 5.0, 0.25
PACKAGES = [*BASE["packages"], "openssh-server", "iproute2", "python3-minimal", "ethtool", "pciutils"]
ARCHIVE = BASE["archives"][0]
SOURCE = f"deb [signed-by={ARCHIVE['keyring']}] {ARCHIVE['url']} bookworm main"


def measured(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the processor and wall seconds of ``work``, including all processes that it waits for."""

    def now() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(used.ru_utime + used.ru_stime for used in both)

    processor, wall = now(), time.monotonic()
    work()
    return now() - processor, time.monotonic() - wall


def bootstrap(out: Path, archives: Path, packages: list[str], *options: str, initrd: bool) -> None:
    """Install ``packages`` into ``out`` with mmdebstrap; ``archives`` has the packages that are already downloaded.

    ``initrd``: with Debian's own initrd, which is the default.
    """
    subprocess.run(
        [
            *(
                "mmdebstrap",
                "--quiet",
                "--mode=root",
                "--variant=essential",
                '--aptopt=APT::Install-Recommends "false"',
            ),
            f"--include={','.join(packages)}",
            "--skip=download/empty,essential/unlink,cleanup/apt/cache",
            f'--setup-hook=mkdir -p "$1/var/cache/apt/archives"; mount --bind {archives} "$1/var/cache/apt/archives"',
            *options,
            '--customize-hook=umount "$1/var/cache/apt/archives"',
            *("bookworm", out, SOURCE),
        ],
        check=True,
        env={**os.environ, **({} if initrd else {"INITRD": "No"})},
    )


def packages_of(cache: Path) -> Path:
    """Return the directory of the packages that a builder with one set of archives has downloaded."""
    (folder,) = (path for path in cache.glob("apt/archives-*") if not path.name.endswith("-first-stage"))
    return folder


def bare(folder: Path, archives: Path, initrd: bool) -> None:
    """Run mmdebstrap and mksquashfs alone."""
    root = folder / "root"
    bootstrap(root, archives, PACKAGES, initrd=initrd)
    subprocess.run(
        ["mksquashfs", root, folder / "root.squashfs", "-quiet", "-no-progress", *OPTIONS],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> int:
    """Run the benchmark. Return 1 if a limit is exceeded."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    folder = Path(tempfile.mkdtemp(prefix="sailloft-bench-", dir="/var/tmp"))
    try:
        keys = folder / "keys"
        make_keys(keys)
        requested = {"base": {**BASE, "packages": PACKAGES}, "site": {"parent": "base", "packages": ["less"]}}
        one, two = {"node": {"layer": "base"}}, {"node": {"layer": "site"}}
        first = BuildHost(folder / "first", keys)
        first.build(requested, one)  # downloads all packages
        times: dict[str, list[tuple[float, float]]] = {"bare": [], "bare, no initrd": [], "a build": []}
        for number in range(rounds):
            for name, initrd in (("bare", True), ("bare, no initrd", False)):
                place = folder / f"bare-{number}-{initrd}"
                place.mkdir()
                archives = packages_of(first.cache)
                times[name].append(measured(lambda: bare(place, archives, initrd)))  # noqa: B023
                shutil.rmtree(place)
            site = BuildHost(folder / f"site-{number}", keys)
            for path in sorted((first.cache / "apt").glob("archives-*")):
                shutil.copytree(path, site.cache / "apt" / path.name)
            times["a build"].append(measured(lambda: site.build(requested, one)))  # noqa: B023
        times["unchanged"] = [measured(lambda: first.build(requested, one)) for _round in range(rounds)]
        first.build(requested, two)
        requested["site"]["packages"].append("jq")
        times["a package added"] = [measured(lambda: first.build(requested, two))]
    finally:
        shutil.rmtree(folder)
    best = {name: tuple(min(column) for column in zip(*values)) for name, values in times.items()}
    for name, (processor, wall) in best.items():
        print(f"  {name:<40}{processor:8.1f} s of processor {wall:8.1f} s (best of {len(times[name])})")
    rows = [
        ("a build, against bare", "a build", "bare", BUILD_LIMIT),
        ("a build, against bare without initrd", "a build", "bare, no initrd", None),
        ("a package added, against a build", "a package added", "a build", PACKAGE_LIMIT),
    ]
    failed = best["unchanged"][1] > UNCHANGED_LIMIT_S
    print(f"  {'an unchanged image':<40}{best['unchanged'][1]:8.2f} s (at most {UNCHANGED_LIMIT_S})")
    for title, name, other, limit in rows:
        processor, wall = (mine / theirs for mine, theirs in zip(best[name], best[other]))
        failed = failed or (limit is not None and processor > limit)
        wanted = f"at most {limit}" if limit else "for comparison"
        print(f"  {title:<40}{processor:8.2f} ({wanted}), by the clock {wall:.2f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
