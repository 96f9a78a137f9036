# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""AVIC, the virtual interrupt controller of AMD's CPUs: interrupts reach a running guest without an exit to the host.

AVIC is a parameter of kvm_amd that can be set only when the module loads, so it is a kernel argument. Linux 6.18 turns
it on by default on CPUs with x2AVIC since Zen 4 (commit ca2967de5a5b, "no known hardware errata"); on others it must be
requested:

- Without x2AVIC, KVM before Linux 6.0 turns AVIC off for guests with x2APIC; since 6.0 it uses AVIC in part (commit
  0e311d33bfbe, hybrid mode). libvirt's host-passthrough gives all guests x2APIC.
- CPUs of family 17h (Zen 1 and 2) can lose an interrupt between virtual CPUs (erratum 1235). Linux 6.18 does not use
  that part of AVIC on them (arch/x86/kvm/svm/avic.c, enable_ipiv).
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

PARAMETER = "/sys/module/kvm_amd/parameters/avic"
ARGUMENT = "kvm_amd.avic="
HYBRID_SINCE = (6, 0)
ERRATUM_FAMILY = 0x17
ERRATUM_AVOIDED_SINCE = (6, 18)
RELEASE = re.compile(r"(\d+)\.(\d+)")
# The parameter is a bool, which the kernel prints as Y or N; in older kernels it is an int.
AS_NUMBER = {"Y": "1", "N": "0"}


def argument(wanted: bool) -> str:
    """Return the kernel argument."""
    return f"{ARGUMENT}{int(wanted)}"


def unsupported_reason(system: System) -> str | None:
    """Return the reason why AVIC must not be set on this host, or None."""
    cpuinfo = system.read("/proc/cpuinfo") or ""
    if not re.search(r"^vendor_id\s*: AuthenticAMD$", cpuinfo, re.MULTILINE):
        return "its CPUs are not AMD's"
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    has = flags[1].split() if flags else []
    if "avic" not in has:
        return "its CPUs or their firmware do not offer AVIC (no flag avic in /proc/cpuinfo)"
    match = RELEASE.match(system.read("/proc/sys/kernel/osrelease") or "")
    if not match:
        return "the release of the running kernel is not known"
    release = (int(match[1]), int(match[2]))
    family = re.search(r"^cpu family\s*: (\d+)$", cpuinfo, re.MULTILINE)
    if (not family or int(family[1]) == ERRATUM_FAMILY) and release < ERRATUM_AVOIDED_SINCE:
        return "its CPUs have erratum 1235, which makes guests hang; Linux 6.18 avoids it"
    if "x2avic" not in has and release < HYBRID_SINCE:
        return "its CPUs have no x2AVIC, and before Linux 6.0 guests with x2APIC then cannot use AVIC"
    return None


def seen(system: System) -> str:
    """Return the running value as 1, 0 or other text."""
    now = system.read(PARAMETER)
    return "kvm_amd is not loaded" if now is None else AS_NUMBER.get(now, now)
