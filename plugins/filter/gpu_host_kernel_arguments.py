# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel arguments of the role gpu_host as data, for an image, which has no boot loader to write them to."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_host_kernel_arguments
short_description: Return the kernel arguments that follow from the variables of gpu_host
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns the kernel arguments that the role P(sailloft.fleet.gpu_host#role) sets on a host with these variables. It
    is for an image, which does not set its own kernel arguments.
  - The CPU of a host is not known in advance, so the IOMMU of every vendor is turned on. A kernel ignores the arguments
    for an IOMMU that it does not have.
options:
  _input:
    description:
      - The role's variables. C(gpu_host_iommu), C(gpu_host_hugepages), C(gpu_host_vfio), C(gpu_host_keep_drivers_off)
        and C(gpu_host_kernel_arguments) are used, with the role's defaults; others are
        ignored.
      - C(gpu_host_kernel_arguments_removed) is refused, because an image has only the arguments that are given.
    type: dict
    required: true
"""

EXAMPLES = r"""
# gpu_image: {gpu_host_hugepages: [{node: 0, size_mib: 1024, count: 200}], packages_install: false}
node_image_layers:
  gpu:
    parent: base
    roles:
      - name: sailloft.fleet.gpu_host
        vars: "{{ gpu_image }}"
    # intel_iommu=on iommu=pt default_hugepagesz=1G hugepagesz=1G hugepages=0:200
    kernel_arguments: "{{ gpu_image | sailloft.fleet.gpu_host_kernel_arguments }}"
"""

RETURN = r"""
_value:
  description: The arguments, in the order that the kernel needs.
  type: list
  elements: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean

PREFIX = "gpu_host_"


def gpu_host_kernel_arguments(variables: Any) -> list[str]:
    """Return the kernel arguments for the role's ``variables``. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.host import wanted
    from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
    from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments

    if not isinstance(variables, dict):
        raise AnsibleFilterError(
            f"gpu_host_kernel_arguments: got {type(variables).__name__}, expected a dict of gpu_host's variables"
        )
    options = wanted.options()
    host = {name: variables.get(PREFIX + name, option["default"]) for name, option in options.items()}
    if host["kernel_arguments_removed"]:
        raise AnsibleFilterError(
            "gpu_host_kernel_arguments: gpu_host_kernel_arguments_removed lists arguments to remove, but an image has "
            "only the arguments that it is given: leave it out"
        )
    try:
        # boolean() is needed because a value from the command line (-e) is text.
        host.update({name: boolean(host[name]) for name, option in options.items() if option["type"] == "bool"})
        # ACS and AVIC depend on the host.
        host.update(acs="unchanged", kernel_settings={})
        return kernel_arguments.for_any_host(wanted.kernel_arguments(host))
    except (HostError, TypeError) as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_host_kernel_arguments": gpu_host_kernel_arguments}
