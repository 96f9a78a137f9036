#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a data set twice over NFS, cached on local drives, in an emulated node: benchmarks/storage/nfs_cache.py

The first epoch comes from a server behind a link of a fixed rate, the second from cachefilesd's files. Their ratio
depends on that rate, which is printed; Hoard's was 2.1 with 10 Gbit/s, two NVMe drives a node and 16 GPUs that compute
meanwhile (arXiv:1812.00669, abstract). The limit is the same files, read from the stripe without NFS.

Needs root. Exits with 1 if the second epoch takes more than four times as long as the limit, or is not faster.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / path) for path in (".collections", "tests/support/storage", "tests/support/emulation")]
sys.path.insert(0, str(REPOSITORY / "tests/support/host"))

import storage_machine as machine

MOST = 4.0


def main() -> int:
    """Print the seconds and ratios, and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        epochs = machine.Node(Path(folder)).boot("live")["epochs"]
    first, second, direct = epochs["first"], epochs["second"], epochs["direct"]
    print(f"first epoch, over a link of {epochs['rate']}: {first:.1f} s; second, from the cache: {second:.1f} s")
    print(f"ratio {first / second:.1f}; of the second to the stripe itself ({direct:.1f} s): {second / direct:.2f}")
    return 0 if second < first and second <= MOST * direct else 1


if __name__ == "__main__":
    sys.exit(main())
