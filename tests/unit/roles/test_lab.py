# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lab's machines agree with each other and with the inventory."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import jinja2
import pytest
import sites
import yaml
from domain_schema import assert_valid, needs_schema

from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory

ROOT = Path(__file__).parents[3]
LAB = ROOT / "roles/lab"
INSTANCES = ("lab", "test")
QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
INVENTORY = ROOT / "inventories/lab"
VARS = yaml.safe_load((LAB / "vars/main.yml").read_text(encoding="utf-8"))
MACHINES, DISKS = VARS["__lab_machines"], VARS["__lab_disks"]
NODES = [name for name, machine in MACHINES.items() if "uuid" in machine]
BUILD = yaml.safe_load(
    (INVENTORY / "group_vars/image_builders.yml").read_text(encoding="utf-8").replace("{{ lab_cache_dir }}", "/cache")
)
IMAGES = read_images({**BUILD["node_image_images"], **BUILD["lab_images"]}, BUILD["node_image_layers"])


def domain(name: str, instance: str = "lab", accelerator: str = "qemu") -> ElementTree.Element:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(LAB / "templates"), trim_blocks=True, autoescape=False
    )
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    text = environment.get_template(MACHINES[name]["template"]).render(
        __lab_spec=MACHINES[name],
        __lab_machines=MACHINES,
        __lab_domain=name,
        __lab_recipe="5a11f017",
        __lab_machine_dir=f"/cache/{instance}/{name}",
        __lab_accelerator=accelerator,
        lab_instance=instance,
        lab_machine=name,
        lab_uri="qemu:///system",
        lab_uid=0,
        lab_gid=0,
    )
    return ElementTree.fromstring(text)


@needs_schema
@pytest.mark.parametrize("accelerator", ["kvm", "qemu"])
@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("name", MACHINES)
def test_machines_are_valid_by_libvirts_schema(name: str, instance: str, accelerator: str) -> None:
    """The schema is libvirt's, which does not include QEMU's options."""
    assert_valid(ElementTree.tostring(domain(name, instance, accelerator), encoding="unicode"))


def cables(name: str, instance: str) -> dict[tuple[str, str], str]:
    """Return {(own port, other end's port): MAC} of a machine's UDP interfaces."""
    return {
        (item.find("source/local").get("port"), item.find("source").get("port")): item.find("mac").get("address")
        for item in domain(name, instance).findall("devices/interface[@type='udp']")
    }


@pytest.mark.parametrize("instance", INSTANCES)
def test_each_node_is_connected_to_its_boot_server(instance):
    ends = set(cables("boot01", instance))
    for name in NODES:
        ((own, other),) = cables(name, instance)
        assert (other, own) in ends
    assert len(ends) == len(NODES)


def test_the_boot_server_bridges_all_its_cables():
    (ports,) = (file.content for file in IMAGES["boot-server"].layers[-1].files if "05-nodes-port" in file.path)
    joined = re.search(r"^MACAddress=(.*)$", ports, re.MULTILINE).group(1).split()
    assert joined == list(cables("boot01", "lab").values())


@pytest.mark.parametrize("instance", INSTANCES)
def test_each_host_with_roce_is_connected_to_its_switch(instance):
    ends = cables("sw01", instance)
    assert len(ends) == 2
    for name in ("ro01", "ro02"):
        (((own, other), mac),) = cables(name, instance).items()
        assert mac == MACHINES[name]["mac"]
        assert ends[other, own] == MACHINES["sw01"]["hosts"][name]["mac"]


def test_the_roce_image_has_network_files_for_the_ports_of_hosts_and_switch():
    named = {file.path: file.content for file in IMAGES["roce"].layers[-1].files if "systemd/network" in file.path}
    links = {"roce0": "ro01 ro02", "swp1": "ro01", "swp2": "ro02"}
    ends = {"roce0": MACHINES, "swp1": MACHINES["sw01"]["hosts"], "swp2": MACHINES["sw01"]["hosts"]}
    for link, names in links.items():
        macs = " ".join(ends[link][name]["mac"] for name in names.split())
        assert f"MACAddress={macs}\n" in named[f"/etc/systemd/network/05-{link}.link"]
    for name in ("ro01", "ro02"):
        assert f"MACAddress={MACHINES[name]['mac']}\n" in named[f"/etc/systemd/network/05-{name}.network"]
        port = {"ro01": "swp1", "ro02": "swp2"}[name]
        mac = MACHINES["sw01"]["hosts"][name]["mac"]
        assert f"MACAddress={mac}\n" in named[f"/etc/systemd/network/05-{port}.network"]


def test_the_switch_port_to_the_second_host_has_limited_bandwidth():
    found = domain("sw01", "test")
    overridden = [item.get("alias") for item in found.findall(f"{{{QEMU}}}override/{{{QEMU}}}device")]
    (narrow,) = (each for each in found.findall("devices/interface") if each.find("driver") is not None)
    assert narrow.find("driver").get("txmode") == "timer"
    assert [narrow.find("alias").get("name")] == overridden
    assert narrow.find("mac").get("address") == MACHINES["sw01"]["hosts"]["ro02"]["mac"]


def test_no_two_machines_share_a_port():
    ports = []
    for instance in INSTANCES:
        for name, machine in MACHINES.items():
            ports += [own for own, _other in cables(name, instance)]
            ports += [str(machine["ssh_port"][instance])] if "ssh_port" in machine else []
    assert len(ports) == len(set(ports)) == 2 * (4 + 2 + 2 + 2 + 2 + 3 + 2)


@pytest.mark.parametrize("accelerator", ["kvm", "qemu"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_matches_its_specification(name, accelerator):
    found = domain(name, accelerator=accelerator)
    assert found.get("type") == accelerator
    assert int(found.find("memory").text) == MACHINES[name]["memory_mib"]
    assert sum(int(cell.get("memory")) for cell in found.findall("cpu/numa/cell")) in (0, MACHINES[name]["memory_mib"])
    assert (found.find("devices/disk") is not None) == ("image" in MACHINES[name])
    assert found.find("devices/serial/log").get("file") == f"/cache/lab/{name}/console.log"


def test_a_node_has_a_unique_uuid_and_a_boot_device_that_its_bmc_can_set():
    uuids = list(chain.from_iterable(MACHINES[name]["uuid"].values() for name in NODES))
    assert len(uuids) == len(set(uuids)) == 2 * len(NODES)
    for name in NODES:
        found = domain(name, "test")
        assert found.find("uuid").text == MACHINES[name]["uuid"]["test"]
        # sushy-emulator reads the firmware from here.
        assert found.find("os/loader").get("type") == "rom"
        assert found.find("os/boot") is None
        assert found.find("devices/interface/boot").get("order") == "1"


def test_all_images_of_machines_have_a_disk_and_are_built():
    needed = {machine["image"] for machine in MACHINES.values() if "image" in machine}
    needed |= {DISKS[image]["holds"]["image"] for image in needed if "holds" in DISKS[image]}
    assert needed == set(DISKS) == set(BUILD["lab_images"])
    # The image that a boot server gets, and that a change of the nodes' images builds.
    assert set(BUILD["node_image_images"]) == {"gpu-node"}


@pytest.mark.parametrize("name", DISKS)
def test_a_disk_can_be_made_of_a_machines_image(name):
    image = IMAGES[name]
    packages = {package for layer in image.layers for package in layer.packages}
    assert {"linux-image-amd64", "initramfs-tools", "grub-pc"} <= packages
    files = {file.path: file.content for layer in image.layers for file in layer.files}
    assert files["/etc/hostname"] == {"boot-server": "boot01"}.get(name, name) + "\n"
    # make-disk writes these files: a file of the image would be lost or contradict them.
    assert not {"/etc/fstab", "/boot/grub/grub.cfg", "/etc/default/grub.d/10-image.cfg"} & set(files)
    assert "GRUB_CMDLINE_LINUX" not in files["/etc/default/grub"]


def test_all_images_share_their_lowest_layer():
    assert len({image.layers[0].name for image in IMAGES.values()}) == 1
    assert len({tuple(layer.name for layer in IMAGES[name].layers[:2]) for name in DISKS}) == 1


def test_every_machine_reacts_to_its_power_button():
    """libvirt and BMCs use it for a shutdown; without systemd-logind, a host's reboot waits 300 s for its guest."""
    masked = {unit for image in IMAGES.values() for layer in image.layers for unit in layer.services.masked}
    assert len(masked) > 20
    assert "systemd-logind.service" not in masked


def test_the_inventory_has_the_machines():
    site = inventory(sites.example("lab"))
    for name, machine in MACHINES.items():
        host, own = site["hosts"][name], INVENTORY / f"host_vars/{name}.yml"
        variables = {**site["groups"][host["group"]]["vars"], **host["vars"]}
        variables.update(yaml.safe_load(own.read_text(encoding="utf-8")) if own.exists() else {})
        if "ssh_port" in machine:
            assert str(machine["ssh_port"]) in variables["ansible_port"]
        else:
            assert variables["node_boot_mac"] == machine["mac"]


def test_the_inventory_has_the_machines_cables():
    ends = [{cable.a.name, cable.b.name} for cable in sites.example("lab").cables]
    assert ends == [{node, "boot01"} for node in MACHINES["boot01"]["nodes"]] + [
        {host, "sw01"} for host in MACHINES["sw01"]["hosts"]
    ]
