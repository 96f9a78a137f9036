# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Binary units, in bytes. Pure."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
# The keys are libvirt's names of the units (https://libvirt.org/formatdomain.html#memory-allocation).
BYTES_OF_UNIT = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
