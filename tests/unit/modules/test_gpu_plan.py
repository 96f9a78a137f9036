# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gpu_plan, called as Ansible calls it, and its playbook."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from machines import GIB, RECORDINGS, as_recorded, endpoint, lab, request
from messages import Mentions
from playing import ansible_playbook

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import kind
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import (
    read_recording,
    write_recording,
)
from ansible_collections.sailloft.fleet.plugins.modules import gpu_plan

PROJECT = Path(__file__).parents[3]
POWER = "llnl-lassen"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json") if path.stem != POWER)


@pytest.fixture
def run(capsys):
    """Return a function that calls the module and returns its result."""

    def call(**given):
        with patch_module_args(json.loads(json.dumps(given))), pytest.raises(SystemExit):
            gpu_plan.main()
        return json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\n"])
def test_a_host_name_that_is_not_a_valid_folder_name_is_refused(run, tmp_path, name):
    """A recording called "...json" belongs to a host called ".."."""
    result = run(recording=str(RECORDINGS / f"{NAMES[0]}.json"), path=str(tmp_path / "plans" / name), host_name=name)
    assert result["failed"] is True
    assert result["msg"] == Mentions("host_name", repr(name) if name else "empty")
    assert contents(tmp_path) == {}


def test_a_number_instead_of_a_dictionary_is_refused(run):
    result = run(topology=lab().to_dict(), domains=[{"name": "a", "memory_mib": 1024, "gpus": 8}])
    assert result["msg"] == (Mentions("gpus"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"memory_mib": "256G"}, "memory_mib"),
        ({"gpus": {"count": "all"}}, "count"),
        ({"nics": {"per_gpu": "1x"}}, "per_gpu"),
        ({"disks": [{"path": "/a", "read_only": "maybe"}]}, "read_only"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_the_name_of_its_machine(run, wrong, words):
    # Ansible makes a number of the text of the first one.
    domains = [{"name": "first", "memory_mib": "1024"}, {"name": "second", "memory_mib": 1024, **wrong}]
    result = run(topology=lab().to_dict(), domains=domains)
    assert result["failed"] is True
    assert result["msg"].startswith("virtual machine second: ")
    assert words in result["msg"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"gpus": {"addresses": ["14:00.0"]}},
            Mentions("virtual machine a", "gpus.addresses", "0000:14:00.0", "NIC", "GPU", "nics.addresses"),
        ),
        (
            {"nics": {"addresses": ["13:00.0"]}},
            Mentions("virtual machine a", "nics.addresses", "0000:13:00.0", "GPU", "NIC", "gpus.addresses"),
        ),
        (
            {"nvme": {"addresses": ["15:10.0"]}},
            Mentions("virtual machine a", "nvme.addresses", "0000:15:10.0", "NIC", "NVMe drive", "nics.addresses"),
        ),
    ],
)
def test_a_device_of_another_kind_is_refused(run, asked, message):
    given = {"topology": lab().to_dict(), "accelerators": {"1af4:1043": True}}
    result = run(**given, domains=[{"name": "a", "memory_mib": 1024, **asked}])
    assert result["msg"] == message


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_each_recorded_host_is_written_once_with_all_its_devices(run, tmp_path, name):
    given = {"recording": str(RECORDINGS / f"{name}.json"), "path": str(tmp_path / "plans"), "host_name": name}
    asked = run(**given, _ansible_check_mode=True)
    assert asked["changed"]
    assert contents(tmp_path / "plans") == {}
    first = run(**given)
    assert first["changed"]
    assert first["files"] == asked["files"]
    assert first["diff"] == asked["diff"]
    written = contents(tmp_path / "plans")
    assert sorted(written) == ["whole-host.nccl.xml", "whole-host.svg", "whole-host.xml"]
    (domain,) = first["domains"]
    assert written["whole-host.xml"].decode() == domain["xml"]
    assert written["whole-host.nccl.xml"].decode() == domain["nccl_topology"]
    second = run(**given)
    assert not second["changed"]
    assert second["diff"] == []
    assert second["tree"] == first["tree"]
    assert contents(tmp_path / "plans") == written

    text = "\n".join(first["tree"])
    assert re.search(r"^fidelity 100%: (\d+) of \1 pairs$", text, re.MULTILINE)
    for device in domain["plan"]["devices"]:
        there = [line for line in first["tree"] if device["guest_address"].removeprefix("0000:") in line]
        assert any(device["host_address"].removeprefix("0000:") in line for line in there), device


def cloud(console=True):
    """Return AWS's p4d with memory, CPUs, and Amazon's console on its first root complex, as in every AWS instance."""
    host = as_recorded("nccl/aws-p4d-24xl")
    for number, node in enumerate(host.numa_nodes):
        node.memory_bytes = 576 * GIB
        node.cpus = node.cpus or list(range(number * 48, number * 48 + 48))
    if console:
        host.functions.insert(0, endpoint("0000:00:03.0", None, host.root_complexes[0].name, numa_node=0))
        item = host.functions[0]
        item.bars = []  # this recording has none of any function
        item.class_code, item.vendor_id, item.device_id = 0x030000, 0x1D0F, 0x1111
        item.kind = kind(item.class_code, item.vendor_id, item.device_id)
    return host


def test_the_console_of_a_cloud_host_is_not_counted_as_a_gpu_by_default(run):
    host = cloud()
    want = {"name": "all", "memory_mib": 256 * 1024, "vcpus": 80, "gpus": {"count": 8}, "huge_page_mib": 0}
    result = run(topology=host.to_dict(), domains=[want])
    (domain,) = result["domains"]
    assert [device["host_address"] for device in domain["plan"]["devices"]] == [
        function.address for function in cloud(console=False).functions if function.kind == "gpu"
    ]
    assert result["findings"] == run(topology=cloud(console=False).to_dict(), domains=[want])["findings"]
    nine = run(topology=host.to_dict(), domains=[{**want, "gpus": {"count": 9}}])
    assert nine["msg"] == Mentions("host", "virtual machine all", "9 GPUs", "8", "free")
    # The inventory can override this; then the two models are reported, and never mixed by a number.
    nine = run(topology=host.to_dict(), domains=[{**want, "gpus": {"count": 9}}], accelerators={"1d0f:1111": True})
    assert nine["msg"] == Mentions("models", "8 of 10de:20b0", "1 of 1d0f:1111", "gpus.count")
    more = run(topology=host.to_dict(), domains=[want], accelerators={"1d0f:1111": True})
    assert "0000:00:03.0" not in [device["host_address"] for device in more["domains"][0]["plan"]["devices"]]
    assert [item["what"] for item in more["findings"] if "models" in item["what"]] == [
        Mentions("GPUs", "models", "8", "10de:20b0", "0000:10:1c.0", "0000:10:1d.0")
    ]


def test_more_memory_than_the_host_has_is_refused_and_nothing_written(run, tmp_path):
    host = cloud()
    requests = [
        {"name": f"vm-{at}", "memory_mib": 400 * 1024, "vcpus": 8, "gpus": {"count": 1}, "huge_page_mib": 1024}
        for at in range(4)
    ]
    result = run(topology=host.to_dict(), domains=requests, path=str(tmp_path / "plans"))
    assert result["failed"]
    assert result["msg"].startswith("host: nothing was touched: 2 problems\n1. strict_memory binds 819200 MiB (")
    assert [item["severity"] for item in result["findings"] if item["severity"] != "warn"] == ["refuse", "refuse"]
    assert contents(tmp_path / "plans") == {}


def test_a_host_that_is_not_x86_64_is_refused_and_nothing_written(run, tmp_path):
    given = {"recording": str(RECORDINGS / f"{POWER}.json"), "path": str(tmp_path / "plans"), "host_name": POWER}
    for domains in ([], [request()]):
        result = run(**given, domains=domains)
        assert result["failed"]
        assert result["msg"] == (Mentions(POWER, "ppc64le", "GPU", "x86_64"))
    assert contents(tmp_path / "plans") == {}


@pytest.mark.parametrize(("vendor", "noted"), [(None, True), ("IBM/S390", True), ("AuthenticAMD", False)])
def test_a_plan_notes_that_it_assumes_x86_64_if_the_architecture_is_unknown(run, vendor, noted):
    host = lab()
    host.cpu.architecture, host.cpu.vendor = None, vendor
    notes = run(topology=host.to_dict(), domains=[request()])["domains"][0]["plan"]["notes"]
    text = (
        "the topology does not contain the processor's architecture; the plan is for x86_64, and gpu_domain refuses it"
    )
    assert (text in notes) == noted


def test_a_plan_that_fails_its_boot_trial_is_not_written(run, tmp_path, monkeypatch):
    """A missing QEMU is the simplest failure of a trial."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    given = {"recording": str(RECORDINGS / "emulated-gpu-server.json"), "path": str(tmp_path / "plans")}
    result = run(**given, boot_trial=True)
    assert result["failed"]
    assert contents(tmp_path / "plans") == {}
    assert run(**given)["changed"]


def test_the_plan_from_a_written_recording_equals_the_plan_from_the_host(run, tmp_path):
    host = lab()
    host.function("0000:14:00.0").interfaces = {"net": ["enx0c42a1d5f3e7"], "rdma": ["rocex0c42a10300d5f3e7"]}
    (tmp_path / "recording.json").write_text(write_recording(host))
    recorded = run(recording=str(tmp_path / "recording.json"), domains=[request()])
    live = run(topology=host.to_dict(), domains=[request()])
    assert recorded["domains"] == live["domains"]
    assert recorded["tree"] == live["tree"]


def test_a_finding_is_a_warning_that_names_host_and_virtual_machine(run):
    result = run(recording=str(RECORDINGS / "nvidia-dgx2.json"), host_name="gpu17")
    # Its recording has no config space, so nothing is said about ATS.
    assert sorted(item["what"] for item in result["findings"]) == [
        Mentions("DGX-2", "11", "12", "NVSwitches"),
        Mentions("physical"),
    ]
    (warning,) = [text for text in map(str, result["warnings"]) if "gpu17: " in text and "physical" in text]
    assert "gpu17: virtual machine whole-host: the host's physical address bits are not known: whether a" in warning
    assert "; read the topology on the host itself" in warning
    emulated = run(recording=str(RECORDINGS / "emulated-gpu-server.json"), host_name="gpu18")
    ports = [re.search(r"gpu18: .* through port (\S+) above", text) for text in map(str, emulated["warnings"])]
    # Its root ports redirect no NIC's traffic, so the kernel's default is sufficient.
    assert [match[1] for match in ports if match] == []


def test_the_devices_that_remain_free_are_listed(run):
    small = {"name": "small", "gpus": {"count": 2}, "memory_mib": 1024, "vcpus": 1}
    tree = run(recording=str(RECORDINGS / "nvidia-dgx2.json"), domains=[small])["tree"]
    (free,) = [line for line in tree if line.startswith("stays free:")]
    assert "14 GPUs (" in free
    assert "11 NVSwitches (" in free
    taken = [line.split("host ")[1] for line in tree if "GPU " in line and "host " in line and "─" in line]
    assert len(taken) == 2
    assert not any(address in free for address in taken)


def test_the_error_of_an_invalid_recording_names_the_host_and_the_file(run, tmp_path):
    (tmp_path / "broken.json").write_text('{"format": "sailloft-topology/1", "numa_')
    result = run(recording=str(tmp_path / "broken.json"), host_name="gpu17")
    assert result["failed"]
    assert result["msg"].startswith(f"gpu17: {tmp_path}/broken.json")


def test_a_note_of_a_recording_is_a_warning(run, tmp_path):
    recorded = json.loads((RECORDINGS / "emulated-gpu-server.json").read_text())
    recorded["topology"]["notes"] = ["a device is left out"]
    path = tmp_path / "noted.json"
    path.write_text(json.dumps(recorded))
    result = run(recording=str(path), host_name="gpu17")
    assert result["notes"] == ["a device is left out"]
    # The comparison is with text, because ansible-core has changed the form of a warning.
    assert '"gpu17: a device is left out"' in json.dumps(result["warnings"])
    assert run(recording=str(RECORDINGS / "emulated-gpu-server.json"))["notes"] == []


def play(name, *arguments):
    status, output = ansible_playbook(f"playbooks/{name}.yml", *arguments)
    assert status == 0, output
    return output


def of_a_recording(tmp_path):
    """Return the arguments of the playbook that plan a recorded host into ``plans``."""
    recorded = tmp_path / "gpu.17.json"
    shutil.copy(RECORDINGS / "emulated-gpu-server.json", recorded)
    return [f"--extra-vars=recording={recorded}", f"--extra-vars=plans_path={tmp_path}/plans"]


def test_the_playbook_plan_writes_and_shows_a_plan(tmp_path):
    output = play("plan", *of_a_recording(tmp_path))
    assert "changed=1 " in output
    assert "fidelity 100%" in output
    assert "[WARNING]" not in output
    assert sorted(path.name for path in (tmp_path / "plans/gpu.17").iterdir()) == [
        "whole-host.nccl.xml",
        "whole-host.svg",
        "whole-host.xml",
    ]


@pytest.mark.long  # the module alone, in check mode and again: above
def test_the_playbook_plan_writes_nothing_in_check_mode_and_a_plan_once(tmp_path):
    given = of_a_recording(tmp_path)
    assert "changed=1 " in play("plan", *given, "--check")
    assert not (tmp_path / "plans").exists()
    play("plan", *given)
    assert "changed=0 " in play("plan", *given)


@pytest.mark.long
def test_a_plan_is_written_below_plans_path_for_any_name_of_the_recording(tmp_path):
    recorded = (RECORDINGS / "emulated-gpu-server.json").read_bytes()
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("...json", ".json"):
        (tree / name).write_bytes(recorded)
        plans = tmp_path / "new" / "plans"
        play("plan", f"--extra-vars=recording={tree / name}", f"--extra-vars=plans_path={plans}")
        assert [path.name for path in plans.parent.iterdir()] == ["plans"]
        assert [path.name for path in plans.iterdir()] == [name]
        shutil.rmtree(plans)


@pytest.mark.long
def test_a_plan_of_a_directory_has_the_name_of_the_directory(tmp_path):
    machine = tmp_path / "gpu17"
    (machine / "sys/devices/system/cpu").mkdir(parents=True)
    status, output = ansible_playbook("playbooks/plan.yml", f"--extra-vars=recording={machine}/sys/../", "--check")
    assert status != 0
    assert f"gpu17: {machine}/sys/../" in output


@pytest.mark.long
def test_the_playbook_record_writes_a_recording_once(tmp_path):
    folder = tmp_path / "recordings"
    # The test records a recorded machine, because this machine's memory may change during the test.
    recorded = RECORDINGS / "emulated-gpu-server.json"
    given = ["-ihere,", "-clocal", f"-eansible_python_interpreter={sys.executable}", f"-erecordings_path={folder}"]
    given.append(f"-erecording={recorded}")
    assert "changed=2 " in play("record", *given, "--check")
    assert not folder.exists()
    assert "changed=2 " in play("record", *given)
    assert [path.name for path in folder.iterdir()] == ["here.json"]
    assert read_recording(str(folder / "here.json")) == read_recording(str(recorded))
    assert "changed=0 " in play("record", *given)


@pytest.mark.long
def test_the_playbook_record_reads_the_live_machine_by_default(tmp_path):
    given = ["-ihere,", "-clocal", f"-eansible_python_interpreter={sys.executable}", f"-erecordings_path={tmp_path}"]
    play("record", *given)
    assert read_recording(str(tmp_path / "here.json")).source == "sysfs"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "\0"}, Mentions("\\x00")),
        ({"path": "/dev/null/plans"}, Mentions("directory")),
    ],
)
def test_an_invalid_or_unwritable_path_is_refused_and_leaves_no_files(run, tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    result = run(recording=str(RECORDINGS / "emulated-gpu-server.json"), **given)
    assert result["failed"]
    assert result["msg"] == message
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.long
@pytest.mark.parametrize("domains", ["train-01", [{"name": "train-01"}, "train-02"]], ids=["text", "a text in a list"])
def test_the_playbook_refuses_another_form_with_the_host_the_setting_and_an_example(tmp_path, domains):
    given = {"recording": str(RECORDINGS / "llnl-corona.json"), "plans_path": str(tmp_path), "gpu_vm_domains": domains}
    options = ("-i", "localhost,", "-c", "local", "-e", json.dumps(given))
    status, output = ansible_playbook(*options, "playbooks/plan.yml", COLUMNS="2000")
    assert status != 0
    told = " ".join(output.split())
    assert "localhost: gpu_vm_domains is" in told
    assert "not a list of dictionaries" in told
    assert list(tmp_path.iterdir()) == []
