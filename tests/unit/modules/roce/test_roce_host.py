# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules roce_host, roce_nic_info and roce_counters_info on a recorded host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nic_host import Dcb, NicHost
from nic_policy import NIC

from ansible_collections.sailloft.fleet.plugins.modules import roce_counters_info, roce_host, roce_nic_info

CONF = "/etc/nccl.conf"
SAVED = "/etc/sailloft/roce_host.json"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The host, as the modules see it."""
    monkeypatch.delenv("debian_chroot", raising=False)
    made = NicHost(tmp_path, "mlx5-vendor")
    made.dcb = {name: Dcb() for name in ("ens1np0", "ens2np0") if made.exists(f"/sys/class/net/{name}")}
    for module in (roce_counters_info, roce_host, roce_nic_info):
        monkeypatch.setattr(module, "System", lambda: made)
    return made


def pfc(host):
    """Return the priorities that the NIC of the policy pauses."""
    return [number for number, on in enumerate(host.dcb["ens1np0"].pfc["prio_pfc"]) if on]


def is_saved(host):
    return Path(host.path(SAVED)).exists()


def test_settings_are_changed_and_saved_once(host, call):
    given = {"nics": {"mlx5_0": NIC}}
    assert call(roce_host, given, check_mode=True)["changed"] is True
    assert (host.effects, is_saved(host)) == ([], False)
    assert call(roce_host, given)["changed"] is True
    assert (pfc(host), is_saved(host)) == ([3], True)
    assert call(roce_host, given)["changed"] is False


def test_settings_are_only_saved_if_they_are_for_the_next_boot(host, call):
    host.put("/usr/lib/systemd/systemd", "")  # as in an image
    assert call(roce_host, {"nics": {"mlx5_0": NIC}, "now": False})["changed"] is True
    assert (pfc(host), is_saved(host)) == ([], True)


def test_a_stage_changes_the_nics_and_saves_nothing(host, call):
    assert call(roce_host, {"nics": {"mlx5_0": NIC}, "stage": "settings"})["changed"] is True
    assert is_saved(host) is False


def test_a_gid_that_nccl_cannot_use_is_a_warning_of_ansible(host, call):
    """Ansible deprecates a module's result that has warnings of its own."""
    result = call(roce_host, {"nics": {"mlx5_0": NIC}, "nccl": {"gid_index": 0}}, check_mode=True)
    assert any("mlx5_0" in str(warning) for warning in result["warnings"])
    assert "deprecations" not in result


def before(call, **nccl):
    """Return the state that a call in check mode returns for the option restore."""
    return call(roce_host, {"nics": {"mlx5_0": NIC}, **nccl}, check_mode=True)["before"]


def test_nics_are_restored_and_the_saved_settings_removed(host, call):
    old = before(call)
    assert old["saved"] is None
    assert call(roce_host, {"nics": {"mlx5_0": NIC}})["before"] == old
    given = {"nics": {"mlx5_0": {}, "mlx5_9": {}}, "restore": old}
    assert call(roce_host, given, check_mode=True)["changed"] is True
    assert (pfc(host), is_saved(host)) == ([3], True)
    call(roce_host, given)
    assert (pfc(host), is_saved(host)) == ([], False)


def test_nics_that_are_not_listed_are_not_restored(host, call):
    old = before(call)
    call(roce_host, {"nics": {"mlx5_0": NIC}})
    call(roce_host, {"restore": old})
    assert pfc(host) == [3]


def test_a_stage_of_a_restore_leaves_the_files(host, call):
    old = before(call, nccl={})
    call(roce_host, {"nics": {"mlx5_0": NIC}, "nccl": {}})
    call(roce_host, {"nics": {"mlx5_0": {}}, "restore": old, "stage": "settings"})
    assert (is_saved(host), host.exists(CONF)) == (True, True)


def test_earlier_saved_settings_are_restored(host, call):
    call(roce_host, {"nics": {"mlx5_0": NIC}})
    old = before(call)
    assert list(old["saved"]["nics"]) == ["mlx5_0"]
    Path(host.path(SAVED)).unlink()
    call(roce_host, {"nics": {"mlx5_0": {}}, "restore": old})
    assert json.loads(Path(host.path(SAVED)).read_text()) == old["saved"]


def test_all_nics_are_read_unless_some_are_named(host, call):
    assert list(call(roce_nic_info, {})["nics"]) == sorted(
        name for name in host.names("/sys/class/infiniband") if name.startswith("mlx5")
    )
    named = call(roce_nic_info, {"nics": ["mlx5_0"]})
    assert (list(named["nics"]), named["left_out"], named["changed"]) == (["mlx5_0"], {}, False)


def test_counters_are_compared_with_an_earlier_reading_only_if_it_is_given(host, call):
    file = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent"
    host.put(file, "5\n")
    earlier = call(roce_counters_info, {})
    assert "differences" not in earlier
    assert set(earlier["counters"]) == {"mlx5_0", "mlx5_1"}
    host.put(file, "8\n")
    later = call(roce_counters_info, {"nics": ["mlx5_0"], "before": earlier["counters"]})
    assert (later["changed"], set(later["differences"])) == (False, {"mlx5_0"})
    assert (later["differences"]["mlx5_0"]["cnp_sent"], later["counters"]["mlx5_0"]["cnp_sent"]) == (3, 8)
    assert later["differences"]["mlx5_0"]["cnp_handled"] is None
