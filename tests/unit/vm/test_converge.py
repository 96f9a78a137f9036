# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of the modules' work that need no libvirt."""

from __future__ import annotations

from drifting import DEFINED, LIVE, WANTED, gone, host, wanted_of
from machines import observed, plan

from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.actions import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import differences, running_differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import differences_of_domain


def domain(inactive: str = DEFINED, live: str | None = LIVE) -> ObservedDomain:
    return ObservedDomain("vm1", "6933ed64-1e52-5506-96fd-10290ce7eb8c", inactive, live)


def test_drift_is_plain_data() -> None:
    assert converge.drifted(domain(), host(), wanted_of(WANTED), None) == []
    assert converge.drifted(None, host(), None, None) == []
    found = converge.drifted(domain(DEFINED.replace("<locked/>", "")), host(), wanted_of(WANTED), None)
    assert found == [
        {
            "what": "memory is not locked as planned: locked is missing",
            "where": ["defined"],
            "consequence": "pauses when the host swaps",
            "remedy": "run playbooks/gpu_vms.yml, which defines it again",
            "paths": ["memoryBacking/locked"],
        }
    ]


def test_drift_reports_that_the_request_can_no_longer_be_planned() -> None:
    made = host()
    gone("0000:14:00.0")(made)
    found = converge.drifted(domain(), made, None, "virtual machine vm1: no PCI function 0000:14:00.0 on this host")
    assert [item["what"].split(":")[0] for item in found[:2]] == [
        "the request cannot be planned on this host as it is now",
        "NIC 0000",
    ]


def test_a_difference_in_the_record_is_defined_again_without_a_restart() -> None:
    made = plan()
    old = observed(made, running=True)
    old.inactive_xml = old.inactive_xml.replace('node="0"', 'node="1"')
    old.live_xml = old.inactive_xml
    wanted = observed(made).inactive_xml
    assert decide("gpu-vm", "running", old, wanted, made.spec.uuid, True, True).actions == ["define"]
    assert decide("gpu-vm", "running", old, wanted, made.spec.uuid, True, False).restart_required is False
    # An additional device in the record is a difference as well.
    more = wanted.replace("</sailloft:plan>", '<sailloft:device address="0000:99:00.0" /></sailloft:plan>')
    assert [item.path for item in differences(wanted, more)] == ["metadata/sailloft:plan/sailloft:device[0000:99:00.0]"]


def test_the_proof_describes_drift_and_lists_other_differences() -> None:
    inactive = DEFINED.replace("vcpu='0' cpuset='1'", "vcpu='0' cpuset='2'").replace(
        "<log file=", "<log append='on' file=", 1
    )
    inactive = inactive.replace(" append='off'", "", 1)
    live = LIVE.replace("vcpu='0' cpuset='1'", "vcpu='0' cpuset='2'").replace(
        "vcpu='1' cpuset='5'", "vcpu='1' cpuset='6'"
    )
    row = {
        "exists": True,
        "process": {"pid": 1},
        "drift": converge.drifted(domain(inactive, live), host(), wanted_of(WANTED), None),
        "differences": [item.to_dict() for item in differences(WANTED, inactive)],
        "live_differences": [item.to_dict() for item in running_differences(WANTED, live)],
    }
    consequence = "a vCPU may share its core or be far from its memory: ranks wait for the slowest one"
    assert differences_of_domain(row) == [
        f"defined: vCPUs are not pinned as planned: vCPU 0 on CPU 2, planned 1; {consequence}",
        "defined: devices/serial[0]/log/@append: wanted off, have on",
        "running: vCPUs are not pinned as planned: vCPU 0 on CPU 2, planned 1, vCPU 1 on CPU 6, planned 5; "
        f"{consequence}",
    ]
