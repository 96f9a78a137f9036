# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expectations of bare metal, hypervisors, guests and image layers, and their stored form."""

from __future__ import annotations

import json

import machines
import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import devices, expected, stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect.errors import ExpectError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import CheckSetting, ExpectedPort

CHECKS = ("pcie_width", "xid_79")
SERVER = "supermicro-4029gp-ve"


def made(machine="bare_metal", host=None, plan=None, **given):
    """Return what a node must have."""
    host = machines.as_recorded(SERVER) if host is None else host
    return expected.make("gpu01", machine, host, given, CHECKS, plan, "hv01" if plan else "")


def by_name(each):
    return {device.name: device for device in each.devices}


def test_a_link_is_as_good_as_its_worse_end():
    host = machines.as_recorded(SERVER)
    gpu = next(item for item in host.functions if item.kind == "gpu")
    port = host.function(gpu.parent)
    # Degraded when it was recorded, which must not make it the healthy value.
    gpu.link.speed_gt_s, gpu.link.width = 2.5, 1
    gpu.link.max_speed_gt_s, gpu.link.max_width = 32.0, 16
    port.link.max_speed_gt_s, port.link.max_width = 16.0, 8
    listed = {device.address: device for device in made(host=host).devices}
    for address in (gpu.address, port.address):
        assert (listed[address].link_speed_gt_s, listed[address].link_width) == (16.0, 8)


def test_an_unknown_end_makes_no_expectation():
    host = machines.as_recorded(SERVER)
    gpu = next(item for item in host.functions if item.kind == "gpu")
    host.function(gpu.parent).link.max_width = None
    assert {device.address: device.link_width for device in made(host=host).devices}[gpu.address] is None


def test_devices_whose_links_are_not_known_are_named():
    host = machines.as_recorded(SERVER)
    assert devices.without_link(made(host=host).devices) == []
    gpu = next(item for item in host.functions if item.kind == "gpu")
    gpu.link = None
    made_of = made(host=host)
    assert devices.without_link(made_of.devices) == ["GPU 0"]
    # A person may know it.
    known = made(host=host, devices={"GPU 0": {"link_width": 16, "link_speed_gt_s": 16.0}})
    assert devices.without_link(known.devices) == []


def test_gpus_are_numbered_by_address_and_ports_named_after_what_is_below():
    listed = [device for device in made().devices if device.kind == "gpu"]
    assert [device.name for device in listed] == [f"GPU {number}" for number in range(8)]
    assert [device.address for device in listed] == sorted(device.address for device in listed)
    ports = [device for device in made().devices if device.kind == "bridge"]
    assert any("GPU 3" in port.name for port in ports)


def test_a_board_with_nvswitches_needs_fabric_manager_and_all_links():
    dgx = made(host=machines.as_recorded("nvidia-dgx2"), gpu_settings={"persistence_mode": "Enabled"})
    assert dgx.needs_fabric_manager
    assert {device.nvlinks for device in dgx.devices if device.kind == "gpu"} == {6}
    assert dgx.gpu_settings == {"persistence_mode": "Enabled"}
    assert not made().needs_fabric_manager
    on_host = made("hypervisor", machines.as_recorded("nvidia-dgx2"), gpu_settings={"persistence_mode": "Enabled"})
    assert (on_host.needs_fabric_manager, on_host.gpu_settings) == (False, {})


def test_a_hypervisor_runs_no_gpus_and_has_no_ports_of_what_its_guests_have():
    host, plan = machines.lab(), machines.plan()
    passed = {item.address for item in plan.passed()}
    given_away = next(item for item in host.functions if item.kind == "nic" and item.address in passed)
    kept = next(item for item in host.functions if item.kind == "nic" and item.address not in passed)
    given_away.interfaces, kept.interfaces = {"rdma": ["mlx5_8"]}, {"rdma": ["mlx5_9"]}
    each = expected.make(
        "hv01",
        "hypervisor",
        host,
        {"ports": {"mlx5_8": {}, "mlx5_9": {}}, "versions": {"nvidia_driver": "550.1", "kernel": "6.8"}},
        CHECKS,
        guest_plans=[json.loads(json.dumps(plan.to_dict()))],
    )
    assert any(device.kind == "gpu" for device in each.devices)
    assert not each.runs_gpus
    assert [port.name for port in each.ports] == ["mlx5_9/1"]
    assert each.versions == {"kernel": "6.8"}
    assert made().runs_gpus


def test_people_add_what_a_technician_needs():
    listed = by_name(
        made(devices={"gpu": {"serial_place": "label on the tray"}, "GPU 4": {"slot": "7", "link_width": 8}})
    )
    assert (listed["GPU 4"].slot, listed["GPU 4"].link_width) == ("7", 8)
    assert {device.serial_place for name, device in listed.items() if name.startswith("GPU")} == {"label on the tray"}


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"ports": {5: {}}}, ["5", "quotes"]),
        ({"checks": {True: {}}}, ["True"]),
        ({"devices": {"GPU 9": {"slot": "7"}}}, ["GPU 9", "GPU 0"]),
        ({"devices": {"GPU 0": {"slto": "7"}}}, ["slto", "slot"]),
        ({"devices": {"GPU 0": {"link_width": 0}}}, ["link_width"]),
        ({"checks": {"pcie_widht": {"limit": 8}}}, ["pcie_widht", "pcie_width"]),
        ({"checks": {"zzz": {"limit": 8}}}, ["zzz", "docs/reference/health.md"]),
        ({"checks": {"pcie_width": {}}}, ["pcie_width", "limit"]),
        ({"checks": {"pcie_width": {"limit": 8, "disabled": "no"}}}, ["pcie_width", "disabled"]),
        ({"checks": {"pcie_width": {"limit": "8"}}}, ["limit"]),
        ({"checks": {"pcie_width": {"disabled": ""}}}, ["disabled"]),
        ({"checks": ["pcie_width"]}, ["dictionary"]),
        ({"ports": {"mlx5_0": {"speed": 400}}}, ["speed", "speed_gbit_s"]),
        ({"ports": {"mlx5_0": {"speed_gbit_s": "fast"}}}, ["mlx5_0", "fast"]),
        ({"versions": {"nvidia_driver": 550}}, ["nvidia_driver", "550"]),
        ({"mounts": "/scratch"}, ["mounts"]),
    ],
)
def test_a_wrong_setting_is_refused_with_the_node_and_the_setting(given, facts):
    with raises(ExpectError, "gpu01", *facts):
        made(**given)


def test_limits_and_checks_that_are_off_are_kept_with_their_reason():
    settings = made(checks={"pcie_width": {"limit": 8}, "xid_79": {"disabled": "broken riser, ticket 7"}}).settings
    assert settings == {"pcie_width": CheckSetting(8.0), "xid_79": CheckSetting(None, "broken riser, ticket 7")}


@pytest.mark.parametrize("name", ["rdmap197s0", "roceo1", "ibo1", "hns_0", "rocep1s0f1", "mlx5_0", "cable"])
def test_what_the_recording_calls_an_rdma_device_has_numbered_ports(name):
    host = machines.as_recorded(SERVER)
    nic = next(item for item in host.functions if item.kind == "nic")
    nic.interfaces = {"net": ["ibp1s0"], "rdma": [name]}
    ports = {port.name: port.address for port in made(host=host, ports={name: {}, "ibp1s0": {}}).ports}
    assert ports == {f"{name}/1": nic.address, "ibp1s0": nic.address}


@pytest.mark.parametrize("name", ["rdmap197s0", "roceo1", "ibs3", "hns_0", "rocex0c42a1fffe123456", "irdma0"])
def test_without_a_recording_the_kernels_names_tell_rdma_devices(name):
    listed = expected.make("layer", "image", None, {"ports": {name: {}, "eth0": {}, "ib0": {}}}, CHECKS).ports
    assert [port.name for port in listed] == sorted(["eth0", "ib0", f"{name}/1"])


def test_ports_have_their_peer_and_cable():
    host = machines.as_recorded(SERVER)
    nic = next(item for item in host.functions if item.kind == "nic")
    nic.interfaces = {"net": ["eth0"], "rdma": ["mlx5_0"]}
    ports = {
        "mlx5_0": {"speed_gbit_s": 400, "infiniband": True, "peer": "leaf-3 p17", "cable": "ib-000017", "rail": 0},
        "eth0": {"speed_gbit_s": 25, "cable_m": 3},
    }
    assert made(host=host, ports=ports).ports == (
        ExpectedPort("eth0", nic.address, "Ethernet", 25.0),
        ExpectedPort("mlx5_0/1", nic.address, "InfiniBand", 400.0, "leaf-3 p17", "ib-000017", 0),
    )


def test_a_guests_devices_are_named_with_host_address_slot_and_port():
    plan = machines.plan()
    each = expected.make(
        "vm1",
        "guest",
        machines.lab(),
        {"devices": {"GPU 0": {"slot": "7", "serial_place": "tray"}}},
        CHECKS,
        json.loads(json.dumps(plan.to_dict())),
        "hv01",
    )
    gpu = by_name(each)["GPU 0"]
    passed = {item.guest_address: item for item in plan.passed()}
    host_gpu = passed[gpu.address]
    port = host_gpu.host_path[-2]
    assert gpu.host_place == f"hv01, GPU 0, {host_gpu.address}, slot 7, port {port}"
    assert gpu.serial_place == "tray"
    assert {device.address for device in each.devices} == set(passed)
    assert (each.memory_bytes, each.processors) == (2048 << 20, 4)
    vf = next(device for device in each.devices if "virtual function" in device.host_place)
    assert (vf.kind, vf.link_width) == ("nic", None)


@pytest.mark.parametrize("plan", [{}, {"devices": [{}]}, {"devices": 3}])
def test_a_damaged_plan_is_refused(plan):
    with raises(ExpectError, "gpu01", "plan"):
        made("guest", machines.lab(), plan)


def test_a_plan_of_another_host_is_refused():
    with raises(ExpectError, "hv01", "record"):
        made("guest", machines.as_recorded(SERVER), machines.plan().to_dict())


@pytest.mark.parametrize("machine", ["bare_metal", "hypervisor", "guest"])
def test_a_node_without_recording_is_refused_and_an_image_is_not(machine):
    with raises(ExpectError, "gpu01", "recording"):
        expected.make("gpu01", machine, None, {}, CHECKS)
    image = expected.make("gpu01", "image", None, {"units": ["sshd.service"]}, CHECKS)
    assert (image.host, image.devices, image.units) == ("", (), ("sshd.service",))


def test_a_guest_without_plan_is_refused():
    with raises(ExpectError, "gpu01", "plan"):
        made("guest", machines.lab())


def test_the_same_input_gives_the_same_bytes_and_a_changed_device_is_one_line():
    one, same = stored.text(made(mounts=["/"])), stored.text(made(mounts=["/"]))
    assert one == same
    assert stored.load(one) == made(mounts=["/"])
    other = stored.text(made(mounts=["/"], devices={"GPU 4": {"slot": "7"}}))
    changed = [lines for lines in zip(one.splitlines(), other.splitlines()) if lines[0] != lines[1]]
    assert len(changed) == 1
    assert len(one.splitlines()) == len(other.splitlines())


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": "sailloft-health-expected/9"}', "[" * 100_000, "\x00", '{"format": 3}'],
)
def test_a_damaged_file_is_refused(content):
    with raises(StoredError):
        stored.load(content)


def test_every_damaged_value_is_refused_or_ignored():
    data = json.loads(stored.text(made(checks={"pcie_width": {"limit": 8}}, ports={"mlx5_0": {}})))
    for name in set(data) - {"format"}:
        for value in (["x"], {"x": "y"}, 3, "x", True):
            try:
                stored.load(json.dumps({**data, name: value}))
            except StoredError:
                continue
