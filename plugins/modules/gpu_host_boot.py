#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Apply all settings that a reboot loses, now and at every boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_boot
short_description: Set huge pages, VFs, bindings, PCI and kernel settings of a GPU host, now and at every boot
version_added: 0.1.0
description:
  - Does in one call what M(sailloft.fleet.hugepages), M(sailloft.fleet.sriov), M(sailloft.fleet.vfio_binding) and
    M(sailloft.fleet.pci_tuning) do, in this order, then sets O(kernel_settings), and repeats all of it at every boot,
    before libvirt starts its guests.
  - All parts are planned before the first change, so a mistake in the settings is reported before anything is changed.
    If the host or its kernel refuses one part (lockdown, too few free pages, a VF in use), the other parts are still
    applied and saved; the call then fails and names each failure.
  - For the boot it saves the settings (C(/etc/sailloft/gpu_host.json)), its own code
    (C(/usr/lib/sailloft/gpu_host.pyz)) and a systemd unit (C(sailloft-gpu-host.service)) that runs this code with these
    settings. The code at boot is the code of this call; there is no second implementation.
  - A part that is not given is not changed, and is no longer applied at boot. If a part fails, its earlier saved
    settings stay saved.
  - In an image, whose root is a chroot on the host that builds it, only V(now=false) works. All other modules that read
    or change the running kernel fail there, because it is the kernel of the build host.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  hugepages:
    description: The arguments of M(sailloft.fleet.hugepages).
    type: dict
  sriov:
    description: The arguments of M(sailloft.fleet.sriov).
    type: dict
  vfio_binding:
    description: The arguments of M(sailloft.fleet.vfio_binding).
    type: dict
  pci_tuning:
    description: The arguments of M(sailloft.fleet.pci_tuning).
    type: dict
  kernel_settings:
    description:
      - Settings of the running kernel. A setting that is not given is not changed; one that this host does not have is
        reported as not applicable.
    type: dict
    version_added: 0.1.0
    suboptions:
      governor:
        description: The frequency governor of all CPUs, like V(performance).
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
        description:
          - Let KVM use the virtual interrupt controller of AMD's CPUs. It is a kernel argument
            (O(sailloft.fleet.kernel_arguments#module:avic)); here the running value is compared.
          - Not applicable on other CPUs, on Zen 1 and 2 before Linux 6.18 (erratum 1235), and without x2AVIC before
            Linux 6.0.
        type: bool
  now:
    description:
      - Apply the settings now, in addition to every boot.
      - V(false) is for an image. The form of the settings is checked, they are saved, and the unit is enabled; nothing
        of the running kernel is read or changed. Each host that boots the image detects its own devices.
    type: bool
    default: true
    version_added: 0.1.0
"""

EXAMPLES = r"""
- name: Apply the paper's settings, now and after every boot
  sailloft.fleet.gpu_host_boot:
    hugepages:
      pages:
        - {node: 0, size_mib: 1024, count: 200}
        - {node: 1, size_mib: 1024, count: 200}
    sriov:
      functions:
        - {devices: ["15b3:1021"], count: 8, drivers_autoprobe: false}
    vfio_binding:
      devices: [gpu, nvswitch]
    pci_tuning:
      settings:
        - {devices: [gpu, nic, nvme], max_read_request_bytes: 4096}

- name: Write them into an image, for every host that boots it
  sailloft.fleet.gpu_host_boot:
    now: false
    pci_tuning:
      settings:
        - {devices: [gpu, nic, nvme], max_read_request_bytes: 4096}
"""

RETURN = r"""
outcomes:
  description: The result of each module by its name; empty without O(now), and for a module that failed early.
  returned: when the settings are valid
  type: dict
failures:
  description: The failures with their causes, one line each.
  returned: when the settings are valid
  type: list
  elements: str
unit:
  description: The systemd unit.
  returned: success
  type: str
settings_file:
  description: The file of the saved settings.
  returned: success
  type: str
pending:
  description: Changes that take effect at the next boot only, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo.record import Remembering


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=now_and_at_boot.options(), supports_check_mode=True)
    system = Remembering(System())
    finish_on_gpu_host(
        module,
        system,
        lambda: now_and_at_boot.ensure(system, module.params, module.check_mode),
        live=module.params["now"],
    )


if __name__ == "__main__":
    main()
