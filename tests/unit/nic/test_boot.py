# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NICs after a reboot, and after their settings are restored from a backup."""

from __future__ import annotations

import json

import pytest
from messages import raises
from nic_policy import NIC

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import retry
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit as at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import boot, ensure, persistence, read

# After a reboot


def test_the_unit_starts_before_workloads_with_the_saved_settings(host):
    wanted = ensure.settings({}, {"mlx5_0": NIC}, None)
    system = host()
    done = at_boot.ensure(system, persistence.SERVICE, wanted, python="/usr/bin/python3")
    assert done.changed
    assert not at_boot.ensure(system, persistence.SERVICE, wanted, python="/usr/bin/python3").changed
    unit = system.read(persistence.SERVICE.unit_file)
    before = next(line for line in unit.splitlines() if line.startswith("Before="))
    assert before.startswith("Before=kubelet.service containerd.service docker.service slurmd.service ")
    assert "ExecStart=/usr/bin/python3 /usr/lib/sailloft/roce_host.pyz /etc/sailloft/roce_host.json" in unit
    assert json.loads(system.read(persistence.SERVICE.settings)) == wanted


def test_a_boot_applies_the_settings_and_waits_for_a_driver_that_loads_late(host):
    system, waited, messages = host(), [], []
    wanted = ensure.settings({}, {"mlx5_0": NIC}, None)
    late = system.dcb.pop("ens1np0")

    def wait(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            system.dcb["ens1np0"] = late

    assert boot.apply(system, wanted, messages.append, wait) == []
    assert len(waited) == 3
    assert any(line.startswith("mlx5_0 pfc: [] -> [3]") for line in messages)
    assert not ensure.ensure(system, wanted).changed


def test_a_boot_without_the_nic_fails_after_one_minute(host):
    wanted = ensure.settings({}, {"mlx5_7": {}}, None)
    waited = []
    assert "mlx5_7: no such RDMA device" in boot.apply(host(), wanted, print, waited.append)[0]
    assert waited == [2] * 30


def test_a_failed_boot_prints_the_reason_to_stderr(tmp_path, monkeypatch, capsys):
    """The boot program runs on this machine, which has no such device."""
    monkeypatch.setattr(retry, "PATIENCE_S", retry.PAUSE_S)  # one try
    saved = tmp_path / "roce_host.json"
    assert boot.main([str(saved)]) == 1
    assert capsys.readouterr() == ("", f"there is no {saved}: run the role roce_host again\n")
    saved.write_text(json.dumps(ensure.settings({}, {"mlx5_7": {}}, None)))
    assert boot.main([str(saved)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("mlx5_7: no such RDMA device on this host; ")


def test_a_boot_prints_its_changes(host, monkeypatch, capsys):
    system = host()
    monkeypatch.setattr(boot, "System", lambda: system)
    system.put(persistence.SERVICE.settings, json.dumps(ensure.settings({}, {"mlx5_0": NIC}, None)))
    assert boot.main([persistence.SERVICE.settings]) == 0
    out, err = capsys.readouterr()
    assert "mlx5_0 pfc: [] -> [3]\n" in out
    assert err == ""
    assert boot.main([persistence.SERVICE.settings]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_folder_of_rdma_cm_is_removed_if_reading_created_it(host):
    system = host()
    mine = "/sys/kernel/config/rdma_cm/mlx5_9"
    with read.connections(system, "mlx5_9") as path:
        assert path == f"{mine}/ports/1/default_roce_tos"
        assert system.exists(mine)
    assert not system.exists(mine)
    system.put(f"{mine}/ports/1/default_roce_tos", "106")
    with read.connections(system, "mlx5_9") as path:
        assert system.read(path) == "106"
    assert system.exists(mine)


def test_restoring_an_invalid_reading_is_refused(host):
    system = host()
    bad = {"mlx5_0": {"name": "mlx5_0", "interface": "ens1np0", "priority_to_class": [1]}}
    with raises(HostError, "mlx5_0", "NIC", "roce_nic_info", "priority_to_class", "8"):
        ensure.restore(system, bad)
    assert system.effects == []


@pytest.mark.parametrize("check", [False, True])
def test_restoring_without_a_dcb_tool_is_refused(host, check):
    system = host()
    before = {"mlx5_0": ensure.shown(read.read(system, ["mlx5_0"])["mlx5_0"])}
    system.tools = set()
    del system.effects[:]
    with raises(HostError, "mlx5_0", "ens1np0", "DCB", "iproute2", "mlnx_qos"):
        ensure.restore(system, before, check)
    assert system.effects == []


def test_saved_settings_for_the_boot_are_read_and_removed(host, monkeypatch):
    system = host()
    ran = []
    monkeypatch.setattr(system, "run", lambda argv, stdin=None: ran.append(argv) or "")
    assert at_boot.saved(system, persistence.SERVICE) is None
    wanted = ensure.settings({}, {"mlx5_0": NIC}, None)
    at_boot.ensure(system, persistence.SERVICE, wanted)
    assert at_boot.saved(system, persistence.SERVICE) == wanted
    system.put(persistence.SERVICE.wants, "")
    paths = [getattr(persistence.SERVICE, each) for each in ("unit_file", "settings", "code")]
    assert at_boot.remove(system, persistence.SERVICE, check=True).changed
    assert all(system.exists(path) for path in paths)
    assert at_boot.remove(system, persistence.SERVICE).changed
    assert not any(system.exists(path) for path in paths)
    assert ["systemctl", "disable", "sailloft-roce-host.service"] in ran
    system.put(persistence.SERVICE.settings, "no JSON")
    assert at_boot.saved(system, persistence.SERVICE) is None
