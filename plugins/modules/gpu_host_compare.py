#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_compare
short_description: Compare a GPU host with its settings and virtual machines, in one call
version_added: 0.1.0
description:
  - Reports whether M(sailloft.fleet.bios_info), M(sailloft.fleet.kernel_arguments), M(sailloft.fleet.nic_firmware),
    M(sailloft.fleet.gpu_host_boot) and M(sailloft.fleet.gpu_domain) would change or report anything on a host, and
    whether a package is missing. Every setting is read; nothing is changed.
  - It does not fail because of a setting. A setting that one of these modules would refuse or could not read is a
    difference; the module itself then reports the cause.
  - M(sailloft.fleet.gpu_server_compare) calls it with the arguments that follow from the variables of the roles.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  packages:
    description:
      - C(installed), the names of packages, and C(sockets), the units that are to be enabled and active, each a list by
        C(os_family) of Ansible (Debian, RedHat).
    type: dict
  bios_info:
    description: The arguments of M(sailloft.fleet.bios_info).
    type: dict
  kernel_arguments:
    description: The arguments of M(sailloft.fleet.kernel_arguments).
    type: dict
  nic_firmware:
    description: The arguments of M(sailloft.fleet.nic_firmware).
    type: dict
  gpu_host_boot:
    description: The arguments of M(sailloft.fleet.gpu_host_boot).
    type: dict
  gpu_domain:
    description: The arguments of M(sailloft.fleet.gpu_domain).
    type: dict
"""

EXAMPLES = r"""
- name: Compare the host with its settings
  sailloft.fleet.gpu_host_compare:
    bios_info:
      required: [extensions, iommu]
    kernel_arguments:
      iommu: passthrough
    nic_firmware:
      settings: []
    gpu_host_boot:
      vfio_binding:
        devices: [gpu]
  register: compared
"""

RETURN = r"""
differences:
  description:
    - For each option that is given, why its module has to run, one line each; empty if there is no difference.
    - The first option with a difference ends the comparison, because the role runs then. The options after it are not
      compared and have no entry.
  returned: success
  type: dict
  sample: {"bios_info": [], "gpu_host_boot": ["hugepages: node 0, 1024 MiB"]}
domains:
  description:
    - C(name) and C(nccl_topology) of each virtual machine, as M(sailloft.fleet.gpu_domain) returns them; empty if that
      would fail, or was not compared. Returning the whole plan would cost the controller more time than the comparison.
  returned: success
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common import respawn
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import pinned_cpus
from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.client import URI, run_with_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import gpu_domain_options


def of_host(system: System, given: dict[str, Any]) -> dict[str, list[str]]:
    """Return the differences of the given parts of ``compare.PARTS``, up to the first part that has any."""
    found: dict[str, list[str]] = {}
    for name, options in compare.options().items():
        if given.get(name) is None:
            continue
        validated = ArgumentSpecValidator(options).validate(given[name])
        found[name] = validated.error_messages or compare.differences(name, system, validated.validated_parameters)
        if found[name]:
            break
    return found


def of_domains(system: System, given: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the guests' names and topologies, and the differences, for the arguments ``given`` of gpu_domain."""
    try:
        validated = ArgumentSpecValidator(gpu_domain_options(URI)).validate(given)
    except TypeError as error:  # as in options.module_of
        return [], [str(error)]
    if validated.error_messages:
        return [], validated.error_messages
    try:
        options = validated.validated_parameters
        topologies, found, pinned = converge.compare(options)
        return topologies, found + list(pinned_cpus.of_options(system, options, pinned, check=True).after)
    except SailloftError as error:
        return [], [str(error)]


def compared(system: System, given: dict[str, Any]) -> Outcome:
    """Return the differences from ``given`` (arguments by option) as facts."""
    facts: dict[str, Any] = {"differences": of_host(system, given), "domains": []}
    if any(facts["differences"].values()):
        return Outcome(facts=facts)
    if given.get("gpu_domain") is not None:
        facts["domains"], facts["differences"]["gpu_domain"] = of_domains(system, given["gpu_domain"])
    return Outcome(facts=facts)


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={name: {"type": "dict"} for name in [*compare.PARTS, "gpu_domain"]},
        supports_check_mode=True,
    )
    if module.params["gpu_domain"] is not None:
        run_with_binding(respawn)
    system = System()
    finish_on_gpu_host(module, system, lambda: compared(system, module.params))


if __name__ == "__main__":
    main()
