# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The servers of the threads that docs/background/gpudirect.md names, made up from the facts in the threads.

Each recording is of a server on which nothing was set. The library computes what gpu_hosts.yml sets, and the test puts
it into a copy, since there is no such server; what gpu_vms.yml then plans must be free of every known cause.
"""

from __future__ import annotations

import json
import re

import pytest
from gpudirect_servers import SETTINGS, outlook_rows
from machines import RECORDINGS, as_recorded

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_families
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import acs_argument
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import VIRTUAL_MACHINES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Ats
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.dry_run import planned

# The numbers of GPUs, of NICs, and of pairs of a GPU and its nearest NIC, and the rate of their links in GB/s.
THREADS = {"nccl-tests-380": (8, 4, 8, 63), "nccl-2171": (8, 8, 8, 63), "nccl-949": (4, 2, 4, 32)}
NAMES = sorted(path.stem for path in RECORDINGS.glob("threads/*.json"))


def devices(host):
    return [function for function in host.functions if function.kind in ("gpu", "nic")]


def plan(host):
    """Return what plan.yml shows and writes for a virtual machine with the whole host."""
    given = {
        "topology": host.to_dict(),
        "recording": None,
        "domains": None,
        "gpu_module_ids": {},
        "gpu_partitions": {},
        "accelerators": {},
    }
    return planned({**given, "host_name": "server", "path": None, "boot_trial": False}, check_mode=True)


def with_gpu_hosts(host):
    """Set what gpu_hosts.yml computes for this server: firmware, ACS and MaxReadReq."""
    acs = AcsPlan(host, devices(host), VIRTUAL_MACHINES)
    for nic in (function for function in host.functions if function.kind == "nic"):
        if nic_families.values(nic, acs)["ATS_ENABLED"]:
            nic.ats = Ats(True, 0)
        nic.max_read_request_bytes = 4096
    for port in acs.ports:
        bits = host.function(port.address).acs
        bits.control = port.mask.applied(bits.control, bits.capability)
    return host


def of_gpudirect(tree):
    """Return the lines of the outlook."""
    at = next(number for number, line in enumerate(tree) if line.startswith("GPUDirect: "))
    lines = [tree[at]]
    for line in tree[at + 1 :]:
        if not line.startswith("  "):
            break
        lines.append(line)
    return lines


def settings_of(lines):
    """Return the settings and the verdict of each pair of an outlook."""
    return [[row[name] for name in (*SETTINGS, "verdict")] for row in outlook_rows(lines)]


def test_each_recording_of_a_thread_is_tested():
    assert sorted(THREADS) == NAMES


@pytest.mark.parametrize("name", THREADS)
def test_a_recording_names_its_source_and_has_the_devices_of_its_thread(name):
    whole = json.loads((RECORDINGS / "threads" / f"{name}.json").read_text(encoding="utf-8"))
    assert whole["source"].startswith("the thread gives ")
    assert "made up: " in whole["source"]
    kinds = [function.kind for function in as_recorded(f"threads/{name}").functions]
    assert (kinds.count("gpu"), kinds.count("nic")) == THREADS[name][:2]


@pytest.mark.parametrize("name", THREADS)
def test_causes_are_found_before_the_roles_run_and_missing_ats_is_reported(name):
    host = as_recorded(f"threads/{name}")
    _gpus, _nics, pairs, rate = THREADS[name]
    found = outlook.pairs(host, devices(host))
    assert {pair.verdict for pair in found} == {"slow"}
    causes = {re.sub(r"[0-9a-f:.]{12}", "X", cause.what) for pair in found for cause in pair.causes}
    assert causes == {
        "the NIC has no ATS capability",
        "ACS of port X is 0011101, wanted 1x11101",
        "MaxReadReq of the NIC is 512 bytes",
    }
    # plan.yml assumes ACS and MaxReadReq as the roles set them, and reports what needs firmware settings.
    lines = of_gpudirect(plan(host)["tree"])
    assert lines[0] == f"GPUDirect: 0 of {pairs} pairs of GPU and NIC are direct, {rate} GB/s by their links"
    assert settings_of(lines) == [["no", "1011101", "on", "4096", "yes", f"{rate}", "slow"]] * pairs
    cause, remedy = lines[-2:]
    assert cause.startswith("  the NIC has no ATS capability (GPU ")
    assert "remedy: ATS_ENABLED" in remedy


@pytest.mark.parametrize("name", THREADS)
def test_the_plan_has_no_known_cause_after_the_roles_have_run(name):
    host = with_gpu_hosts(as_recorded(f"threads/{name}"))
    _gpus, _nics, pairs, rate = THREADS[name]
    assert {pair.verdict for pair in outlook.pairs(host, devices(host))} == {"direct"}
    result = plan(host)
    lines = of_gpudirect(result["tree"])
    assert lines[0] == f"GPUDirect: {pairs} of {pairs} pairs of GPU and NIC are direct, {rate} GB/s by their links"
    assert settings_of(lines) == [["yes", "1011101", "on", "4096", "yes", f"{rate}", "direct"]] * pairs
    assert [item for item in result["findings"] if "ats" in item["what"]] == []
    (domain,) = result["domains"]
    assert domain["plan"]["fidelity"]["share"] == 1.0
    # NCCL uses the host's links instead of the 2.5 GT/s x1 of QEMU's switches (NVIDIA/nccl-tests#256).
    speeds = set(re.findall(r'link_speed="([\d.]+) GT/s PCIe" link_width="(\d+)"', domain["nccl_topology"]))
    assert speeds == {("32.0" if rate == 63 else "16.0", "16")}


@pytest.mark.parametrize("name", THREADS)
def test_the_kernel_argument_sets_acs_of_the_ports_of_nics(name):
    host = as_recorded(f"threads/{name}")
    decision = acs_argument.decide(AcsPlan(host, devices(host), VIRTUAL_MACHINES), "")
    ports = {function.parent for function in host.functions if function.kind == "nic"}
    wanted = {f"1x11101@{port}" for port in ports}
    assert set(decision.argument[len(acs_argument.PREFIX) :].split(";")) == wanted
