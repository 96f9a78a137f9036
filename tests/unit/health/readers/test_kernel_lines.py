# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lines of the kernel's log are told apart: what reports a fault, where, and what is noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Place
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.kernel_lines import report
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

GPU, NIC = "gpu 0000:9b:00.0", "nic 0000:5c:00.0"


def found(text, device="", kinds=None):
    """Return check and place of a line."""
    result = report(text, device, kinds or {})
    return (result.check, str(result.place)) if result else None


def xid(code, text="pid=1, name=python3, words", address="PCI:0000:9b:00"):
    return f"NVRM: Xid ({address}): {code}, {text}"


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (13, "restart_application"),
        (31, "restart_application"),
        (94, "restart_application"),
        (131, "restart_application"),
        (43, "note"),
        (45, "note"),
        (63, "note"),
        (48, "reset_gpu"),
        (64, "reset_gpu"),
        (74, "reset_gpu"),
        (95, "reset_gpu"),
        (109, "reset_gpu"),
        (119, "reset_gpu"),
        (79, "reboot"),
        (151, "restart_vm"),
        (78, "configure"),
        (54, "person"),
        (167, "person"),
    ],
)
def test_an_xid_asks_for_what_the_catalogue_says(code, action):
    assert found(xid(code)) == (f"xid_{code}", GPU)
    assert RULES[f"xid_{code}"].action == action


@pytest.mark.parametrize("code", [1, 12, 47, 173, 999, 99999])
def test_an_xid_that_the_catalogue_does_not_have_is_for_a_person(code):
    result = report(xid(code), "", {})
    assert (result.check, result.detail, RULES[result.check].action) == ("xid_unknown", f"Xid {code}", "person")


@pytest.mark.parametrize(
    "address", ["PCI:0000:9b:00", "0000:9b:00", "PCI:0000:9B:00.0", "PCI:0000:9b:00 GPU-I:05", "PCI:00000000:9b:00"]
)
def test_the_forms_of_an_xids_address(address):
    assert found(xid(119, address=address)) == ("xid_119", GPU)


NVLINK = "XC0 i0 Link 08 (0x{info:08x} 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"


@pytest.mark.parametrize(
    ("code", "words", "info", "check"),
    [
        (149, "NETIR_LINK_EVT Fatal", 4 << 20, "xid_149_fatal"),
        (149, "NETIR_LINK_EVT  Fatal  ", 0x21 << 20, "xid_149_fatal"),
        (149, "NETIR_LINK_EVT Fatal", 0x26 << 20, "xid_149_ended"),
        (149, "NETIR_LINK_DOWN Fatal", 0x28 << 20, "xid_149_ended"),
        (149, "NETIR_BER_EVENT Nonfatal", 0, "xid_149_nonfatal"),
        (145, "RLW_SRC_TRACK Nonfatal", 0x040988E2, "xid_145_nonfatal"),
        (144, "SAW_MVB Fatal", 0, "xid_144_fatal"),
        (150, "MSE_WATCHDOG Fatal", 0, "xid_150_fatal"),
        (146, "words of a later driver", 0, "xid_146_unknown"),
    ],
)
@pytest.mark.parametrize("process", ["", "pid=876767, name=ray::WorkerDict, "])
def test_errors_of_nvlink_5_are_decoded(process, code, words, info, check):
    assert found(xid(code, f"{process}{words} {NVLINK.format(info=info)}")) == (check, GPU)
    assert check in RULES


def test_errors_of_different_links_are_different_events():
    lines = [xid(149, f"NETIR Fatal XC0 i0 Link {link} (0x000fe406 0x00000000)") for link in ("-1", "08", "08")]
    details = [report(line, "", {}).detail for line in lines]
    assert details[0] != details[1] == details[2]


@pytest.mark.parametrize(
    ("words", "check", "action"),
    [
        ("changed from 0x1 (GPU Reset Required) to 0x0 (None)", "xid_154_none", "note"),
        ("changed from 0x0 (None) to 0x1 (GPU Reset Required)", "xid_154_reset", "reset_gpu"),
        ("changed from 0x0 (None) to 0x2 (Node Reboot Required)", "xid_154_reboot", "reboot"),
        ("changed from 0x0 (None) to 0x3 (Drain P2P)", "xid_154_drain_p2p", "drain"),
        ("changed from 0x0 (None) to 0x4 (Drain and Reset)", "xid_154_drain_and_reset", "reset_gpu"),
        ("changed from 0x0 (None) to 0x9 (Something)", "xid_154_unknown", "person"),
        ("changed", "xid_154_unknown", "person"),
    ],
)
def test_a_new_recovery_action_is_what_is_asked_for(words, check, action):
    assert found(xid(154, f"GPU recovery action {words}")) == (check, GPU)
    assert RULES[check].action == action


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.", ("xid_79", GPU)),
        (
            "NVRM: The NVIDIA GPU 0000:9b:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            ("xid_79", GPU),
        ),
        ("NVRM: GPU 0000:9b:00.0: RmInitAdapter failed! (0x26:0x56:1482)", ("gpu_not_initialized", GPU)),
        ("NVRM: API mismatch: the client has the version 570.1, but", ("nvidia_version_mismatch", "node")),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 63 LTSSM Fault Up",
            ("sxid_fatal", "nvswitch 0000:05:00.0"),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            ("sxid_non_fatal", "nvswitch 0000:05:00.0"),
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 60", None),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x00000000}", None),
        (
            "pcieport 0000:00:01.1: AER: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
            ("aer_corrected", "bridge 0000:00:01.1"),
        ),
        (
            "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer",
            ("aer_corrected", "bridge 0000:00:03.1"),
        ),
        (
            "mlx5_core 0000:5c:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            ("aer_uncorrected", NIC),
        ),
        (
            "nvidia 0000:9b:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
            ("aer_fatal", GPU),
        ),
        (
            "pcieport 0000:00:01.1: AER: Uncorrectable (Fatal) error message received from 0000:9b:00.0",
            ("aer_fatal", "bridge 0000:00:01.1"),
        ),
        (
            "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 1): Detected insufficient power on the PCIe slot (27W).",
            ("nic_slot_power", NIC),
        ),
        (
            "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            ("nic_cable_hot", NIC),
        ),
        (
            "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
            ("nic_cable_hot", "node"),
        ),
        (
            "mlx5_core 0000:5c:00.0: Port module event[error]: module 1, Cable error, Power budget exceeded",
            ("nic_cable_error", NIC),
        ),
        (
            "mlx5_core 0000:5c:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
            ("nic_health", NIC),
        ),
        ("nvme nvme4: Disabling device after reset failure: -19", ("nvme_dead", "nvme nvme4")),
        (
            "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
            ("nvme_timeout", "nvme nvme4"),
        ),
        ("nvme nvme0: I/O 22 QID 3 timeout, reset controller", ("nvme_timeout", "nvme nvme0")),
        ("Buffer I/O error on dev dm-0, logical block 13, lost async page write", ("disk_io_error", "disk dm-0")),
        ("I/O error, dev nvme1n1, sector 8 op 0x0:(READ)", ("disk_io_error", "nvme nvme1")),
        ("md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.", ("raid_failed", "disk md0")),
        ("md/raid1:md127: Disk failure on sdb1, disabling device.", ("raid_degraded", "disk md127")),
        ("EXT4-fs (md0): Remounting filesystem read-only", ("file_system_read_only", "disk md0")),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2", ("file_system_error", "disk sda1")),
        ("EXT4-fs (dm-0): I/O error while writing superblock", ("file_system_error", "disk dm-0")),
        ("XFS (md0): Corruption of in-memory data detected.", ("file_system_error", "disk md0")),
        ("XFS (md0): log I/O error -5", ("file_system_error", "disk md0")),
        ("XFS (rbd3): log I/O error -5", ("network_disk_error", "disk rbd3")),
        ("EXT4-fs error (device rbd0): ext4_find_entry:1455: inode #2", ("network_disk_error", "disk rbd0")),
        ("EXT4-fs (nbd1): Remounting filesystem read-only", ("network_disk_error", "disk nbd1")),
        ("I/O error, dev drbd0, sector 0", ("network_disk_error", "disk drbd0")),
        ("XFS (nvme2n1): Log I/O Error Detected. Shutting down filesystem", ("file_system_read_only", "nvme nvme2")),
        ("EDAC MC0: 1 UE memory read error on P0_DIMM_B", ("memory_uncorrected", "node")),
        ("mce: CPU1: Core temperature above threshold, cpu clock throttled", ("processor_hot", "node")),
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]", ("lockup", "node")),
        ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", ("lockup", "node")),
        ("INFO: task jfsmount:136986 blocked for more than 120 seconds.", ("hung_task", "node")),
        ("Out of memory: Killed process 1234 (python3)", ("out_of_memory", "node")),
    ],
)
def test_a_line_is_named_with_its_place(text, wanted):
    assert found(text) == wanted
    if wanted:
        assert wanted[0] in RULES


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1): ACCESS_REG(0x805) failed, status bad resource",
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
        "perf: interrupt took too long (2506 > 2500), lowering kernel.perf_event_max_sample_rate",
        "nvidia-nvswitch2: open (major=510)",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "NVRM: GPU at PCI:0000:9b:00: GPU-00000000-0000-4000-8000-000000000006",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "EDAC MC0: 1 CE memory read error on P0_DIMM_B",
        # Drives without a medium, and devices of files and of memory, are no disks of the node.
        "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ)",
        "Buffer I/O error on dev loop3, logical block 13, lost async page write",
        "Buffer I/O error on dev zram0, logical block 1, async page read",
        # What a program wrote that quotes a line is not the driver's.
        "my-checker: the log says NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus",
    ],
)
def test_noise_reports_nothing(text):
    assert found(text) is None


def test_a_record_names_the_device_of_a_line_that_does_not():
    text = "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature"
    assert found(text, "0000:5c:00.0") == ("nic_cable_hot", NIC)


def test_a_planned_device_gives_an_error_its_kind():
    text = "pcieport 0000:9b:00.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer"
    assert found(text, kinds={"0000:9b:00.0": "gpu"}) == ("aer_corrected", GPU)


@given(st.text(max_size=200))
def test_any_line_is_read_without_a_crash(text):
    for line in (text, f"NVRM: Xid (PCI:0000:9b:00): {text}", f"NVRM: Xid (PCI:0000:9b:00): 149, {text}"):
        result = report(line, text, {})
        assert result is None or (result.check in RULES and isinstance(result.place, Place))
