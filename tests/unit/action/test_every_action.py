# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every action: whether Ansible may run it in check mode and without a host, and its refusal of unknown arguments."""

from __future__ import annotations

import importlib

import pytest
import sites
from ansible.errors import AnsibleError

NAMES = sorted(path.stem for path in (sites.PROJECT / "plugins/action").glob("*.py"))
# They compute on the controller, or answer for a host that may be gone.
WITHOUT_CONNECTION = (
    "cabling_check",
    "fleet_look",
    "gateway_run",
    "gpu_vm_place",
    "ib_fabric_health",
    "ib_fabric_proof",
    "ib_plan",
    "kubernetes_objects",
    "monitoring_plan",
    "monitoring_silence",
    "netbox_write",
    "node_accept",
    "node_boot_fleet",
    "node_firmware_fleet",
    "node_repair",
    "node_repair_ended",
    "report",
    "role_variables",
    "run_check",
    "site_plan",
    "slurm_plan",
    "ufm_partitions",
    "ufm_topology",
    "ufm_unhealthy_ports",
)
IN_BACKGROUND = ("node_image", "vsphere_gpu_vm", "vsphere_host_passthrough")  # by `async`
# The refusal of a task whose only argument is "nonesuch".
UNSUPPORTED = "Unsupported parameters for (None) module: nonesuch."
REFUSED = {
    "cabling_check": "missing required arguments: read",
    "gpu_vm_place": "missing required arguments: path, server, vms",
    "fleet_look": "missing required arguments: path, proofs",
    "gateway_run": "missing required arguments: folder, gateways, inventory, playbook",
    "guest_answers": "missing required arguments: hypervisor",
    "ib_fabric_health": "missing required arguments: blueprint, fabric, path",
    "ib_fabric_proof": "missing required arguments: blueprint, fabric, path",
    "ib_plan": "missing required arguments: blueprint, fabric",
    "kubernetes_objects": UNSUPPORTED,
    "monitoring_plan": UNSUPPORTED,
    "monitoring_silence": "missing required arguments: alertmanagers, hosts",
    "node_accept": "missing required arguments: nodes, pending",
    "node_boot_fleet": "missing required arguments: names, step",
    "node_firmware_fleet": "missing required arguments: names",
    "netbox_write": "missing required arguments: blueprint, netbox_token, netbox_url",
    "node_repair": "missing required arguments: nodes, path, proofs, scheduler",
    "node_repair_ended": "missing required arguments: failed, node, path, step",
    "reached": UNSUPPORTED,
    "report": "missing required arguments: lines",
    "role_variables": UNSUPPORTED,
    "run_check": "missing required arguments: playbook",
    "site_plan": "missing required arguments: blueprint",
    "slurm_plan": "missing required arguments: controllers, partitions",
    "ufm_partitions": "missing required arguments: blueprint, fabric, ufm_url",
    "ufm_topology": "missing required arguments: blueprint, fabric, ufm_url",
    "ufm_unhealthy_ports": "missing required arguments: blueprint, fabric, ufm_url",
}
CHECKED_BY_MODULE = (
    "gpu_host",
    "ib_fabric_info",
    "monitoring_server",
    *(
        "node_boot_hold",
        "node_boot_scripts",
        "node_boot_statement",
        "node_identity",
        "node_image",
        "node_image_keep",
    ),
    *("node_image_rollout", "roce_fabric_drift", "roce_fabric_proof", "roce_path_info", "roce_switch_config"),
    *("vsphere_gpu_vm", "vsphere_host_passthrough"),
)


def action(name):
    return importlib.import_module(f"ansible_collections.sailloft.fleet.plugins.action.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_ansible_runs_an_action_in_check_mode_and_without_a_host_if_it_can(name):
    plugin = action(name).ActionModule
    assert plugin._supports_check_mode is True
    assert plugin._supports_async is (name in IN_BACKGROUND)
    assert plugin._requires_connection is (name not in WITHOUT_CONNECTION)


@pytest.mark.parametrize(("name", "why"), REFUSED.items())
def test_wrong_arguments_are_refused_with_their_names(make, name, why):
    with pytest.raises(AnsibleError) as refused:
        make(action(name), nonesuch=1).run(task_vars={"inventory_hostname": "gpu01"})
    assert why in str(refused.value)


def test_every_action_that_checks_its_arguments_has_its_message():
    assert {*REFUSED, *CHECKED_BY_MODULE} == {*NAMES}
