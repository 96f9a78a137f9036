# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The processor architecture that GPU hosts must have. Pure.

Reading and recording work on any host. Planning and writing do not: the guest is a q35 machine with arch x86_64, the
IOMMU arguments and the firmware claims are those of Intel and AMD, and nothing was tested on other architectures.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Cpu

SUPPORTED = "x86_64"
# Vendor names of x86 processors, as CPUID leaf 0 gives them (Linux arch/x86/kernel/cpu, c_ident).
X86_VENDORS = frozenset({"GenuineIntel", "AuthenticAMD", "HygonGenuine", "CentaurHauls", "  Shanghai  "})


def architecture(cpu: Cpu) -> str | None:
    """Return the architecture as read, or x86_64 if only an x86 vendor was read; None if neither was."""
    if cpu.architecture is None and cpu.vendor in X86_VENDORS:
        return SUPPORTED
    return cpu.architecture


def unsupported_reason(cpu: Cpu) -> str | None:
    """Return why this host cannot run GPU virtual machines; None if it is x86_64 or its architecture is not known.

    Code that changes a host must also check ``architecture`` for None.
    """
    name = architecture(cpu)
    if name in (None, SUPPORTED):
        return None
    return f"the processor of this host is {name}, but GPU virtual machines are supported on {SUPPORTED} only"
