# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import boot as node_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.health import main as health
from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive, boot, persistence, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import boot as nic_boot

PF, GPU = "0000:15:00.0", "0000:13:00.0"
SETTINGS = {
    "hugepages": {"pages": [{"node": 0, "size_mib": 2, "count": 64}]},
    "sriov": {"functions": [{"devices": [PF], "count": 2, "trust": True}]},
    "vfio_binding": {"devices": ["gpu"]},
    "pci_tuning": {"settings": [{"devices": ["gpu", "nic"], "max_read_request_bytes": 4096}]},
}


def ensure(server, settings=None, check=False):
    """Apply and save settings as the module does."""
    settings = concerns.checked(SETTINGS if settings is None else settings)
    done = concerns.ensure(server, settings, check)
    lasting = concerns.to_save(settings, done, unit.saved(server, persistence.SERVICE))
    return concerns.together(done, unit.ensure(server, persistence.SERVICE, lasting, check, "/usr/bin/python3"), check)


def saved(server):
    return json.loads(server.read(persistence.SETTINGS) or "")


def test_all_concerns_are_applied_and_saved(server):
    outcome = ensure(server)
    assert sorted(outcome.facts["outcomes"]) == sorted(SETTINGS)
    assert outcome.after["hugepages: node0 2 MiB"] == 64
    assert outcome.after[f"sriov: {PF} VFs"] == 2
    assert json.loads(server.read(persistence.SETTINGS) or "") == SETTINGS
    assert server.exists(persistence.WANTS)
    assert not ensure(server).changed
    assert not ensure(server, check=True).changed


def test_check_mode_changes_nothing_and_reports_all_changes(server):
    predicted = ensure(server, check=True)
    assert server.effects == []
    assert [command for command in server.commands if not command.startswith("ip -j ")] == []
    done = ensure(server)
    assert (predicted.before, predicted.after) == (done.before, done.after)


def test_an_unknown_device_in_the_last_concern_is_refused_before_any_change(server):
    with pytest.raises(SailloftError, match=r"no device 0000:77:00.0"):
        ensure(
            server, {**SETTINGS, "pci_tuning": {"settings": [{"devices": ["0000:77:00.0"], "relaxed_ordering": True}]}}
        )
    assert server.effects == []


def test_an_invalid_value_in_the_last_concern_is_refused_before_any_change(server):
    with raises(HostError, "relaxed_ordering", "'yes'"):
        ensure(server, {**SETTINGS, "pci_tuning": {"settings": [{"devices": ["gpu"], "relaxed_ordering": "yes"}]}})
    assert server.effects == []


def without(settings, concern):
    return {name: given for name, given in settings.items() if name != concern}


def test_lockdown_blocks_only_pci_tuning_and_the_other_concerns_are_saved(server):
    server.lock_down("integrity")
    predicted = ensure(server, check=True)
    assert server.effects == []
    done = ensure(server)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert predicted.failed.splitlines()[0] == (Mentions("pci_tuning", "hugepages", "sriov", "vfio_binding"))
    assert predicted.failed.splitlines()[1:] == done.failed.splitlines()[1:]
    assert done.failed.splitlines()[0] == (Mentions("pci_tuning", "hugepages", "sriov", "vfio_binding"))
    assert done.failed.splitlines()[1].startswith("1. pci_tuning: kernel lockdown is on (integrity), which blocks")
    assert done.facts["failures"] == [done.failed.splitlines()[1][3:]]
    assert done.after["hugepages: node0 2 MiB"] == 64
    assert server.link_name(f"/sys/bus/pci/devices/{GPU}/driver") == "vfio-pci"
    assert saved(server) == without(SETTINGS, "pci_tuning")
    assert server.exists(persistence.WANTS)
    again = ensure(server)
    assert (again.changed, again.failed) == (False, done.failed)


def test_a_run_after_lockdown_completes_the_failed_concern(server):
    server.lock_down("integrity")
    ensure(server)
    server.lock_down("none")
    outcome = ensure(server)
    assert outcome.failed == ""
    assert saved(server) == SETTINGS


def test_a_failed_concern_does_not_stop_the_concerns_after_it(server):
    pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB"
    server.pages_at_most[pool] = 10
    outcome = ensure(server)
    assert outcome.failed.splitlines()[0] == (Mentions("sriov", "vfio_binding", "pci_tuning"))
    assert "the kernel gave 10 of 64 pages of node0 2 MiB" in outcome.failed
    assert outcome.after[f"sriov: {PF} VFs"] == 2
    assert saved(server) == without(SETTINGS, "hugepages")


def test_two_failures_are_both_named(server):
    server.lock_down("integrity")
    server.pages_at_most["/sys/devices/system/node/node0/hugepages/hugepages-2048kB"] = 10
    lines = ensure(server).failed.splitlines()
    assert lines[0] == Mentions("hugepages", "pci_tuning")
    assert [line[:3] for line in lines[1:]] == ["1. ", "2. "]
    assert saved(server) == {name: SETTINGS[name] for name in ("sriov", "vfio_binding")}


def test_earlier_saved_settings_of_a_failed_concern_are_kept(server):
    ensure(server)
    server.pages_at_most["/sys/devices/system/node/node0/hugepages/hugepages-2048kB"] = 64
    more = {"hugepages": {"pages": [{"node": 0, "size_mib": 2, "count": 128}]}}
    outcome = ensure(server, {**SETTINGS, **more, "vfio_binding": {"devices": []}})
    assert outcome.failed
    assert saved(server) == {**SETTINGS, "vfio_binding": {"devices": []}}


def test_nothing_is_saved_if_all_concerns_fail(server):
    server.lock_down("integrity")
    outcome = ensure(server, {"pci_tuning": SETTINGS["pci_tuning"]})
    assert outcome.failed.splitlines()[0] == Mentions("pci_tuning")
    assert saved(server) == {}


def test_a_run_killed_at_any_point_under_lockdown_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(lambda server: server.lock_down("integrity"), ensure) == 10


def test_vfs_are_removed_before_their_function_is_bound(server):
    ensure(server)
    settings = {"sriov": {"functions": [{"devices": [PF], "count": 0}]}, "vfio_binding": {"devices": [PF]}}
    ensure(server, settings)
    assert server.link_name(f"/sys/bus/pci/devices/{PF}/driver") == "vfio-pci"


def test_unknown_settings_are_refused(server):
    with raises(HostError, "huge_pages", "hugepages"):
        ensure(server, {"huge_pages": {}})


def test_a_host_without_systemd_is_refused(server):
    __import__("shutil").rmtree(server.path("/run/systemd"))
    with pytest.raises(HostError, match="systemd"):
        ensure(server, {})


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(lambda server: None, ensure) == 13


def test_the_unit_waits_for_drivers_and_for_driverctl():
    files = unit.files(persistence.SERVICE, {}, "/usr/bin/python3")
    lines = files[persistence.UNIT_FILE].decode().splitlines()
    assert "Wants=systemd-udev-settle.service" in lines
    assert any(line.startswith("After=") and "systemd-udev-settle.service" in line for line in lines)
    assert f"Before={persistence.UNIT}" in files[persistence.ORDER_FILE].decode().splitlines()
    assert persistence.ORDER_FILE.startswith("/etc/systemd/system/driverctl@.service.d/")


def test_the_unit_starts_before_the_services_of_libvirt():
    text = unit.files(persistence.SERVICE, {}, "/usr/bin/python3")[persistence.UNIT_FILE].decode()
    before = next(line for line in text.splitlines() if line.startswith("Before="))
    assert set(before[7:].split()) == {"libvirtd.service", "virtqemud.service", "libvirt-guests.service"}


def test_changed_code_of_the_same_length_is_detected(server):
    ensure(server)
    code = bytearray(server.read_bytes(persistence.CODE))
    code[1000] ^= 1
    server.put(persistence.CODE, bytes(code))
    outcome = ensure(server)
    assert list(outcome.after) == [persistence.CODE]
    assert server.commands[-1] == "systemctl daemon-reload"


# The settings at boot.


def lost(server):
    """Bring a server to SETTINGS, then undo what a reboot loses; return the saved settings."""
    ensure(server)
    server.poke(f"/sys/bus/pci/devices/{PF}/sriov_numvfs", "0")
    server.poke("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "0")
    return json.loads(server.read(persistence.SETTINGS) or "")


def test_a_boot_restores_settings_that_the_reboot_removed(server):
    settings = lost(server)
    messages = []
    assert boot.apply(server, settings, messages.append, wait=None) == []
    assert f"sriov: {PF} VFs: 0 -> 2" in messages
    assert not ensure(server).changed


def test_the_boot_waits_for_a_driver_that_loads_late(server):
    settings = lost(server)
    server.bind(PF, None)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            server.bind(PF, "igb")

    assert boot.apply(server, settings, lambda line: None, wait) == []
    assert len(waits) == 3


def test_a_concern_that_fails_at_boot_does_not_stop_the_others(server):
    settings = lost(server)
    server.bind(PF, None)
    waited = []
    errors = boot.apply(server, settings, lambda line: None, waited.append)
    assert sum(waited) == 60
    assert len(errors) == 1
    assert f"{PF} has no driver" in errors[0]
    assert server.read("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages") == "64"


# The archive of the code that runs at boot.


def test_the_archive_is_reproducible():
    assert archive.build(boot.__name__) == archive.build(boot.__name__)
    bundle = zipfile.ZipFile(BytesIO(archive.build(boot.__name__)))
    assert {file.date_time for file in bundle.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_archive_contains_the_unchanged_source_code():
    bundle = zipfile.ZipFile(BytesIO(archive.build(boot.__name__)))
    for name in archive.closure(boot.__name__):
        with open(sys.modules[name].__file__, encoding="utf-8") as file:
            assert bundle.read(name.replace(".", "/") + ".py").decode() == file.read()


def parsed_imports(name):
    """Return the modules of the library that a module imports, by Python's parser."""
    prefix = archive.PREFIX.rstrip(".")
    for node in ast.walk(ast.parse(archive.source(name))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(prefix):
            of_package = hasattr(sys.modules[node.module], "__path__")
            yield from (f"{node.module}.{each.name}" for each in node.names) if of_package else [node.module]
        assert not isinstance(node, ast.Import) or not any(each.name.startswith(prefix) for each in node.names)


@pytest.mark.parametrize("start", [boot, health, nic_boot, node_boot])
def test_the_archive_has_every_module_that_its_modules_import(start):
    names = archive.closure(start.__name__)
    assert {start.__name__}.union(*map(parsed_imports, names)) == set(names)


def rewritten(data, ending, change):
    """Return a zip file with the files of this ending changed."""
    result = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)) if name.endswith(ending) else old.read(name))
    return result.getvalue()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_an_archive_with_bytecode_is_the_same_whoever_built_it(tmp_path, hash_seed):
    code = tmp_path / "gpu_host.pyz"
    script = f"import sys; from {archive.__name__} import build; import {boot.__name__}; "
    script += f"open({str(code)!r}, 'wb').write(build({boot.__name__!r}, True))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    ours = archive.build(boot.__name__, with_bytecode=True)
    assert archive.is_same(code.read_bytes(), ours)
    assert not archive.is_same(rewritten(ours, ".py", lambda data: data + b"# changed\n"), ours)
    assert not archive.is_same(archive.build(boot.__name__), ours)


def test_python_reads_the_sources_where_the_bytecode_is_of_another(tmp_path):
    code = tmp_path / "gpu_host.pyz"
    ours = archive.build(boot.__name__, with_bytecode=True)
    code.write_bytes(rewritten(ours, ".pyc", lambda data: b"\0\0\r\n" + data[4:]))
    done = subprocess.run(
        [sys.executable, "-I", str(code), "/nowhere.json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "there is no /nowhere.json: run the role gpu_host again\n")


def test_the_archive_runs_with_only_the_standard_library(tmp_path):
    code = tmp_path / "gpu_host.pyz"
    code.write_bytes(archive.build(boot.__name__))
    # -I: only the file itself and the standard library.
    done = subprocess.run(
        [sys.executable, "-I", str(code), "/nowhere.json"], capture_output=True, text=True, cwd="/", check=False
    )
    assert (done.returncode, done.stderr) == (1, "there is no /nowhere.json: run the role gpu_host again\n")


def test_the_archive_contains_no_ansible_code():
    assert not [name for name in archive.closure(boot.__name__) if not name.startswith(archive.PREFIX)]
    for name in archive.closure(boot.__name__):
        assert "import ansible" not in archive.source(name).replace("import ansible_collections", "")
        assert "from ansible." not in archive.source(name)


# An image, whose system is not running.


def prepared(server, settings=None, check=False):
    """Save settings as the module does with now: false."""
    settings = SETTINGS if settings is None else settings
    concerns.check_form(settings)
    return unit.ensure(
        server, persistence.SERVICE, concerns.checked(settings), check, "/usr/bin/python3", running=False
    )


def image(server):
    """Make the server's files those of an image: systemd is installed and does not run."""
    __import__("shutil").rmtree(server.path("/run/systemd"))
    server.put("/usr/lib/systemd/systemd", "")


def test_an_image_gets_the_boot_service_and_no_live_changes(server):
    image(server)
    assert prepared(server, check=True).changed
    assert server.effects == []
    outcome = prepared(server)
    assert sorted(outcome.after) == sorted([*unit.files(persistence.SERVICE, {}, ""), f"{persistence.UNIT} enabled"])
    assert server.commands == [f"systemctl --root=/ enable {persistence.UNIT}"]
    assert not [effect for effect in server.effects if effect.startswith("poke")]
    assert not prepared(server).changed
    assert json.loads(server.read(persistence.SETTINGS) or "") == SETTINGS


def test_an_image_without_systemd_is_refused(server):
    __import__("shutil").rmtree(server.path("/run/systemd"))
    with pytest.raises(HostError, match="systemd"):
        prepared(server)
    assert server.effects == []


def test_an_image_may_name_devices_that_are_not_present():
    # check_form raises if a setting is not valid.
    assert concerns.check_form({"vfio_binding": {"devices": ["0000:77:00.0", "10de:2330"]}}) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vfio_binding": {"devices": ["gpus"]}}, Mentions("gpus")),
        ({"hugepages": {"pages": [{"node": 0}]}}, Mentions("size_mib")),
        ({"sriov": {"functions": [{"devices": ["nic"], "count": "four"}]}}, Mentions("count", "four")),
        ({"pci_tuning": {"settings": [{"devices": ["gpu"]}]}}, Mentions("setting")),
        ({"huge_pages": {}}, Mentions("huge_pages")),
    ],
)
def test_invalid_settings_of_an_image_are_refused(settings, message):
    with pytest.raises(SailloftError) as error:
        concerns.check_form(settings)
    assert str(error.value) == message
