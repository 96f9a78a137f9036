# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boot recorded machines as one virtual machine with all their GPUs, NICs and NVMe drives, with both firmwares.

Other tests boot plans that are wrong, and the boot must report it. `make boot` runs them, `make boot-long` the rest.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from machines import GIB, MIB, RECORDINGS, plan, recording
from patience import scaled_s

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import bus_numbers, mmio
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import boot
from ansible_collections.sailloft.fleet.plugins.modules import gpu_plan

pytestmark = pytest.mark.boot

NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))
# `make test` boots the machine with the most devices, and one of AMD with OVMF, which takes several times as long as
# SeaBIOS; `make test-all` the others.
QUICK = {("nvidia-dgx2", "bios"), ("llnl-tioga", "efi")}
BOOTS = [
    pytest.param(*boot, marks=() if boot in QUICK else pytest.mark.long)
    for boot in itertools.product(NAMES, ("bios", "efi"))
]
# The BARs of devices whose recording has none (bytes, bits, prefetchable): those of an H100 SXM for a GPU, the usual
# ones for the others. GPU_MEMORY is for GPUs with less memory: V100, MI250X (each half), MI50. lspci shows 256 MiB of a
# T4's memory. The larger the window, the longer OVMF takes.
GPU_MEMORY = {
    "aws-g4dn-metal": 256 * MIB,
    "llnl-corona": 32 * GIB,
    "llnl-lassen": 16 * GIB,
    "llnl-tioga": 64 * GIB,
    "nvidia-dgx2": 32 * GIB,
}
DEFAULT_BARS = {
    "gpu": [(16 * MIB, 64, True), (128 * GIB, 64, True), (32 * MIB, 64, True)],
    "nic": [(32 * MIB, 64, True)],
    "nvme": [(16 * 1024, 64, False)],
}


def whole(name: str, firmware: str) -> DomainPlan:
    """Plan one virtual machine with every device that a recorded host can pass through."""
    host = recording(name)
    for node in host.numa_nodes:
        node.memory_bytes = max(node.memory_bytes, 64 * GIB)
    for function in host.functions:
        function.used_by_host = []
        if function.kind in DEFAULT_BARS and not function.bars:
            rows = [
                (GPU_MEMORY.get(name, size) if size == 128 * GIB else size, bits, high)
                for size, bits, high in DEFAULT_BARS[function.kind]
            ]
            function.bars = [Bar(at, size, "memory", bits, high) for at, (size, bits, high) in enumerate(rows)]

    def of(kind: str) -> list[str]:
        # A NIC with VFs is not passed through itself.
        return [
            function.address
            for function in host.functions
            if function.kind == kind and not (function.sriov and function.sriov.vfs)
        ]

    return plan(
        host,
        gpus={"addresses": of("gpu")},
        nics={"addresses": of("nic")},
        nvme={"addresses": of("nvme")},
        firmware=firmware,
        memory_mib=65536,
        vcpus=None,
    )


def wrong(result: dict[str, Any]) -> str:
    return "\n".join(finding["message"] for finding in result["findings"])


@pytest.mark.parametrize(("name", "firmware"), BOOTS)
def test_every_recorded_machine_boots_as_planned(name: str, firmware: str) -> None:
    planned = whole(name, firmware)
    result = boot.run(planned, timeout_s=scaled_s(boot.TIMEOUT_S))
    assert result["as_planned"], wrong(result)


def test_the_boot_trial_of_gpu_plan_boots_as_planned(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"recording": str(RECORDINGS / "emulated-gpu-server.json"), "boot_trial": True}
    with patch_module_args(given), pytest.raises(SystemExit):
        gpu_plan.main()
    result = json.loads(capsys.readouterr().out)
    assert result["domains"][0]["boot_trial"]["as_planned"]
    assert result["tree"][-1].endswith(": enumerated as planned")


def test_a_too_small_bus_gap_is_found() -> None:
    """A plan whose buses overlap fails in the firmware: the planner would refuse it, but libvirt and QEMU accept it.

    The bus numbers of the first expander's tree overlap those of the second's.
    """
    planned = plan(firmware="bios")
    for expander, start in zip(planned.root.expanders, (8, 10)):
        bus_numbers.number(expander, start)
    result = boot.run(planned, timeout_s=scaled_s(4))
    assert not result["as_planned"]
    assert "nowhere: the firmware did not reach it" in wrong(result)


def test_planned_bus_numbers_that_differ_from_the_firmwares_are_found() -> None:
    planned = plan(firmware="bios")
    gpu, nic = planned.root.expanders[0].ports[0].ports[0].ports
    gpu.bus, gpu.last_bus, nic.bus, nic.last_bus = nic.bus, nic.last_bus, gpu.bus, gpu.last_bus
    result = boot.run(planned, timeout_s=scaled_s(4))
    assert "gpu 0000:13:00.0: planned at 0000:24:00.0, found at 0000:23:00.0" in wrong(result)


@pytest.mark.long
def test_a_too_small_mmio_window_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of half of what OVMF needs is found: it counts neither the reserves of the ports nor the alignment."""
    monkeypatch.setattr(mmio, "OVMF_PORT_SHARE", 1 << 40)
    monkeypatch.setattr(mmio, "round_up", lambda number, step: number)
    result = boot.run(whole("llnl-lassen", "efi"), timeout_s=scaled_s(15))
    # Everything else is enumerated.
    assert len(result["findings"]) < 4, wrong(result)
    assert "found one without an address" in wrong(result)
