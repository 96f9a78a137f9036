# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Domains defined, started and read back by this machine's own libvirt and QEMU: a second run finds no difference.

libvirt's QEMU driver runs inside this process (qemu:///embed, https://libvirt.org/drvqemu.html), below a separate
directory: no daemon, no KVM. Its guests are paused before their first instruction.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import lab, plan, request
from plans import PLANS

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.libvirt_devices import Lent, lent
from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.client import Client
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

libvirt = pytest.importorskip("libvirt")
pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None or not Path("/usr/lib").glob("*/libvirt/connection-driver/*qemu*"),
    reason="libvirt's QEMU driver or QEMU is not installed here",
)

# QEMU writes its own log, runs as the tests' user, and is in no cgroup.
SETTINGS = """stdio_handler = "file"
security_driver = "none"
namespaces = []
cgroup_controllers = []
"""


class Connection:
    """A connection to libvirt that stays open, because a process can open the driver only a few times."""

    def __init__(self, uri: str) -> None:
        self._one = libvirt.open(uri)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)

    def close(self) -> None:
        """Leave the connection open."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    root = tmp_path_factory.mktemp("libvirt")
    (root / "etc").mkdir()
    owner = f'user = "+{os.getuid()}"\ngroup = "+{os.getgid()}"\n'
    (root / "etc" / "qemu.conf").write_text(SETTINGS + owner, encoding="utf-8")
    libvirt.virEventRegisterDefaultImpl()
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            libvirt.virEventRunDefaultImpl()

    # The loop wakes whenever this timer fires, and can then end.
    timer = libvirt.virEventAddTimeout(200, lambda *_: None, None)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    made = Connection(f"qemu:///embed?root={root}")
    yield made
    made._one.close()
    ended.set()
    thread.join()
    libvirt.virEventRemoveTimeout(timer)


@pytest.fixture
def connection(driver: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(libvirt, "open", lambda _uri: driver)
    yield driver
    for domain in driver.listAllDomains():
        if domain.isActive():
            domain.destroy()
        domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)


@pytest.mark.parametrize("name", PLANS)
def test_a_definition_does_not_differ_after_libvirt_stores_it(connection: Connection, name: str) -> None:
    xml = render(PLANS[name]())
    domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    assert differences(xml, domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) == []


@pytest.mark.parametrize("firmware", ["bios", "efi"])
def test_the_xml_of_a_running_domain_does_not_differ_from_its_plan(
    connection: Connection, firmware: str, tmp_path: Path
) -> None:
    """The domain has no host devices or pinned memory, which this machine may lack."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / "base", "8M"], check=True)
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", tmp_path / "base", "-F", "qcow2", tmp_path / "disk"]
    subprocess.run(overlay, check=True)
    made = plan(
        accelerator="qemu",
        firmware=firmware,
        guest_iommu=True,
        memory_mib=256,
        huge_page_mib=0,
        lock_memory=False,
        strict_memory=False,
        pin_cpus=False,
        disks=[{"path": str(tmp_path / "disk")}],
        interfaces=[{"type": "user"}],
    )
    root = ET.fromstring(render(made))
    devices = root.find("devices")
    assert devices is not None
    for device in devices.findall("hostdev"):
        devices.remove(device)
    # virtlogd would write the console's log, but does not run here.
    for serial in devices.findall("serial"):
        serial.remove(serial.find("log"))
    xml = ET.tostring(root, encoding="unicode")
    domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    assert differences(xml, domain.XMLDesc(0)) == []
    assert differences(xml, domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) == []


def params(*domains: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the arguments of the module gpu_domain."""
    given: dict[str, Any] = {
        "state": "present",
        "domains": list(domains),
        "topology": lab().to_dict(),
        "gpu_module_ids": {},
        "gpu_partitions": {},
        "accelerators": {"1af4:1043": True},
        "uri": "qemu:///embed",
        "allow_restart": True,
        "remove_disks": False,
        "shutdown_timeout_s": 5,
    }
    return {**given, **changes}


def asked(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Return a request for a virtual machine whose files exist."""
    (tmp_path / "disk").touch()
    values = {"accelerator": "qemu", "firmware": "bios", "interfaces": [{"type": "user"}], "autostart": False}
    return request(**{**values, "disks": [{"path": str(tmp_path / "disk")}], **changes})


def test_a_second_run_changes_nothing(connection: Connection, tmp_path: Path) -> None:
    given = params(asked(tmp_path))
    predicted = converge.converge(given, check_mode=True)
    first = converge.converge(given, check_mode=False)
    assert (predicted["changed"], predicted["domains"]) == (True, first["domains"])
    assert [row["actions"] for row in first["domains"]] == [["define"]]
    for check_mode in (True, False):
        second = converge.converge(given, check_mode)
        assert second["changed"] is False
        assert [row["differences"] for row in second["domains"]] == [[]]
        assert second["domains"][0]["xml"] == first["domains"][0]["xml"]


def test_a_domain_keeps_its_machine_version_after_other_changes(connection: Connection, tmp_path: Path) -> None:
    client = Client()
    seen = client.observe([])
    client.close()
    there = seen.accelerators["qemu"].machines
    newest = seen.accelerators["qemu"].machine
    assert newest in there
    older = next(machine for machine in there if machine != newest and there[machine] >= 288)
    converge.converge(params(asked(tmp_path, machine=older)), check_mode=False)
    # It is no longer pinned, and something else changes.
    result = converge.converge(params(asked(tmp_path, vcpus=2)), check_mode=False)
    assert result["changed"] is True
    assert ET.fromstring(connection.lookupByName("gpu-vm").XMLDesc(0)).find("os/type").get("machine") == older
    told = [note for note in result["domains"][0]["plan"]["notes"] if "machine" in note]
    assert told[0].startswith(
        f"the virtual machine keeps machine type {older}; a new one would get {newest} on this host"
    )
    read = converge.info({**params(asked(tmp_path, vcpus=2)), "names": []})["domains"][0]
    assert (read["differences"], [note for note in read["plan"]["notes"] if "machine" in note]) == ([], told)


def test_what_a_domain_of_another_program_has_is_found_in_libvirts_own_xml(connection: Connection) -> None:
    """The four forms in which a domain has a function besides hostdev, as libvirt writes them back."""
    place = "<address type='pci' domain='0x0000' bus='{}' slot='0x00' function='0x1'/>"
    connection.defineXML(
        f"""<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
        <name>web</name><memory>1048576</memory><os><type machine='q35'>hvm</type></os>
        <devices>
          <interface type='hostdev' managed='yes'><source>{place.format("0x04")}</source></interface>
          <interface type='direct'><source dev='eno1' mode='passthrough'/></interface>
          <disk type='nvme' device='disk'>
            <source type='pci' managed='yes' namespace='1'>{place.format("0x05")}</source>
            <target dev='vda' bus='virtio'/>
          </disk>
          <disk type='block' device='disk'><source dev='/dev/nvme1n1'/><target dev='vdb' bus='virtio'/></disk>
        </devices>
        <qemu:commandline>
          <qemu:arg value='-device'/><qemu:arg value='vfio-pci,host=06:00.1'/>
        </qemu:commandline></domain>"""
    )
    web = Client("qemu:///embed").observe([]).domains["web"]
    own = holdings(web.inactive_xml)
    assert sorted(own.devices) == ["0000:04:00.1", "0000:05:00.1", "0000:06:00.1"]
    assert (own.interfaces, own.disks) == (["eno1"], ["/dev/nvme1n1"])


def test_what_a_network_lends_is_found_in_libvirts_own_xml() -> None:
    one = libvirt.open("test:///default")
    for name, inner in (("pf", "<pf dev='eno1'/>"), ("vf", "<address type='pci' bus='0x04' function='0x1'/>")):
        network = one.networkDefineXML(
            f"<network><name>{name}</name><forward mode='hostdev'>{inner}</forward></network>"
        )
        network.create()
    found = {network.name(): lent(network.XMLDesc(0)) for network in one.listAllNetworks()}
    one.close()
    assert (found["pf"], found["vf"]) == (Lent(owners=["eno1"]), Lent(devices=["0000:04:00.1"]))
    assert found["default"] == Lent()
