# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The distributions of GPU nodes, and what vendors support on each: one row each. Pure.

Sources, read 2026-11:

- driver: NVIDIA Driver Installation Guide, 590 and 610, "Linux System Requirements"; for Ubuntu 26.04 (R595) and
  RHEL 10 (R580) GPU Operator v26.7.0 and v26.3.3, platform-support.rst.
- DCGM: DCGM user guide, "Supported Linux Distributions".
- precompiled modules, by driver branch and kernel: GPU Operator v26.7.0, platform-support.rst, "Supported Precompiled
  Drivers".
- DOCA: GPUDirect Storage release notes, "MLNX_OFED/DOCA and File System Requirements".
"""

from __future__ import annotations

from dataclasses import dataclass

APT, DNF = "apt", "dnf"


@dataclass(frozen=True)
class SupportedSystem:
    """A row. ``name`` is ID, ``release`` is VERSION_ID of /etc/os-release, on RHEL and Rocky without the minor number.

    ``precompiled`` are branches with signed modules in the distribution's own archive, by kernel (major, minor);
    ``doca`` are versions of DOCA-Host with the values of VERSION_ID that they support ("": all).
    """

    name: str
    release: str
    packages: str
    first_branch: int
    dcgm: bool
    precompiled: tuple[tuple[tuple[int, int], tuple[int, ...]], ...] = ()
    doca: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def has_streams(self) -> bool:
        """Return True if NVIDIA's archive has one stream of packages for each branch, which must be enabled."""
        return self.packages == DNF and self.release in ("8", "9")

    @property
    def shown(self) -> str:
        """Return the name for a message."""
        return f"{self.name} {self.release}"


UBUNTU, DEBIAN, RHEL, ROCKY = "ubuntu", "debian", "rhel", "rocky"
SYSTEMS = (
    SupportedSystem(UBUNTU, "22.04", APT, 580, True, (((5, 15), (580, 595)), ((6, 8), (580, 595)))),
    SupportedSystem(UBUNTU, "24.04", APT, 580, True, (((6, 8), (580, 595)),), (("3.1", ("",)),)),
    SupportedSystem(UBUNTU, "26.04", APT, 595, False, (((7, 0), (595,)),), (("3.4.1", ("",)),)),
    SupportedSystem(DEBIAN, "12", APT, 580, True),
    SupportedSystem(DEBIAN, "13", APT, 590, False),
    SupportedSystem(RHEL, "8", DNF, 580, True),
    SupportedSystem(RHEL, "9", DNF, 580, True, (), (("3.1", ("9.6", "9.7")),)),
    SupportedSystem(RHEL, "10", DNF, 580, True, (), (("3.1", ("10.0", "10.1")), ("3.4.1", ("10.2",)))),
    SupportedSystem(ROCKY, "8", DNF, 580, True),
    SupportedSystem(ROCKY, "9", DNF, 580, True),
    SupportedSystem(ROCKY, "10", DNF, 580, True),
)


def find(name: str, version: str) -> SupportedSystem | None:
    """Return the row for ID and VERSION_ID of /etc/os-release; None if there is none."""
    for system in SYSTEMS:
        if system.name == name and (version == system.release or version.startswith(f"{system.release}.")):
            return system
    return None
