# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expectations of a node, as the role's variables and files of the controller make them."""

from __future__ import annotations

import json
from pathlib import Path

import machines
import pytest
import tool_outputs as printed
import yaml
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from messages import raises

from ansible_collections.sailloft.fleet.plugins.filter.node_health_expected import node_health_expected
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

SERVER = "supermicro-4029gp-ve"
RECORDING = str(machines.RECORDINGS / f"{SERVER}.json")
ROLE = Path(__file__).parents[3] / "roles/node_health"


def made(**given):
    """Return what the filter makes of the role's variables, as Ansible templates them."""
    files = [
        yaml.safe_load((ROLE / name).read_text(encoding="utf-8")) for name in ("defaults/main.yml", "vars/main.yml")
    ]
    role = {name: trusted(value) for file in files for name, value in file.items()}
    variables = {**role, "inventory_hostname": "gpu01", "groups": {}, "hostvars": {"gpu01": {}}, **given}
    options = Templar(DataLoader(), variables=variables).template(role["__node_health_given"])
    return stored.load(node_health_expected("gpu01", **options))


def trusted(value):
    """Return a value of the role's files, as Ansible's loader marks it."""
    if isinstance(value, dict):
        return {name: trusted(item) for name, item in value.items()}
    return trust_as_template(value) if isinstance(value, str) else value


def test_a_node_must_have_what_its_recording_has_and_the_inventory_says():
    expected = made(
        node_health_recording=RECORDING,
        node_health_mounts=["/scratch"],
        node_health_checks={"xid_79": {"disabled": "ticket 7"}},
    )
    assert (expected.host, expected.machine, expected.mounts) == ("gpu01", "bare_metal", ("/scratch",))
    assert len([device for device in expected.devices if device.kind == "gpu"]) == 8
    assert expected.settings["xid_79"].disabled == "ticket 7"


def test_rates_of_the_first_day_are_those_that_were_not_too_slow(tmp_path):
    host = machines.as_recorded(SERVER)
    gpus = sorted(item.address for item in host.functions if item.kind == "gpu")[:2]
    copies = judge.of_nvbandwidth({"status": "measured", "output": printed.nvbandwidth(gpus, [13.0, 3.0])}, host)
    collective = judge.of_nccl({"status": "measured", "output": printed.nccl(478.1)}, None, (), judge.WITHIN_NODE)

    def accepted(baseline=None):
        claims = judge.claims([*copies, collective], baseline)
        path = tmp_path / "acceptance-gpu01.json"
        path.write_text(json.dumps(Proof("acceptance-gpu01", "acceptance", "gpu01", claims).to_dict()))
        return made(node_health_recording=RECORDING, proofs_path=str(tmp_path)).accepted

    tests = ("device_to_host_memcpy_ce", "host_to_device_memcpy_ce")
    links = {f"{test} {gpus[0]}": 13.0 for test in tests}
    assert accepted() == {**links, "device_to_device_memcpy_read_ce": 391.0, "all_reduce_perf": 478.1}
    # NVLinks are judged by a baseline only.
    assert accepted({judge.WITHIN_NODE: 600.0}) == {**links, "device_to_device_memcpy_read_ce": 391.0}
    assert made(node_health_recording=RECORDING, proofs_path=str(tmp_path / "none")).accepted == {}


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"node_health_recording": "/none.json"}, ("gpu01", "record.yml")),
        (
            {"node_health_recording": RECORDING, "node_health_checks": {"pcie_with": {"limit": 8}}},
            ("gpu01", "pcie_width"),
        ),
    ],
)
def test_an_input_that_makes_no_sense_is_refused_with_the_node(given, facts):
    with raises(AnsibleFilterError, *facts):
        made(**given)


def test_an_unknown_option_is_refused():
    with raises(AnsibleFilterError, "gpu01", "colour"):
        node_health_expected("gpu01", "image", colour="red")
    with raises(AnsibleFilterError, "gpu01", "car"):
        node_health_expected("gpu01", "car")


def test_an_acceptance_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "acceptance-gpu01.json"
    path.write_text("{")
    with raises(AnsibleFilterError, "gpu01", str(path), "accept.yml"):
        made(node_health_recording=RECORDING, proofs_path=str(tmp_path))


def test_the_nodes_storage_is_among_what_it_must_have():
    storage = {
        "storage_client_local": [{"name": "cache", "numa_node": 0, "count": 4}],
        "storage_client_nfs": [{"source": "nas1:/home", "path": "/home", "cache": "cache"}],
    }
    expected = made(node_health_recording=RECORDING, node_health_mounts=["/opt"], **storage)
    assert expected.mounts == ("/opt", "/cache", "/home")
    assert expected.units == ("sailloft-storage.service", "sailloft-cachefilesd.service")
    with raises(AnsibleFilterError, "count"):
        made(node_health_recording=RECORDING, storage_client_local=[{"name": "cache", "numa_node": 0}])
