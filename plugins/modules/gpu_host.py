#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The whole state of a GPU host, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host
short_description: Configure a host of GPU virtual machines, or compare it with its settings
version_added: 0.1.0
description:
  - Checks the BIOS and the packages, then sets kernel arguments, NIC firmware, and the settings that a reboot loses,
    now and at every boot, with the code of M(sailloft.fleet.bios_info), M(sailloft.fleet.kernel_arguments),
    M(sailloft.fleet.nic_firmware) and M(sailloft.fleet.gpu_host_boot). In check mode it compares all of these.
  - It installs no packages and does not reboot. If packages are missing, nothing is changed. If kernel arguments or
    firmware need a reboot that is allowed, the settings that it loses are left to the call after it.
  - An option that is not given has the value of the variable of the role P(sailloft.fleet.gpu_host#role) of the same
    name, like C(gpu_host_iommu), or the role's default. The action plugin reads the variables, because Ansible would
    compile a template for each option in the process of each host, which takes longer than the call.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description: V(absent) restores all former values, as M(sailloft.fleet.gpu_host_restore).
    type: str
    choices: [present, absent]
    default: present
  parts:
    description: >-
      What is compared and set: V(bios), V(packages), V(kernel_arguments), V(nic_firmware), and V(settings), which are
      those of M(sailloft.fleet.gpu_host_boot). In an image only V(settings).
    type: list
    elements: str
    choices: [bios, packages, kernel_arguments, nic_firmware, settings]
    default: [bios, packages, kernel_arguments, nic_firmware, settings]
  now:
    description: V(false) is for an image, as O(sailloft.fleet.gpu_host_boot#module:now). It is the default in one.
    type: bool
    default: true
  reboot_ok:
    description: Whether the caller reboots the host if RV(reboot_due), and calls again.
    type: bool
    default: false
  outcomes:
    description: Whether to return the outcome of each part, for a proof.
    type: bool
    default: false
  packages:
    description: The packages that must be installed, a list by C(os_family) of Ansible (Debian, RedHat).
    type: dict
    default: {}
  sockets:
    description: The systemd units that must be enabled and active, a list by C(os_family) of Ansible.
    type: dict
    default: {}
  bios_required:
    description: As O(sailloft.fleet.bios_info#module:required).
    type: list
    elements: str
    choices: [extensions, iommu, interrupt_remapping, acs, sriov]
    default: [extensions, iommu]
  iommu:
    description: As O(sailloft.fleet.kernel_arguments#module:iommu); V(unchanged) leaves its arguments as they are.
    type: str
    choices: [passthrough, translated, unchanged]
    default: passthrough
  hugepages:
    description: As O(sailloft.fleet.hugepages#module:pages).
    type: list
    elements: dict
    default: []
  kernel_arguments:
    description: As O(sailloft.fleet.kernel_arguments#module:arguments).
    type: list
    elements: str
    default: []
  kernel_arguments_removed:
    description: As O(sailloft.fleet.kernel_arguments#module:remove).
    type: list
    elements: str
    default: []
  sriov:
    description: As O(sailloft.fleet.sriov#module:functions).
    type: list
    elements: dict
    default: []
  vfio:
    description: As O(sailloft.fleet.vfio_binding#module:devices).
    type: list
    elements: str
    default: []
  vfio_released:
    description: As O(sailloft.fleet.vfio_binding#module:release).
    type: list
    elements: str
    default: []
  keep_drivers_off:
    description: As O(sailloft.fleet.vfio_binding#module:keep_drivers_off).
    type: bool
    default: true
  pci:
    description: As O(sailloft.fleet.pci_tuning#module:settings).
    type: list
    elements: dict
    default:
      - devices: [gpu, nvswitch, nic, nvme]
        max_read_request_bytes: 4096
  kernel_settings:
    description: As O(sailloft.fleet.gpu_host_boot#module:kernel_settings).
    type: dict
    default: {governor: performance, numa_balancing: false, ksm: false}
    suboptions:
      governor:
        description: The frequency governor of all CPUs.
        type: str
      idle_exit_latency_us_max:
        description: The longest time in microseconds that a CPU may take to leave an idle state.
        type: int
      numa_balancing:
        description: Whether the kernel moves memory and tasks between NUMA nodes by itself.
        type: bool
      ksm:
        description: Whether the kernel merges equal pages of guests.
        type: bool
      transparent_huge_pages:
        description: Which memory gets transparent huge pages.
        type: str
        choices: [always, madvise, never]
      avic:
        description: Whether KVM uses the virtual interrupt controller of AMD's CPUs.
        type: bool
  acs:
    description: >-
      V(auto) computes the ACS bits of each port for virtual machines, V(bare_metal) those without them, V(unchanged)
      does not change ACS. A list sets it by hand, as O(sailloft.fleet.pci_tuning#module:settings) with C(devices) and
      C(acs).
    type: raw
    default: auto
  acs_devices:
    description: The GPUs and NICs on whose ports V(auto) and V(bare_metal) set ACS.
    type: list
    elements: str
    default: [gpu, nic]
  acs_at_boot:
    description: Whether the kernel sets the computed ACS bits at boot, if it can.
    type: bool
    default: true
  nic_firmware_by_family:
    description: >-
      Whether NICs get O(sailloft.fleet.nic_firmware#module:by_family) for O(acs_devices) and the purpose of O(acs).
    type: bool
    default: true
  nic_firmware:
    description: As O(sailloft.fleet.nic_firmware#module:settings).
    type: list
    elements: dict
    default: []
  whole_host:
    description: >-
      The settings of a virtual machine with the whole host (O(sailloft.fleet.gpu_domain#module:whole_host)). Where they
      are empty, O(hugepages), O(sriov) and O(vfio) follow from it and the topology. The variable is
      C(gpu_vm_whole_host) of the role P(sailloft.fleet.gpu_vm#role), if C(gpu_vm_domains) is empty. Not in an image.
    type: dict
    default: {}
  gpu_domain:
    description: >-
      The arguments of M(sailloft.fleet.gpu_domain), in check mode only. If nothing else differs, the virtual machines
      are compared in the same call.
    type: dict
  compare:
    description:
      - Compare with the variables of these roles in check mode, and return RV(held). The call then fails neither
        because of the host nor because of a variable. The role itself reports the error.
    type: list
    elements: str
    choices: [gpu_host, gpu_vm]
"""

EXAMPLES = r"""
- name: Configure the host by the variables of the role gpu_host
  sailloft.fleet.gpu_host:
  register: configured

- name: Find out whether the roles gpu_host and gpu_vm have something to do
  sailloft.fleet.gpu_host:
    compare: [gpu_host, gpu_vm]
  register: compared
"""

RETURN = r"""
missing:
  description: Packages and sockets that are missing. If there are any, nothing else was compared or changed.
  returned: unless the call failed early, and without O(compare)
  type: list
  elements: str
notes:
  description: Limits of the host that the user must know, one line each.
  returned: as RV(missing)
  type: list
  elements: str
failures:
  description: Settings of firmware and running system that could not be made, with their causes. All others are made.
  returned: as RV(missing)
  type: list
  elements: str
pending:
  description: Changes that take effect at the next boot only, one line each.
  returned: as RV(missing)
  type: list
  elements: str
reboot_required:
  description: Whether a setting takes effect only at the next boot.
  returned: as RV(missing)
  type: bool
reboot_due:
  description: Whether the caller is to reboot the host now and call again.
  returned: as RV(missing)
  type: bool
outcomes:
  description: >-
    The results of M(sailloft.fleet.kernel_arguments), M(sailloft.fleet.nic_firmware) and, as C(settings),
    M(sailloft.fleet.gpu_host_boot).
  returned: with O(outcomes)
  type: dict
virtual_machines:
  description: C(differences), one line each, and RV(domains).
  returned: if they were compared, without O(compare)
  type: dict
held:
  description: By role, whether it would neither change nor report anything.
  returned: with O(compare)
  type: dict
  sample: {"gpu_host": true, "gpu_vm": false}
differences:
  description: By role, the reasons why it has to run, one line each.
  returned: with O(compare)
  type: dict
  sample: {"gpu_host": [], "gpu_vm": ["train-001: start"]}
unread:
  description: Why the host was not compared; empty if it was. RV(differences) has the reason, too.
  returned: with O(compare)
  type: str
domains:
  description:
    - C(name) and C(nccl_topology) of each virtual machine, as M(sailloft.fleet.gpu_domain) returns them; empty if they
      were not compared. Returning the whole plan would cost the controller more time than the comparison.
  returned: with O(compare)
  type: list
  elements: dict
time:
  description: The time of the comparison on the controller, in seconds since 1970.
  returned: with O(compare)
  type: float
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common import respawn
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host import converge, wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import (
    finish_on_gpu_host,
    finish_on_host,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import pinned_cpus
from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge as virtual_machines
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.client import URI, run_with_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import gpu_domain_options


def compare_domains(system: System, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return ``domains`` (names and NCCL topologies) and ``differences`` for the ``arguments`` of gpu_domain."""
    try:
        validated = ArgumentSpecValidator(gpu_domain_options(URI)).validate(arguments)
    except TypeError as error:  # as in options.module_of
        return {"domains": [], "differences": [str(error)]}
    if validated.error_messages:
        return {"domains": [], "differences": validated.error_messages}
    try:
        options = validated.validated_parameters
        topologies, differences, pinned = virtual_machines.compare(options)
        host = pinned_cpus.of_options(system, options, pinned, check=True)
        return {"domains": topologies, "differences": differences + list(host.after)}
    except SailloftError as error:
        return {"domains": [], "differences": [str(error)]}


def ensure(system: System, params: dict[str, Any], check: bool) -> Outcome:
    """Bring the host to its state; in check mode also compare its virtual machines, if the host has no difference."""
    outcome = converge.ensure(system, params, check)
    if params["gpu_domain"] is not None and converge.is_held(outcome):
        outcome.facts["virtual_machines"] = compare_domains(system, params["gpu_domain"])
    return outcome


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **wanted.options(),
            "gpu_domain": {"type": "dict"},
            # Only the action plugin of the same name uses it.
            "compare": {"type": "list", "elements": "str", "choices": ["gpu_host", "gpu_vm"]},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["gpu_domain"] is not None:
        if not module.check_mode:
            module.fail_json(msg="gpu_domain is compared in check mode only; use the module gpu_domain to change it")
        run_with_binding(respawn)
    system = System()
    if params["state"] == "absent":
        # A host that cannot have virtual machines is restored, too.
        finish_on_host(module, lambda: converge.ensure(system, params, module.check_mode), live=params["now"])
    finish_on_gpu_host(module, system, lambda: ensure(system, params, module.check_mode), live=params["now"])


if __name__ == "__main__":
    main()
