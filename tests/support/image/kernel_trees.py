# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trees of images with a small kernel."""

from __future__ import annotations

import gzip
import lzma
import subprocess
from pathlib import Path

VERSION = "6.1.0-1"
PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: subprocess.run(["zstd", "-q"], input=data, stdout=subprocess.PIPE, check=True).stdout,
}


def kernel(root: Path, suffix: str = "", config: str = "", drop: str = "") -> Path:
    """Make a kernel with the modules of ``table``; a module's content is its name."""
    folder = root / "lib" / "modules" / VERSION
    table = {
        "kernel/net/virtio_net.ko": ["kernel/net/failover.ko"],
        "kernel/net/failover.ko": [],
        "kernel/block/loop.ko": [],
        "kernel/fs/squashfs.ko": [],
        "kernel/md/dm-verity.ko": ["kernel/md/dm-mod.ko", "kernel/md/dm-bufio.ko"],
        "kernel/md/dm-mod.ko": [],
        "kernel/md/dm-bufio.ko": [],
        "kernel/crypto/helper.ko": [],
        "kernel/sound/snd.ko": [],
        "kernel/drivers/watchdog/iTCO_wdt.ko": [],
        "kernel/drivers/mfd/lpc_ich.ko": [],
    }
    table = {path: needs for path, needs in table.items() if drop not in path or not drop}
    for path in table:
        file = folder / (path + suffix)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PACK[suffix](path.encode()))
    lines = [f"{path}{suffix}: {' '.join(need + suffix for need in needs)}\n" for path, needs in table.items()]
    (folder / "modules.dep").write_text("".join(lines))
    (folder / "modules.builtin").write_text("kernel/fs/overlay.ko\n")
    (folder / "modules.softdep").write_text("# comment\nsoftdep dm-verity pre: helper post: absent\n")
    (folder / "modules.alias").write_text(
        "# comment\nalias virtio:d1v* virtio_net\nalias x snd\nalias dm-y dm-verity\n"
    )
    (root / "boot").mkdir()
    (root / "boot" / f"config-{VERSION}").write_text(config)
    return root
