# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The recordings agree with their descriptions and with their originals."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read import recordings
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved

RECORDINGS = Path(__file__).parents[3] / "recordings"
FILES = sorted([*RECORDINGS.glob("*.json"), *RECORDINGS.glob("forms/*.json")])
ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_recording_is_complete_and_has_machine_and_source(path):
    recording = json.loads(path.read_text(encoding="utf-8"))
    assert set(recording) == {"machine", "source", "topology"}
    assert recording["machine"]
    assert recording["source"]
    host = read_saved(recording["topology"])
    for function in host.functions:
        assert host.path(function.address)[-1] == function
        assert function.root_complex in {item.name for item in host.root_complexes}
    assert read_recording(str(path)) == host


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_recording_equals_the_output_of_the_current_writer(path):
    recording = json.loads(path.read_text(encoding="utf-8"))
    topology = json.loads(recordings.write_recording(read_recording(str(path))))
    assert recordings.render({**recording, "topology": topology}) + "\n" == path.read_text(encoding="utf-8")


def test_facts_of_the_recorded_supermicro_with_vector_engines(recording):
    host = recording("supermicro-4029gp-ve")
    assert Counter(function.kind for function in host.functions) == {"bridge": 17, "gpu": 8, "nic": 4}
    assert [node.memory_bytes for node in host.numa_nodes] == [49075843072, 50708443136]
    assert [(item.name, item.numa_node) for item in host.root_complexes] == [
        ("pci0000:17", 0),
        ("pci0000:3a", 0),
        ("pci0000:5d", 0),
    ]
    for function in host.functions:
        if function.kind == "gpu":
            assert function.bars[0].size_bytes == 64 << 30


def test_facts_of_the_recorded_emulated_server(recording):
    host = recording("emulated-gpu-server")
    assert [function.address for function in host.functions if function.kind == "gpu"] == [
        "0000:13:00.0",
        "0000:83:00.0",
    ]
    assert host.function("0000:15:00.0").sriov.vfs == ["0000:15:10.0", "0000:15:10.2"]
    assert host.function("0000:10:01.0").acs.control == 0x1D
    assert [region.size_bytes for region in host.function("0000:15:00.0").sriov.vf_bars] == [
        region.size_bytes for region in host.function("0000:15:10.0").bars
    ]
    assert host.function("0000:00:02.0").used_by_host == ["holds the mounted file system /"]
    assert "carries the default route" in host.function("0000:00:03.0").used_by_host
    for port, device in (("0000:12:00.0", "0000:13:00.0"), ("0000:82:01.0", "0000:84:00.0")):
        group = host.function(device).iommu_group
        assert [member.address for member in host.group_members(group)] == [port, device]
    assert host.iommu.kind == "intel"
    assert host.iommu.default_domain == "identity"
    assert host.iommu.interrupt_remapping is True


# The numbers of GPUs, NICs, NVSwitches, root complexes and NUMA nodes of each machine.
MACHINES = {
    "nvidia-dgx2": (16, 0, 11, 4, 2),
    "llnl-lassen": (4, 6, 0, 7, 2),
    "llnl-tioga": (8, 5, 0, 9, 4),
    "llnl-corona": (8, 3, 0, 8, 2),
    "aws-g4dn-metal": (8, 2, 0, 7, 2),
}


@pytest.mark.parametrize("name", MACHINES)
def test_hwloc_recordings_have_the_expected_device_counts(recording, name):
    host = recording(name)
    count = Counter(function.kind for function in host.functions)
    found = (count["gpu"], count["nic"], count["nvswitch"], len(host.root_complexes), len(host.numa_nodes))
    assert found == MACHINES[name]
    assert host.source == "hwloc"


# Recordings in forms that are hard to read: GPUs, NICs, root complexes, CPUs of each NUMA node, notes.
FORMS = {
    "hwloc-1-epyc": (0, 3, 6, [12] * 8, 0),
    "nodes-that-share-cpus-knl": (0, 4, 1, [72, 72, 64, 64, 0, 0, 0, 0], 0),
    "repeated-busid-x9drg": (3, 2, 2, [16, 16], 1),
    # Four buses have no bridge above them, and six functions have no vendor and device.
    "sys-without-links-power9": (0, 0, 6, [88, 88, 0, 0, 0, 0, 0, 0], 10),
    "sys-without-link-speeds-r910": (0, 5, 2, [10] * 4, 0),
}


@pytest.mark.parametrize("name", FORMS)
def test_recordings_in_unusual_forms_have_the_expected_counts(recording, name):
    host = recording(f"forms/{name}")
    count = Counter(function.kind for function in host.functions)
    cpus = [len(node.cpus) for node in host.numa_nodes]
    assert (count["gpu"], count["nic"], len(host.root_complexes), cpus, len(host.notes)) == FORMS[name]


def test_display_class_devices_listed_in_the_inventory_are_gpus(recording):
    """MI50 and Radeon Pro VII have the same device number, and these four have the display class."""
    host = recording("forms/hwloc-1-epyc")
    recognise(host, {"1002:66a1": True})
    assert [function.kind for function in host.functions].count("gpu") == 4


def test_a_link_speed_without_a_maximum_is_read(recording):
    links = [function.link for function in recording("forms/sys-without-link-speeds-r910").functions if function.link]
    assert {(link.speed_gt_s, link.max_speed_gt_s) for link in links} == {(5.0, None), (2.5, None), (8.0, None)}


needs_originals = pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")


@needs_originals
@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("supermicro-4029gp-ve", "32intel64-2p8co2t+8ve.tar.bz2"),
        ("nvidia-dgx2", "nvidiaDGX2.xml"),
        ("llnl-lassen", "hwloc-llnl-coral-lassen.xml"),
        ("llnl-tioga", "hwloc-llnl-eas-tioga.xml"),
        ("llnl-corona", "hwloc-llnl-epyc-corona-p2.xml"),
        ("aws-g4dn-metal", "hwloc-llnl-g4dnmetal.xml"),
    ],
)
def test_an_original_gives_the_recorded_facts(recording, name, original):
    host = read_recording(str(Path(ORIGINALS or "") / "topology" / original))
    assert read_saved(json.loads(recordings.write_recording(host))) == recording(name)
