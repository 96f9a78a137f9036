# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Outputs of the real tools, in health and sickness: each sick part is named, no healthy one is.

``FAULTS`` has what each entry of the manifest must give. A verdict of "not measured" is in ``UNMEASURED``.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from pathlib import Path

import pytest
from gpu_readings import Verdicts
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    ACTIONS,
    APPLICATION,
    CheckSetting,
    Expected,
    ExpectedDevice,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers import kernel_log
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import (
    dcgm,
    fabric_manager,
    nvidia_smi,
    nvlink,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
ROOT = Path(ORIGINALS or "/nonexistent") / "health"
pytestmark = pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")
KINDS = ("nvidia-smi/", "nvidia-smi-published/", "dcgm/", "kernel-log/", "fabric-manager/")

# The GPUs of the profiles, in the order of their addresses.
BUSES = {
    "h100": ("1a", "1b", "4a", "4b", "8a", "8b", "ca", "cb"),
    "a100": ("07", "0f", "47", "4e", "87", "90", "b7", "bd"),
}
# Speed of the profiles' links at work, GT/s.
SPEEDS = {"a100": 16.0, "h100": 32.0, "l40s": 16.0, "t4": 8.0, "b200": 64.0, "gb200": 64.0, "gb300": 64.0}
LINKS = {"a100": 12, "h100": 18, "b200": 18, "gb200": 18, "gb300": 18}
H100, A100 = "nvidia-smi/550.163.01/h100/", "nvidia-smi/550.163.01/a100/"
OLD, OLDEST = "nvidia-smi/535.261.03/a100/", "nvidia-smi/470.256.02/a100/"
PUBLISHED, DCGM, KERNEL, FABRIC = KINDS[1:]

# An error since the driver was loaded is also one of the GPU's life.
LIFETIME = "gpu_ecc_lifetime_uncorrectable"
# What each entry must give: check and place of a fault; a number is the GPU's in the order of the addresses.
FAULTS = {
    f"{H100}row-remap-pending/": {("gpu_row_remap_pending", 3)},
    f"{OLD}row-remap-pending/": {("gpu_row_remap_pending", 6)},
    f"{H100}row-remap-failure/": {("gpu_row_remap_failure", 5)},
    f"{OLDEST}row-remap-failure/": {("gpu_row_remap_failure", 2)},
    f"{H100}ecc-dram-uncorrectable/": {("gpu_ecc_dram_uncorrectable", 1), (LIFETIME, 1)},
    f"{H100}ecc-sram-threshold/": {
        ("gpu_ecc_sram_uncorrectable", 6),
        (LIFETIME, 6),
        ("gpu_sram_threshold_exceeded", 6),
    },
    f"{OLD}ecc-dram-uncorrectable/": {("gpu_ecc_dram_uncorrectable", 0), (LIFETIME, 0)},
    f"{H100}ecc-disabled/": {("gpu_ecc_mode", 2)},
    f"{H100}ecc-injector/": {("gpu_ecc_dram_uncorrectable", 4), (LIFETIME, 4), ("gpu_row_remap_failure", 4)},
    "nvidia-smi/550.163.01/t4/retired-pages-pending/": {("gpu_retired_pages_pending", 0)},
    f"{A100}pcie-gen1-busy/": {("pcie_speed", 2)},
    f"{H100}pcie-width-x8/": {("pcie_width", 4)},
    f"{OLD}pcie-gen1-x8-busy/": {("pcie_speed", 5), ("pcie_width", 5)},
    f"{H100}pcie-replays/": {("gpu_pcie_replays", 1)},
    f"{H100}power-brake/": {("gpu_power_brake", 0)},
    f"{H100}hw-thermal-slowdown/": {("gpu_hw_thermal_slowdown", 7)},
    f"{OLDEST}power-brake/": {("gpu_power_brake", 3)},
    f"{OLD}hw-thermal-slowdown/": {("gpu_hw_thermal_slowdown", 1)},
    f"{H100}driver-not-loaded/": {("gpu_driver_fails", "node")},
    f"{H100}library-mismatch/": {("gpu_driver_fails", "node")},
    f"{H100}gpu-lost-handle/": {("gpu_lost", 3)},
    f"{H100}gpu-lost-late/": {("gpu_lost", 3)},
    f"{H100}gpu-missing/": {("device_missing", 3)},
    f"{H100}gpu-reset-required/": {("gpu_reset_required", 6)},
    f"{H100}nvlink-two-inactive/": {("gpu_nvlinks_active", 4)},
    f"{H100}nvlink-errors/": {("gpu_nvlink_replays", 6), ("gpu_nvlink_recoveries", 6)},
    "nvidia-smi/550.163.01/gb200/fabric-degraded/": {("gpu_fabric_bandwidth", 1)},
    f"{H100}persistence-off/": {("gpu_persistence_mode", 0)},
    f"{PUBLISHED}edited-v13-recovery-reset.xml": {("gpu_reset_required", 0)},
    f"{PUBLISHED}edited-v13-remap-pending-inactive.xml": {("gpu_row_remap_pending", 0)},
    f"{PUBLISHED}q-ecc-row-remapper-pending-h100.txt": {("gpu_row_remap_pending", 0)},
    # Three GPUs missed a level of stress, severity "monitor": it takes no node out of service.
    f"{DCGM}diag-3-per-gpu-pass-skip.json": {("dcgm_diag_monitor", number) for number in (0, 2, 3)},
    f"{DCGM}constructed-diag-3-fail-memory.json": {("dcgm_diag_memory", 3)},
    f"{DCGM}diag-3-config-fail-no-gpu-ids.json": {("dcgm_diag_configuration", "node")},
    f"{DCGM}nvlink-errors-gpu0.json": {("gpu_nvlink_crc_errors", 0)},
    f"{DCGM}diag-4.2.3-config-fail.json": {("dcgm_diag_configuration", 0)},
    f"{DCGM}constructed-diag-4-fail-memory.json": {("dcgm_diag_memory", 3)},
    f"{DCGM}constructed-diag-4-software-remap-pending-rest-skipped.json": {("dcgm_diag_reset", 6)},
    f"{DCGM}constructed-health-pcie-warning.json": {("dcgm_health_warning", 2)},
    f"{DCGM}constructed-health-memory-failure.json": {("dcgm_health", 3)},
    f"{KERNEL}xid-119-gsp-timeout.log": {("xid_119", "gpu 0000:9b:00.0")},
    f"{KERNEL}xid-79-fallen-off-bus.log": {("xid_79", "gpu 0000:91:00.0")},
    f"{KERNEL}fallen-off-bus-without-xid.log": {("xid_79", "gpu 0000:b3:00.0")},
    f"{KERNEL}xid-48-63-94-dbe-contained.log": {("xid_48_contained", "gpu 0000:52:00.0")},
    f"{KERNEL}xid-95-uncontained.log": {("xid_95", "gpu 0000:01:00.0")},
    f"{KERNEL}xid-13-31-43-109-applications.log": {
        ("xid_13", "gpu 0000:38:00.0"),
        ("xid_31", "gpu 0000:2b:00.0"),
        ("xid_43", "gpu 0000:38:00.0"),
        ("xid_109", "gpu 0000:cb:00.0"),
    },
    f"{KERNEL}xid-145-149-154-nvlink5-gb200.log": {
        ("xid_145_nonfatal", "gpu 0008:01:00.0"),
        ("xid_145_nonfatal", "gpu 0018:01:00.0"),
        ("xid_145_nonfatal", "gpu 0019:01:00.0"),
        ("xid_149_nonfatal", "gpu 0008:01:00.0"),
        ("xid_149_nonfatal", "gpu 0018:01:00.0"),
        ("xid_149_fatal", "gpu 0008:01:00.0"),
        ("xid_149_fatal", "gpu 0018:01:00.0"),
        ("xid_149_fatal", "gpu 0019:01:00.0"),
        ("xid_154_reset", "gpu 0008:01:00.0"),
        ("xid_154_drain_and_reset", "gpu 0009:01:00.0"),
    },
    f"{KERNEL}xid-74-nvlink.log": {("xid_74", "gpu 0000:c1:00.0")},
    f"{KERNEL}sxid-20034-fatal.log": {("sxid_fatal", f"nvswitch 0000:{bus}:00.0") for bus in ("05", "06", "07")},
    f"{KERNEL}sxid-12028-non-fatal.log": {("sxid_non_fatal", "nvswitch 0000:05:00.0")},
    f"{KERNEL}mlx5-power-cable-access-reg.log": {("nic_slot_power", "nic 0000:5c:00.0"), ("nic_cable_hot", "node")},
    f"{KERNEL}disk-nvme-md-ext4.log": {
        ("nvme_timeout", "nvme nvme4"),
        ("nvme_dead", "nvme nvme4"),
        ("disk_io_error", "disk dm-0"),
        ("file_system_error", "disk dm-0"),
        ("raid_failed", "disk md0"),
        ("file_system_read_only", "disk md0"),
    },
    f"{KERNEL}hang-lockup.log": {("lockup", "node"), ("hung_task", "node")},
    f"{KERNEL}aer-corrected.log": {("aer_corrected", "bridge 0000:00:01.1"), ("aer_corrected", "bridge 0000:00:03.1")},
    f"{FABRIC}fabricmanager-non-fatal-12028.log": {("fabric_manager_non_fatal", "nvswitch 0000:86:00.0")},
    f"{FABRIC}gpu-handle-not-found.log": {("fabric_manager_gpu_left", "node")},
    f"{FABRIC}topology-mismatch.log": {("fabric_manager_topology", "node")},
    f"{FABRIC}nothing-to-do.log": {("fabric_manager_no_switches", "node")},
}
# Entries that measure nothing at all, and a word of the reason.
NOTHING = {
    f"{H100}gpu-hung/": "end",
    f"{H100}no-nvml-library/": "libnvidia-ml.so",
    f"{H100}query-invalid-field/": "valid",
    f"{OLDEST}query-invalid-field/": "valid",
    f"{DCGM}constructed-diag-4-runtime-error.json": "paused",
}
# Checks that must be not measured, by GPU.
ALL = tuple(range(8))
ECC = ("gpu_ecc_dram_uncorrectable", "gpu_ecc_sram_uncorrectable")
REMAP = ("gpu_row_remap_pending", "gpu_row_remap_failure")
UNMEASURED = {
    f"{H100}fabric-in-progress/": (("gpu_fabric_state", "gpu_unreadable"), range(8)),
    f"{H100}ecc-disabled/": (ECC, (2,)),
    f"{H100}gpu-lost-handle/": (("gpu_lost", "device_missing"), (0, 1, 2, 4, 5, 6, 7)),
    f"{H100}gpu-lost-late/": ((*ECC, *REMAP, "pcie_width"), (3,)),
    "nvidia-smi/550.163.01/t4/healthy-idle/": (REMAP, (0, 1, 2, 3)),
    "nvidia-smi/550.163.01/t4/retired-pages-pending/": (REMAP, (0, 1, 2, 3)),
    "nvidia-smi/550.163.01/l40s/healthy-idle-gen1/": (("pcie_speed",), ALL),
    "nvidia-smi/555.58.02/h100/healthy-busy/": (("gpu_reset_required",), ALL),
    f"{PUBLISHED}v12-a100-sxm4-mig.xml": (REMAP, (0,)),
    f"{PUBLISHED}v12-rtx-3080.xml": ((*ECC, *REMAP), (0,)),
    f"{PUBLISHED}q-ecc-row-remapper-pending-h100.txt": ((*ECC, "gpu_ecc_mode", "gpu_unreadable"), (0,)),
    f"{DCGM}diag-3-per-gpu-pass-skip.json": (("dcgm_diag_diagnostic", "dcgm_diag_targeted_power"), (0, 1, 2, 3)),
    f"{DCGM}diag-3-config-fail-no-gpu-ids.json": (("dcgm_diag_software", "dcgm_diag_memory"), ALL),
    f"{DCGM}diag-4.2.3-config-fail.json": (("dcgm_diag_software", "dcgm_diag_memory"), (0,)),
    f"{DCGM}constructed-diag-4-pass.json": (("dcgm_diag_diagnostic", "dcgm_diag_targeted_stress"), ALL),
    f"{DCGM}constructed-diag-4-all-skipped.json": (("dcgm_diag_memory", "dcgm_diag_pcie"), ALL),
    f"{DCGM}constructed-diag-4-software-remap-pending-rest-skipped.json": (
        ("dcgm_diag_memory", "dcgm_diag_pcie"),
        ALL,
    ),
}
# Checks that must pass on all GPUs.
PASSED = {
    f"{DCGM}diag-3.1-pass-with-text-and-nulls.json": ("dcgm_diag_software",),
    f"{DCGM}constructed-diag-4-pass.json": ("dcgm_diag_software", "dcgm_diag_memory", "dcgm_diag_pcie"),
    f"{DCGM}constructed-health-healthy.json": ("dcgm_health", "dcgm_health_warning"),
    f"{H100}row-remap-done/": REMAP,
    f"{H100}healthy-busy/": (*ECC, *REMAP, "pcie_speed", "gpu_power_brake", "gpu_nvlinks_active"),
    f"{OLDEST}healthy-busy/": (*ECC, *REMAP, "pcie_speed", "gpu_power_brake"),
}


def manifest():
    """Return the paths of the manifest's entries of the kinds that these readers read."""
    if not ORIGINALS:
        return [""]
    lines = (ROOT / "MANIFEST.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [path for path in (line.partition("\t")[0] for line in lines) if path.startswith(KINDS)]


def text_of(folder, name):
    """Return a file of an entry, or None; the long ones are in an archive."""
    if (folder / name).exists():
        return (folder / name).read_text(encoding="utf-8")
    if (folder / "full.tar.xz").exists():
        with tarfile.open(folder / "full.tar.xz") as archive:
            if name in archive.getnames():
                return archive.extractfile(name).read().decode()
    return None


def addresses_of(text, profile):
    """Return the addresses of the GPUs of a report; those of the profile if it has fewer."""
    found = [pci_address(each) for each in re.findall(r'<gpu id="([^"]*)"', text)]
    planned = [f"0000:{bus}:00.0" for bus in BUSES.get(profile, ())]
    return sorted(planned if len(found) < len(planned) else found)


def plan(addresses, speed=None, links=None, width=16, settings=("Enabled", "Enabled"), **terms):
    devices = tuple(
        ExpectedDevice(each, "gpu", f"GPU {number}", "10de:2330", speed, width, nvlinks=links)
        for number, each in enumerate(addresses)
    )
    names = dict(zip(("persistence_mode", "ecc_mode"), settings))
    return Expected("gpu-001", devices, gpu_settings=names, **terms)


def of_smi(path):
    """Return the expectation and the verdicts of a recorded tool, after a healthy reading of the same profile."""
    folder, profile = ROOT / path, path.split("/")[2]
    report = text_of(folder, "q.xml") or text_of(folder, "query-invalid-field.csv")
    expected = plan(addresses_of(report, profile), SPEEDS[profile], LINKS.get(profile))
    names = [each.address for each in expected.devices]
    measured = nvidia_smi.parse(report, expected)
    states, errors = text_of(folder, "nvlink-s.txt"), text_of(folder, "nvlink-e.txt")
    healthy = ROOT / "/".join(path.split("/")[:3]) / "healthy-busy"
    earlier = None
    if states and errors and not path.endswith("gpu-lost-handle/"):
        measured += of_links(states, errors, report)
        # Counters are judged by what was before: here those of the healthy machine of the same profile.
        before, counters = text_of(healthy, "q.xml"), text_of(healthy, "nvlink-e.txt")
        if before and counters and "missing" not in path:
            earlier = Reading("nvidia_smi", nvidia_smi.parse(before, expected) + of_links(states, counters, before))
    return names, Verdicts(Reading("nvidia_smi", measured), expected, earlier)


def of_links(states, errors, report):
    uuids = dict(zip(re.findall(r"<uuid>(GPU-[^<]*)<", report), re.findall(r'<gpu id="([^"]*)"', report)))
    addresses = {uuid: pci_address(address) for uuid, address in uuids.items()}
    return nvlink.measurements(nvlink.parse(states), nvlink.parse(errors), addresses)


def of_published(path):
    """Return the verdicts of a published report, held against what that machine has by design."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".txt"):
        text = as_xml(text)
    width = int(re.search(r"<current_link_width>(\d+)x<", text)[1]) if "current_link_width" in text else 16
    modes = [re.search(rf"<{name}>([^<]*)<", text) for name in ("persistence_mode", "current_ecc")]
    settings = [match[1] if match and match[1] in ("Enabled", "Disabled") else "Enabled" for match in modes]
    expected = plan(addresses_of(text, ""), 16.0, width=width, settings=settings)
    reading = Reading("nvidia_smi", nvidia_smi.parse(text, expected))
    return [each.address for each in expected.devices], Verdicts(reading, expected)


def as_xml(text):
    """Return the plain text of ``nvidia-smi -q`` in the form that the reader asks for, field by field."""
    address = re.search(r"GPU ([0-9A-F:.]+)\n", text)[1]
    ecc = re.search(r"ECC Mode\s+Current\s+: (.*)\s+Pending\s+: (.*)", text)
    volatile = text[text.index("Volatile") : text.index("Aggregate\n")]
    tags = {
        "SRAM Uncorrectable Parity": "sram_uncorrectable_parity",
        "SRAM Uncorrectable SEC-DED": "sram_uncorrectable_secded",
        "DRAM Uncorrectable": "dram_uncorrectable",
    }
    counts = {tag: re.search(rf"{name}\s+: (.*)", volatile)[1] for name, tag in tags.items()}
    errors = "".join(f"<{tag}>{value}</{tag}>" for tag, value in counts.items())
    rows = text[text.index("Remapped Rows") :]
    pending, failed = (re.search(rf"{name}\s+: (.*)", rows)[1] for name in ("Pending", "Remapping Failure Occurred"))
    return (
        f'<nvidia_smi_log><gpu id="{address}"><ecc_mode><current_ecc>{ecc[1]}</current_ecc>'
        f"<pending_ecc>{ecc[2]}</pending_ecc></ecc_mode><ecc_errors><volatile>{errors}</volatile></ecc_errors>"
        f"<remapped_rows><remapped_row_pending>{pending}</remapped_row_pending>"
        f"<remapped_row_failure>{failed}</remapped_row_failure></remapped_rows></gpu></nvidia_smi_log>"
    )


def of_dcgm(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    count = 1 if "4.2.3" in path or "gpu0" in path else 4 if "per-gpu" in path else 8
    names = [f"0000:{number:02x}:00.0" for number in range(count)]
    expected, addresses = plan(names, links=2), dict(enumerate(names))
    if "nvlink" in path:
        return names, of_dcgm_links(text, names[0], expected)
    parse = dcgm.parse_health if "health" in Path(path).name else dcgm.parse_diagnostic
    return names, Verdicts(Reading("dcgm", parse(text, addresses)), expected)


def of_dcgm_links(text, address, expected):
    """Give the counters of ``dcgmi nvlink -e`` in the form of nvidia-smi's, which the reader asks."""
    lines = ["GPU 0: NVIDIA (UUID: GPU-0)"]
    for link, entry in json.loads(text)["body"].items():
        counts = {name: int(each["value"]) for name, each in entry["children"].items()}
        lines.append(f"\t {link}: CRC Errors: {counts['CRC Data Error'] + counts['CRC FLIT Error']}")
    counted = nvlink.measurements({}, nvlink.parse("\n".join(lines)), {"GPU-0": address})
    assert next(each for each in counted if each.check == "gpu_nvlink_crc_errors").reason == "link 0: 12"
    zeros = nvlink.parse(re.sub(r": \d+$", ": 0", "\n".join(lines), flags=re.M))
    before = nvlink.measurements({}, zeros, {"GPU-0": address})
    # The rule allows 100 a second; here any error counts.
    strict = Expected(expected.host, expected.devices, settings={"gpu_nvlink_crc_errors": CheckSetting(limit=0)})
    return Verdicts(Reading("nvlink", counted), strict, Reading("nvlink", before))


def of_log(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    expected = plan(())
    found = tuple(kernel_log.events(kernel_log.records(text), expected, "boot"))
    return [], Verdicts(Reading("kernel_log", events=found), expected)


def of_fabric_manager(path):
    expected = plan((), needs_fabric_manager=True)
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    events = tuple(filter(None, (fabric_manager.parse(line, expected) for line in lines)))
    return [], Verdicts(Reading("fabric_manager", events=events), expected)


READERS = dict(zip(KINDS, (of_smi, of_published, of_dcgm, of_log, of_fabric_manager)))


@pytest.mark.parametrize("path", manifest())
def test_an_entry_has_the_verdict_of_the_manifest(path):
    kind = next(each for each in KINDS if path.startswith(each))
    if path in NOTHING:
        with raises(NotMeasuredError, NOTHING[path]):
            READERS[kind](path)
        return
    names, verdicts = READERS[kind](path)
    wanted = FAULTS.get(path, set())
    assert verdicts.faults() == {
        (check, f"gpu {names[place]}" if isinstance(place, int) else place) for check, place in wanted
    }
    checks, numbers = UNMEASURED.get(path, ((), ()))
    for number in numbers:
        assert set(checks) <= verdicts.unmeasured(names[number]), number
    for name in names if path in PASSED else ():
        assert set(PASSED[path]) <= verdicts.passed(name), name


def test_each_sick_entry_has_its_faults():
    sick = [path for path in manifest() if "healthy" not in path]
    without = [path for path in sick if path not in FAULTS and path not in NOTHING]
    # Healthy in spite of their names, or of unusual form.
    assert {Path(path).name for path in without} == {
        "fabric-in-progress",
        "health-watches-off.txt",
        "row-remap-done",
        "sw-power-cap",
        "idle-reason-only",
        "v11-a10g.xml",
        "v11-tesla-t4.xml",
        "v12-a100-sxm4-mig.xml",
        "v12-rtx-3080.xml",
        "v13-rtx-4000-sff-ada.xml",
        "v13-rtx-3080.xml",
        "diag-3.1-pass-with-text-and-nulls.json",
        "constructed-diag-4-pass.json",
        "constructed-diag-4-all-skipped.json",
        "peermem-noise-kmsg.log",
    }
    assert not ({*FAULTS, *NOTHING, *UNMEASURED, *PASSED} - set(manifest()))


def test_application_faults_and_notes_keep_the_node_in_service():
    names = ("xid-13-31-43-109-applications", "sxid-12028-non-fatal", "aer-corrected", "hang-lockup")
    for path in (f"{name}.log" for name in names):
        rules = [RULES[check] for check, _place in FAULTS[f"{KERNEL}{path}"] if check != "xid_109"]
        assert all(rule.layer == APPLICATION or ACTIONS.index(rule.action) < ACTIONS.index("drain") for rule in rules)


def test_nothing_to_do_is_no_fault_of_a_machine_without_switches():
    text = (ROOT / FABRIC / "nothing-to-do.log").read_text(encoding="utf-8")
    assert fabric_manager.parse(text, plan(())) is None
