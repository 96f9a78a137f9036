# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CDI files of a recorded server: a GPU's NICs are those of its PCIe switch, and files follow driver and devices."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest
import server_files

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import cdi, devices
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
SCHEMA = Path(str(ORIGINALS)) / "cdi/schema.json"
FIRST_SWITCH, SECOND_SWITCH = "mlx5_3", "mlx5_2"


class Node(System):
    """The files of a server, and a stand-in for nvidia-ctk, which numbers GPUs otherwise than the kernel."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.host = server_files.with_rdma()
        server_files.write(root, self.host)
        (root / "run").mkdir()
        (root / "proc/cmdline").write_text("quiet\n")
        (root / "proc/cpuinfo").write_text("processor : 0\nvendor_id : GenuineIntel\n\n")
        cpu = root / "sys/devices/system/node/node0"
        cpu.mkdir(parents=True)
        (cpu / "cpulist").write_text("0\n")
        (cpu / "meminfo").write_text("Node 0 MemTotal: 1000 kB\n")
        self.calls, self.fails = 0, False
        self.minors, self.has_mig = list(range(8)), False

    def run(self, argv, stdin=None, timeout_s=None) -> str:
        assert argv[0] == "nvidia-ctk"
        self.calls += 1
        if self.fails:
            raise HostError("nvidia-ctk is not installed on this host")
        named = {
            **{str(7 - number): [f"/dev/nvidia{number}"] for number in self.minors},
            **({"3:0": ["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap30"]} if self.has_mig else {}),
            "all": [f"/dev/nvidia{number}" for number in self.minors],
        }
        listed = [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
            for name, paths in named.items()
        ]
        output = next(word.partition("=")[2] for word in argv if word.startswith("--output="))
        self.replace(output, json.dumps({"cdiVersion": "0.5.0", "kind": cdi.GPU, "devices": listed}).encode())
        return ""


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def rdma(node):
    """Return the device files by name of the CDI file of RDMA devices."""
    spec = json.loads(node.read(devices.RDMA_FILE))
    return {
        device["name"]: [each["path"] for each in device["containerEdits"]["deviceNodes"]] for device in spec["devices"]
    }


def test_gpus_have_the_nics_of_their_switch_although_all_are_of_one_numa_node(node):
    assert {node.host.node_of(gpu) for gpu in server_files.gpus_of(node.host)} == {0}
    assert devices.refresh(node) == []
    made = rdma(node)
    verbs = {node.read(f"{devices.VERBS}/uverbs{number}/ibdev"): number for number in range(4)}
    assert made.keys() == {*verbs, *(f"gpu{number}" for number in range(8)), "all"}
    assert all(made[name] == [f"/dev/infiniband/uverbs{number}"] for name, number in verbs.items())
    for number in range(8):
        assert made[f"gpu{number}"] == made[FIRST_SWITCH if number < 4 else SECOND_SWITCH]
    assert sorted(made["all"]) == [f"/dev/infiniband/uverbs{number}" for number in range(4)]


@pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")
def test_so_they_have_on_the_original_recording():
    original = read_recording(str(Path(str(ORIGINALS)) / "topology/32intel64-2p8co2t+8ve.tar.bz2"))
    numbered = {one.address: one.interfaces["rdma"] for one in server_files.with_rdma().functions if one.kind == "nic"}
    for one in original.functions:
        one.interfaces = {"rdma": numbered[one.address]} if one.address in numbered else {}
    names = sorted(name for each in numbered.values() for name in each)
    assert set(map(tuple, cdi.nics_of_gpus(original, names).values())) == {(FIRST_SWITCH,), (SECOND_SWITCH,)}


def test_a_gpu_without_a_nic_below_its_switch_has_the_nearest_ones():
    host = read_recording(str(server_files.RECORDINGS / "llnl-lassen.json"))
    names = [name for one in host.functions for name in one.interfaces.get("rdma", [])]
    made = cdi.nics_of_gpus(host, names)
    assert len(made) == 4
    for gpu, nics in made.items():
        node = host.node_of(host.function(gpu))
        assert nics == [
            name for one in host.functions for name in one.interfaces.get("rdma", []) if host.node_of(one) == node
        ]


def test_gpus_get_only_nics_that_nccl_may_use(node):
    node.replace("/etc/nccl.conf", b"NCCL_IB_HCA==mlx5_2\n")
    assert devices.refresh(node) == []
    made = rdma(node)
    assert made["gpu0"] == made["gpu7"] == made[SECOND_SWITCH]
    assert len(made["all"]) == 4


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("", "mlx5_1 mlx5_10 roce_0"),
        ("mlx5_1", "mlx5_1 mlx5_10"),
        ("=mlx5_1:1", "mlx5_1"),
        ("^mlx5_1", "roce_0"),
        ("^=mlx5_1,roce_0", "mlx5_10"),
        ("other", ""),
    ],
)
def test_hcas_are_read_as_nccl_reads_them(setting, allowed):
    assert cdi.hcas(setting, ["mlx5_1", "mlx5_10", "roce_0"]) == allowed.split()


def test_files_are_made_again_only_for_another_driver_or_other_devices(node):
    devices.refresh(node)
    devices.refresh(node)
    assert node.calls == 1
    (Path(node.root) / "proc/driver/nvidia/version").write_text("another\n")
    devices.refresh(node)
    assert node.calls == 2
    (Path(node.root) / "sys/class/infiniband_verbs/uverbs0/ibdev").unlink()
    devices.refresh(node)
    assert node.calls == 3
    assert "/dev/infiniband/uverbs0" not in rdma(node)["all"]


def test_a_failed_tool_leaves_no_old_file_and_is_tried_again(node):
    devices.refresh(node)
    (Path(node.root) / "proc/driver/nvidia/version").write_text("another\n")
    node.fails = True
    assert len(devices.refresh(node)) == 1
    assert node.read(devices.GPU_FILE) is None
    assert rdma(node)
    node.fails = False
    assert devices.refresh(node) == []
    assert node.read(devices.GPU_FILE)


def test_a_gpu_that_the_tool_does_not_list_is_a_failure(node):
    node.minors.remove(3)
    assert len(devices.refresh(node)) == 1


def test_a_part_of_a_gpu_with_mig_is_not_taken_for_the_gpu(node):
    node.minors.remove(3)
    node.has_mig = True
    assert len(devices.refresh(node)) == 1


def test_a_file_that_somebody_removed_is_made_again(node):
    devices.refresh(node)
    for path in (devices.GPU_FILE, devices.RDMA_FILE):
        node.remove(path)
        assert devices.refresh(node) == []
        assert node.exists(path)


def test_a_container_that_starts_meanwhile_finds_the_whole_file(node):
    devices.refresh(node)
    first, run = node.read(devices.GPU_FILE), node.run
    (Path(node.root) / "proc/driver/nvidia/version").write_text("another\n")

    def seen(*arguments, **options):
        assert node.read(devices.GPU_FILE) == first
        return run(*arguments, **options)

    node.run = seen
    assert devices.refresh(node) == []


def test_programs_that_begin_together_make_the_files_once(node):
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(lambda _number: devices.refresh(node), range(8))] == [[]] * 8
    assert node.calls == 1


def test_devices_of_gpus_follow_the_kernels_numbers(node):
    devices.refresh(node)
    assert cdi.gpu_names(devices.loaded(node, devices.GPU_FILE), [0, 6]) == ["7", "1"]


def test_a_node_without_devices_has_no_files(tmp_path):
    assert devices.refresh(System(str(tmp_path))) == []
    assert devices.loaded(System(str(tmp_path)), devices.RDMA_FILE) == {"devices": []}


# The rules of CDI's SPEC.md for what is used here; engines refuse a file with anything else.
NODES = {
    "type": "object",
    "additionalProperties": False,
    "required": ["deviceNodes"],
    "properties": {
        "deviceNodes": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["path"],
                "properties": {"path": {"type": "string", "pattern": "^/dev/"}},
            },
        }
    },
}
FORM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["cdiVersion", "kind", "devices"],
    "properties": {
        "cdiVersion": {"const": "0.3.0"},
        "kind": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]$"},
        "containerEdits": NODES,
        "devices": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "containerEdits"],
                "properties": {
                    # Names that begin with a digit need version 0.5.0.
                    "name": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_.:-]*[A-Za-z0-9]$"},
                    "containerEdits": NODES,
                },
            },
        },
    },
}


def test_the_file_has_the_form_of_cdi(node):
    node.replace(cdi.RDMA_CM, b"")
    devices.refresh(node)
    spec = json.loads(node.read(devices.RDMA_FILE))
    jsonschema.validate(spec, FORM)
    assert spec["containerEdits"] == {"deviceNodes": [{"path": cdi.RDMA_CM}]}


@pytest.mark.skipif(
    not (ORIGINALS and SCHEMA.exists()), reason="SAILLOFT_RECORDINGS names no directory with the originals"
)
def test_cdis_own_schema_accepts_the_file(node):
    devices.refresh(node)
    schema = json.loads(SCHEMA.read_text())
    schema["definitions"] = json.loads((SCHEMA.parent / "defs.json").read_text())["definitions"]
    text = json.dumps(schema).replace("defs.json#", "#")
    jsonschema.validate(json.loads(node.read(devices.RDMA_FILE)), json.loads(text))
