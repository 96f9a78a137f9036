# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Releases of kernels: whether one has a change of Linux. Pure."""

from __future__ import annotations

import re

RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
# Kernels that keep the number of their base and get changes of later ones: RHEL and its relatives
# (6.12.0-55.9.1.el10_0), SUSE (6.4.0-150600.23-default), NVIDIA's for Ubuntu (6.8.0-1014-nvidia).
WITH_LATER_CHANGES = re.compile(r"\.el\d|-default$|-nvidia")
# The last number of a stable release, by its branch.
Stable = dict[tuple[int, int], int]


def includes(release: str | None, since: tuple[int, int], in_stable: Stable | None = None) -> bool | None:
    """Return whether the kernel has a change of Linux ``since``, also in these stable releases; None: not known."""
    match = RELEASE.match(release or "")
    if not match:
        return None
    version = (int(match[1]), int(match[2]))
    if version >= since or int(match[3] or 0) >= (in_stable or {}).get(version, 1 << 30):
        return True
    return None if WITH_LATER_CHANGES.search(release or "") else False
