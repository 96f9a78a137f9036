# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import avic, kernel_arguments, kernel_settings

ZEN2, ZEN3_OR_4, ZEN5 = 23, 25, 26
UNKNOWN = Mentions("release")


def amd(server, family=ZEN3_OR_4, flags="fpu svm avic x2avic", release="6.12.25-amd64", running="N"):
    """Give the server AMD CPUs; ``running`` is the value of kvm_amd's parameter."""
    cpu = f"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: 17\nflags\t\t: {flags}\n\n"
    server.put("/proc/cpuinfo", cpu)
    server.put("/proc/sys/kernel/osrelease", f"{release}\n")
    if running:
        server.put(avic.PARAMETER, f"{running}\n")
    server.put("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    server.run(["update-grub"])


def arguments(server, wanted=True, **given):
    return kernel_arguments.ensure(server, {"avic": wanted, **given}, check=True).facts["arguments"]


def row(server, wanted=True):
    outcome = kernel_settings.ensure(server, {"avic": wanted})
    assert not outcome.changed
    return outcome.facts["settings"]["avic"], outcome.pending


@pytest.mark.parametrize(("wanted", "number"), [(True, "1"), (False, "0")])
def test_avic_is_set_by_an_argument_and_is_pending_until_the_boot(server, wanted, number):
    amd(server, running={"1": "N", "0": "Y"}[number])
    assert arguments(server, wanted) == [f"kvm_amd.avic={number}"]
    found, pending = row(server, wanted)
    assert found == {"wanted": wanted, "seen": {"1": "0", "0": "1"}[number]}
    assert pending == [Mentions(found["seen"], f"kvm_amd.avic={number}")]
    assert not [effect for effect in server.effects if "avic" in effect]
    server.put(avic.PARAMETER, {"1": "Y\n", "0": "N\n"}[number])
    assert row(server, wanted) == ({"wanted": wanted, "seen": number}, [])


def test_no_argument_is_set_if_avic_is_not_given(server):
    amd(server)
    assert kernel_arguments.ensure(server, {}, check=True).facts["arguments"] == []
    assert kernel_settings.ensure(server, {}).facts["settings"] == {}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"flags": "fpu svm"}, Mentions("/proc/cpuinfo")),
        ({"flags": "fpu svm x2avic"}, Mentions("/proc/cpuinfo")),
        ({"family": ZEN2, "flags": "svm avic", "release": "6.12.25"}, Mentions("1235")),
        ({"family": ZEN2, "flags": "svm avic", "release": "6.18.1"}, ""),
        ({"flags": "svm avic", "release": "5.15.0-100-generic"}, Mentions("x2APIC", "AVIC")),
        ({"flags": "svm avic", "release": "6.0.1"}, ""),
        ({"release": "5.15.0-100-generic"}, ""),
        ({"family": ZEN5, "release": "6.10.0"}, ""),
        ({"release": "unknown"}, Mentions("release")),
    ],
)
def test_avic_is_set_only_on_suitable_processors_and_kernels(server, given, reason):
    amd(server, **given)
    found, pending = row(server)
    assert found.get("not_applicable", "") == reason
    assert bool(reason) == ("not_applicable" in found) == (not pending) == (arguments(server) == [])


def test_avic_is_not_applicable_on_intel_cpus(server):
    server.put("/proc/sys/kernel/osrelease", "6.12.25\n")
    server.put("/proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nflags : fpu vmx avic\n\n")
    assert row(server)[0]["not_applicable"] == Mentions("CPUs", "AMD's")


def test_avic_is_not_on_if_its_module_is_not_loaded(server):
    amd(server, running="")
    assert row(server)[0] == {"wanted": True, "seen": Mentions("kvm_amd")}


@pytest.mark.parametrize(("text", "seen"), [("Y", "1"), ("N", "0"), ("1", "1"), ("0", "0"), ("auto", "auto")])
def test_all_forms_of_the_module_parameter_are_read(server, text, seen):
    amd(server, running=text)
    assert avic.seen(server) == seen


def test_a_contradicting_manual_argument_is_refused(server):
    amd(server)
    with raises(HostError, "kvm_amd.avic=1", "kvm_amd.avic=0"):
        arguments(server, arguments=["kvm_amd.avic=0"])


AMD = "vendor_id\t: AuthenticAMD\ncpu family\t: {}\nflags\t\t: svm {}\n"
ERRATUM = Mentions("CPUs", "1235")
HYBRID = Mentions("CPUs", "x2AVIC", "6.0", "x2APIC", "AVIC")


@pytest.mark.parametrize(
    ("family", "flags", "release", "why"),
    [
        (25, "avic x2avic", "5.4", None),
        (25, "avic", "5.19", HYBRID),
        (25, "avic", "6.0", None),
        (23, "avic x2avic", "6.17", ERRATUM),
        (23, "avic", "6.18", None),
        (22, "avic", "6.17", None),
        (24, "avic", "6.17", None),
        ("?", "avic", "6.17", ERRATUM),
        ("?", "avic", "6.18", None),
        (25, "x2avic", "6.18", Mentions("CPUs", "AVIC", "/proc/cpuinfo")),
        (25, "avic", "6", UNKNOWN),
        (25, "avic", "", UNKNOWN),
    ],
)
def test_the_reason_against_avic_is_named(server, family, flags, release, why):
    server.put("/proc/cpuinfo", AMD.format(family, flags))
    server.put("/proc/sys/kernel/osrelease", f"{release}\n")
    assert avic.unsupported_reason(server) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vendor_id : GenuineIntel\nflags : avic\n", Mentions("CPUs", "AMD's")),
        ("model name : AuthenticAMD\n", Mentions("CPUs", "AMD's")),
        (
            "vendor_id : AuthenticAMD\n",
            Mentions("CPUs", "AVIC", "/proc/cpuinfo"),
        ),
    ],
)
def test_processors_without_avic_are_named(server, text, why):
    server.put("/proc/cpuinfo", text)
    assert avic.unsupported_reason(server) == why
    server.remove("/proc/cpuinfo")
    assert avic.unsupported_reason(server) == Mentions("CPUs", "AMD's")
