# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot service is installed and removed with only the systemd commands that this needs."""

from __future__ import annotations

import shutil
from hashlib import sha256

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import (
    boot,
    now_and_at_boot,
    persistence,
    unit,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError

ALL = [*unit.files(persistence.SERVICE, {}, ""), f"{persistence.UNIT} enabled"]


def ensure(server, settings, **more):
    return unit.ensure(server, persistence.SERVICE, settings, python="/usr/bin/python3", **more)


def commands(server):
    """Return the commands since the last call."""
    found = [*server.commands]
    server.commands.clear()
    return found


def test_a_new_service_is_enabled_and_changed_files_cause_a_daemon_reload(server):
    assert sorted(ensure(server, {}, check=True).after) == sorted(ALL)
    assert commands(server) == []
    assert sorted(ensure(server, {}).after) == sorted(ALL)
    assert commands(server) == [f"systemctl enable {persistence.UNIT}"]
    assert not ensure(server, {}).changed
    assert commands(server) == []
    assert list(ensure(server, {"hugepages": {}}).after) == [persistence.SETTINGS]
    assert commands(server) == ["systemctl daemon-reload"]


def test_removal_deletes_all_files_and_runs_only_the_needed_commands(server):
    assert not unit.remove(server, persistence.SERVICE).changed
    assert commands(server) == []
    ensure(server, {})
    commands(server)
    predicted = unit.remove(server, persistence.SERVICE, check=True)
    assert sorted(predicted.before) == sorted(ALL)
    assert commands(server) == []
    assert server.exists(persistence.SETTINGS)
    done = unit.remove(server, persistence.SERVICE)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert commands(server) == [f"systemctl disable {persistence.UNIT}", "systemctl daemon-reload"]
    assert not any(server.exists(path) for path in (*unit.files(persistence.SERVICE, {}, ""), persistence.WANTS))


def test_a_unit_in_an_image_is_written_and_enabled_once(server):
    wanted = {persistence.CODE: b"PK\0", persistence.UNIT_FILE: b"[Unit]\n"}

    def install(check=False):
        return unit.install_in_image(server, persistence.UNIT, wanted, {"kernel": "6"}, check)

    predicted = install(check=True)
    assert server.effects == []
    done = install()
    assert (done.before, done.after) == (predicted.before, predicted.after)
    assert sorted(done.after) == sorted([*wanted, f"{persistence.UNIT} enabled"])
    assert {path: server.read_bytes(path) for path in wanted} == wanted
    assert commands(server) == [f"systemctl --root=/ enable {persistence.UNIT}"]
    again = install()
    assert not again.changed
    assert again.facts == {"kernel": "6"}
    assert commands(server) == []


@pytest.mark.parametrize(
    ("content", "found"), [(None, None), ("{", None), ("[]", None), ("{}", {}), ('{"a": 1}', {"a": 1})]
)
def test_unreadable_saved_settings_are_read_as_none(server, content, found):
    if content is not None:
        server.put(persistence.SETTINGS, content)
    assert unit.saved(server, persistence.SERVICE) == found


def test_the_unit_has_this_text():
    assert unit.files(persistence.SERVICE, {}, "/usr/bin/python3")[persistence.UNIT_FILE].decode() == (
        "# Written by sailloft.fleet.gpu_host_boot; changes here are lost.\n"
        "[Unit]\n"
        "Description=VFs, VFIO bindings, huge pages and PCIe settings of a GPU host (Sailloft)\n"
        "Wants=systemd-udev-settle.service\n"
        "After=systemd-udev-settle.service systemd-modules-load.service tuned.service\n"
        "Before=libvirtd.service virtqemud.service libvirt-guests.service\n"
        f"ConditionPathExists={persistence.SETTINGS}\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        "RemainAfterExit=yes\n"
        f"ExecStart=/usr/bin/python3 {persistence.CODE} {persistence.SETTINGS}\n"
        "TimeoutStartSec=300\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )


def test_saved_settings_are_sorted_and_the_unit_is_written_last():
    files = unit.files(persistence.SERVICE, {"b": {"d": 1, "c": 2}, "a": 1}, "python")
    assert files[persistence.SETTINGS] == b'{\n  "a": 1,\n  "b": {\n    "c": 2,\n    "d": 1\n  }\n}\n'
    assert list(files) == [persistence.SETTINGS, persistence.CODE, persistence.ORDER_FILE, persistence.UNIT_FILE]


def test_files_are_shown_as_text_and_code_by_its_digest(server):
    outcome = ensure(server, {})
    assert outcome.facts == {"unit": persistence.UNIT, "settings_file": persistence.SETTINGS}
    assert outcome.before == {
        **dict.fromkeys(unit.files(persistence.SERVICE, {}, "")),
        f"{persistence.UNIT} enabled": False,
    }
    assert outcome.after[persistence.SETTINGS] == "{}\n"
    assert outcome.after[f"{persistence.UNIT} enabled"] is True
    code = server.read_bytes(persistence.CODE)
    assert outcome.after[persistence.CODE] == f"binary, sha256 {sha256(code).hexdigest()}"


def test_an_enabled_unit_of_an_image_is_not_enabled_again(server):
    server.put("/lib/systemd/systemd", "")
    ensure(server, {}, running=False)
    commands(server)
    assert ensure(server, {"a": 1}, running=False).changed
    assert commands(server) == []


def test_removed_files_are_shown(server):
    ensure(server, {})
    outcome = unit.remove(server, persistence.SERVICE)
    assert outcome.before == {
        **dict.fromkeys(unit.files(persistence.SERVICE, {}, ""), "there"),
        f"{persistence.UNIT} enabled": True,
    }
    assert outcome.after == {
        **dict.fromkeys(unit.files(persistence.SERVICE, {}, "")),
        f"{persistence.UNIT} enabled": False,
    }


@pytest.mark.parametrize(
    ("running", "message"),
    [
        (
            True,
            Mentions("gpu_host_boot", "systemd"),
        ),
        (
            False,
            Mentions("gpu_host_boot", "systemd"),
        ),
    ],
)
def test_systemd_is_needed(server, running, message):
    shutil.rmtree(server.path("/run/systemd"))
    for check in (False, True):
        with pytest.raises(HostError) as error:
            ensure(server, {}, check=check, running=running)
        assert str(error.value) == message
    assert server.effects == []


GIVEN = {"hugepages": {"pages": []}, "sriov": None, "vfio_binding": None, "pci_tuning": None}


def test_only_kernel_settings_with_a_value_are_saved(server):
    given = {**GIVEN, "kernel_settings": {"ksm": False, "governor": None}, "now": True}
    assert now_and_at_boot.ensure(server, given, check=True).changed
    assert server.effects == []
    now_and_at_boot.ensure(server, given)
    assert unit.saved(server, persistence.SERVICE) == {"hugepages": {"pages": []}, "kernel_settings": {"ksm": False}}
    now_and_at_boot.ensure(server, {**GIVEN, "kernel_settings": None, "now": True})
    assert unit.saved(server, persistence.SERVICE) == {"hugepages": {"pages": []}}


def test_nothing_is_done_now_in_an_image(server):
    server.put("/lib/systemd/systemd", "")
    server.put("/sys/kernel/mm/ksm/run", "1\n")
    given = {**GIVEN, "kernel_settings": {"ksm": False}, "now": False}
    assert now_and_at_boot.ensure(server, given).facts["outcomes"] == {}
    assert server.read("/sys/kernel/mm/ksm/run") == "1"
    assert commands(server) == [f"systemctl --root=/ enable {persistence.UNIT}"]


def test_settings_that_no_host_can_have_are_not_saved_in_an_image(server):
    server.put("/lib/systemd/systemd", "")
    pages = {"pages": [{"node": 0, "size_mib": 3, "count": 1}]}
    with pytest.raises(HostError, match="3"):
        now_and_at_boot.ensure(server, {**GIVEN, "hugepages": pages, "kernel_settings": None, "now": False})
    assert server.effects == []


def test_the_boot_tries_for_a_minute_and_reports_each_step(server):
    messages, waits = [], []
    settings = {"kernel_settings": {"avic": True}, "sriov": {"functions": [{"devices": ["0000:77:00.0"], "count": 1}]}}
    (error,) = boot.apply(server, {**settings, "hugepages": {"pages": [{"node": 0, "size_mib": 2, "count": 4}]}},
                          messages.append, waits.append)  # fmt: skip
    assert "no device 0000:77:00.0 on this host" in error
    assert waits == [2] * 30
    assert messages == ["hugepages: node0 2 MiB: 0 -> 4"]


@pytest.mark.parametrize("errors", [[], ["sriov: no device"]])
def test_the_status_of_the_boot_tells_whether_all_was_applied(tmp_path, monkeypatch, capsys, errors):
    (tmp_path / "saved.json").write_text('{"a": 1}')
    calls = []

    def applied(_system, settings, say):
        calls.append(settings)
        say("a: 0 -> 1")
        return errors

    monkeypatch.setattr(boot, "apply", applied)
    assert boot.main([str(tmp_path / "saved.json")]) == len(errors)
    assert calls == [{"a": 1}]
    assert capsys.readouterr() == ("a: 0 -> 1\n", "".join(f"{error}\n" for error in errors))


def test_the_boot_needs_the_saved_settings(tmp_path, capsys):
    assert boot.main([str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().err == f"there is no {tmp_path}/none.json: run the role gpu_host again\n"
