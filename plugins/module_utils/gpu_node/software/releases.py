# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The releases of a GPU node's software, in versions that their vendors support together: one row each. Pure.

Fabric Manager, NSCQ and NVSDM have the driver's version in every row (NVIDIA, "Fabric Manager for NVIDIA NVSwitch
Systems": Fabric Manager and driver must have the same version). Driver, DCGM and nvidia-fs of a row are from one column
of NVIDIA's GPU Operator component matrix, the only public table that has all three
(github.com/NVIDIA/cloud-native-docs, gpu-operator/life-cycle-policy.rst, at the commits named below). The precompiled
drivers are from platform-support.rst in the same directory.
"""

from __future__ import annotations

from dataclasses import dataclass

MATRIX = "NVIDIA GPU Operator component matrix"


@dataclass(frozen=True)
class Release:
    """A row. ``cuda`` is the major version of CUDA that the driver provides; ``source`` names its table."""

    driver: str
    cuda: int
    dcgm: str
    nvidia_fs: str
    source: str

    @property
    def branch(self) -> int:
        """Return the driver's branch: 595 for 595.91.07."""
        return int(self.driver.split(".")[0])


# The first row is the default: the driver that the newest matrix recommends.
RELEASES = (
    Release("595.91.07", 13, "4.6.0", "2.29.4", f"{MATRIX}, v26.7.0 (187a4a5b), recommended"),
    Release("610.57.04", 13, "4.6.0", "2.29.4", f"{MATRIX}, v26.7.0 (187a4a5b)"),
    Release("580.173.02", 13, "4.6.0", "2.29.4", f"{MATRIX}, v26.7.0 (187a4a5b)"),
    Release("595.71.05", 13, "4.5.2", "2.27.3", f"{MATRIX}, v26.3.3 (815c4afb)"),
    Release("580.159.04", 13, "4.5.2", "2.27.3", f"{MATRIX}, v26.3.3 (815c4afb), recommended"),
    Release("580.105.08", 13, "4.4.2", "2.26.6", f"{MATRIX}, v25.10.1 (41120aec), recommended"),
)
BY_DRIVER = {release.driver: release for release in RELEASES}
