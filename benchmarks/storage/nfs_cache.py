#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a data set twice over NFS, cached on local drives, in an emulated node: benchmarks/storage/nfs_cache.py

The first epoch comes from a server behind a link of a fixed rate, the second from cachefilesd's files: the bytes that
pass the link tell. The ratio of the times depends on that rate, which is printed, and on the kernel: from Linux 5.17 to
6.3, so with Debian 12, NFS reads its cache in pages of 4 KiB, one after the other (fs/nfs/fscache.c), which is slow on
an emulated processor. Hoard's was 2.1 with 10 Gbit/s, two NVMe drives a node and 16 GPUs that compute meanwhile
(arXiv:1812.00669, abstract). The stripe's time is that of the same files without NFS.

Needs root. Exits with 1 if more than a hundredth of the first epoch's bytes pass the link in the second.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SUPPORT = ("tests/support/storage", "tests/support/emulation", "tests/support/host", "tests/support")
sys.path[:0] = [str(REPOSITORY / path) for path in (".collections", *SUPPORT)]

import storage_machine as machine

MOST = 0.01


def main() -> int:
    """Print the bytes, seconds and ratios, and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        epochs = machine.Node(Path(folder)).boot("live")["epochs"]
    first, second, stripe = epochs["first"], epochs["second"], epochs["stripe"]
    share = second["link_bytes"] / first["link_bytes"]
    print(f"bytes over the link of {epochs['rate']}: {first['link_bytes']}; second epoch: {second['link_bytes']}")
    print(f"share {share:.5f}; seconds {first['seconds']:.1f} and {second['seconds']:.1f}", end="")
    print(f", ratio {first['seconds'] / second['seconds']:.1f}; the stripe itself: {stripe['seconds']:.1f} s")
    return 0 if share <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
