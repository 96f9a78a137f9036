# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from io import BytesIO

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host import archive, boot, concerns, persistence
from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError

PF, GPU = "0000:15:00.0", "0000:13:00.0"
SETTINGS = {
    "hugepages": {"pages": [{"node": 0, "size_mib": 2, "count": 64}]},
    "sriov": {"functions": [{"devices": [PF], "count": 2, "trust": True}]},
    "vfio_binding": {"devices": ["gpu"]},
    "pci_tuning": {"settings": [{"devices": ["gpu", "nic"], "max_read_request_bytes": 4096}]},
}


def ensure(server, settings=None, check=False):
    """As the module does it."""
    settings = SETTINGS if settings is None else settings
    done = concerns.ensure(server, concerns.checked(settings), check)
    return concerns.together(done, persistence.ensure(server, concerns.checked(settings), check, "/usr/bin/python3"))


def test_all_at_once(server):
    outcome = ensure(server)
    assert sorted(outcome.facts["outcomes"]) == sorted(SETTINGS)
    assert outcome.after["hugepages: node0 2 MiB"] == 64
    assert outcome.after[f"sriov: {PF} VFs"] == 2
    assert json.loads(server.read(persistence.SETTINGS) or "") == SETTINGS
    assert server.exists(persistence.WANTS)
    assert not ensure(server).changed
    assert not ensure(server, check=True).changed


def test_check_mode_does_nothing_and_names_it_all(server):
    predicted = ensure(server, check=True)
    assert server.effects == []
    assert server.commands == []
    done = ensure(server)
    assert (predicted.before, predicted.after) == (done.before, done.after)


def test_a_mistake_in_the_last_concern_stops_the_first(server):
    with pytest.raises(HostError, match=r"no device 0000:77:00.0"):
        ensure(
            server, {**SETTINGS, "pci_tuning": {"settings": [{"devices": ["0000:77:00.0"], "relaxed_ordering": True}]}}
        )
    assert server.effects == []


def test_vfs_go_and_then_their_function_is_bound(server):
    ensure(server)
    settings = {"sriov": {"functions": [{"devices": [PF], "count": 0}]}, "vfio_binding": {"devices": [PF]}}
    ensure(server, settings)
    assert server.link_name(f"/sys/bus/pci/devices/{PF}/driver") == "vfio-pci"


def test_unknown_settings(server):
    with pytest.raises(HostError, match=r"unknown settings huge_pages; known are hugepages, sriov"):
        ensure(server, {"huge_pages": {}})


def test_a_host_without_systemd(server):
    __import__("shutil").rmtree(server.path("/run/systemd"))
    with pytest.raises(HostError, match=r"this host is not run by systemd"):
        ensure(server, {})


def test_killed_anywhere(killed_anywhere):
    assert killed_anywhere(lambda server: None, ensure) == 13


def test_the_unit_waits_for_drivers_and_for_driverctl():
    files = persistence.files({}, "/usr/bin/python3")
    unit = files[persistence.UNIT_FILE].decode().splitlines()
    assert "Wants=systemd-udev-settle.service" in unit
    assert any(line.startswith("After=") and "systemd-udev-settle.service" in line for line in unit)
    assert f"Before={persistence.UNIT}" in files[persistence.ORDER_FILE].decode().splitlines()
    assert persistence.ORDER_FILE.startswith("/etc/systemd/system/driverctl@.service.d/")


def test_the_unit_comes_before_libvirt_of_both_kinds():
    unit = persistence.files({}, "/usr/bin/python3")[persistence.UNIT_FILE].decode()
    before = next(line for line in unit.splitlines() if line.startswith("Before="))
    assert set(before[7:].split()) == {"libvirtd.service", "virtqemud.service", "libvirt-guests.service"}


def test_changed_code_is_a_change_even_of_the_same_length(server):
    ensure(server)
    code = bytearray(server.read_bytes(persistence.CODE))
    code[1000] ^= 1
    server.put(persistence.CODE, bytes(code))
    outcome = ensure(server)
    assert list(outcome.after) == [persistence.CODE]
    assert server.commands[-1] == "systemctl daemon-reload"


# At boot.


def lost(server):
    """What a reboot loses, on a server that was brought to SETTINGS."""
    ensure(server)
    server.poke(f"/sys/bus/pci/devices/{PF}/sriov_numvfs", "0")
    server.poke("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "0")
    return json.loads(server.read(persistence.SETTINGS) or "")


def test_a_boot_brings_back_what_it_lost(server):
    settings = lost(server)
    said = []
    assert boot.apply(server, settings, said.append, wait=None) == []
    assert f"sriov: {PF} VFs: 0 -> 2" in said
    assert not ensure(server).changed


def test_a_driver_that_comes_late_is_waited_for(server):
    settings = lost(server)
    server.bind(PF, None)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            server.bind(PF, "igb")

    assert boot.apply(server, settings, lambda line: None, wait) == []
    assert len(waits) == 3


def test_what_cannot_be_does_not_keep_the_rest_from_being(server):
    settings = lost(server)
    server.bind(PF, None)
    errors = boot.apply(server, settings, lambda line: None, lambda seconds: None)
    assert len(errors) == 1
    assert f"{PF} has no driver" in errors[0]
    assert server.read("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages") == "64"


# The archive.


def test_the_bytes_are_the_same_every_time():
    assert archive.build(boot.__name__) == archive.build(boot.__name__)


def test_it_is_the_very_same_code():
    bundle = zipfile.ZipFile(BytesIO(archive.build(boot.__name__)))
    for name in archive.closure(boot.__name__):
        with open(sys.modules[name].__file__, encoding="utf-8") as file:
            assert bundle.read(name.replace(".", "/") + ".py").decode() == file.read()


def test_it_runs_alone(tmp_path):
    code = tmp_path / "gpu_host.pyz"
    code.write_bytes(archive.build(boot.__name__))
    # -I: nothing but the file itself and the standard library.
    done = subprocess.run(
        [sys.executable, "-I", str(code), "/nowhere.json"], capture_output=True, text=True, cwd="/", check=False
    )
    assert (done.returncode, done.stderr) == (1, "there is no /nowhere.json: run the role gpu_host again\n")


def test_it_holds_no_ansible():
    assert not [name for name in archive.closure(boot.__name__) if not name.startswith(archive.PREFIX)]
    for name in archive.closure(boot.__name__):
        assert "import ansible" not in archive.source(name).replace("import ansible_collections", "")
        assert "from ansible." not in archive.source(name)


# In an image, which is not running.


def prepared(server, settings=None, check=False):
    """As the module does it with now: false."""
    settings = SETTINGS if settings is None else settings
    concerns.check_form(settings)
    return persistence.ensure(server, concerns.checked(settings), check, "/usr/bin/python3", running=False)


def image(server):
    """The server's files as an image's: no systemd runs, one is installed."""
    __import__("shutil").rmtree(server.path("/run/systemd"))
    server.put("/usr/lib/systemd/systemd", "")


def test_an_image_gets_what_every_boot_does_and_nothing_live(server):
    image(server)
    assert prepared(server, check=True).changed
    assert server.effects == []
    outcome = prepared(server)
    assert sorted(outcome.after) == sorted([*persistence.files({}, ""), f"{persistence.UNIT} enabled"])
    assert server.commands == [f"systemctl --root=/ enable {persistence.UNIT}"]
    assert not [effect for effect in server.effects if effect.startswith("poke")]
    assert not prepared(server).changed
    assert json.loads(server.read(persistence.SETTINGS) or "") == SETTINGS


def test_an_image_without_systemd(server):
    __import__("shutil").rmtree(server.path("/run/systemd"))
    with pytest.raises(HostError, match=r"there is no systemd in this image.*: add its package"):
        prepared(server)
    assert server.effects == []


def test_an_image_may_name_devices_that_nobody_has_seen_yet():
    concerns.check_form({"vfio_binding": {"devices": ["0000:77:00.0", "10de:2330"]}})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vfio_binding": {"devices": ["gpus"]}}, r"'gpus' is no kind"),
        ({"hugepages": {"pages": [{"node": 0}]}}, r"size_mib is missing"),
        ({"sriov": {"functions": [{"devices": ["nic"], "count": "four"}]}}, r"count is 'four'"),
        ({"pci_tuning": {"settings": [{"devices": ["gpu"]}]}}, r"nothing is set"),
        ({"huge_pages": {}}, r"unknown settings huge_pages"),
    ],
)
def test_a_mistake_in_an_image_is_refused_by_its_form(settings, said):
    with pytest.raises(HostError, match=said):
        concerns.check_form(settings)
