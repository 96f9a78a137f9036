#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The state of a GPU node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node
short_description: Set up a GPU node, or compare it with its settings
version_added: 0.1.0
description:
  - Decides from one table which versions of NVIDIA's driver, Fabric Manager, DCGM, nvidia-fs and DOCA go together on
    this distribution and kernel. Combinations that their vendors do not support are refused, all at once, before
    anything is written.
  - Writes the archives and their keys, the pins of the versions, the kernel modules to load, the limit of locked
    memory, and the ARP settings of rails on one subnet; and removes those that are no longer needed.
  - Installs no packages and does not reboot. If packages or modules are missing (RV(install), RV(modules_missing)), the
    caller installs them and calls again; the rest follows in that call.
  - Enables the services, turns MIG off, locks the clocks of all GPUs and sets the rings of ConnectX and BlueField
    interfaces, and repeats these settings at every boot, with the same code, after the persistence daemon has started.
    For the boot it saves the settings (C(/etc/sailloft/gpu_node.json)), its own code
    (C(/usr/lib/sailloft/gpu_node.pyz)) and a systemd unit (C(sailloft-gpu-node.service)).
  - On bare metal it sets the IOMMU, ACS by port and MaxReadReq, now and at every boot, as
    M(sailloft.fleet.kernel_arguments) and M(sailloft.fleet.gpu_host_boot).
  - If the driver is not loaded, for example after its installation, MIG and clocks wait for the next boot
    (RV(pending)).
  - Works in an image too, whose root is a chroot on the host that builds it. There the kernels are those of the image,
    and settings are only saved for the boot.
  - The role P(sailloft.fleet.gpu_node#role) does the rest.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description: >-
      V(absent) removes the files and the unit, and returns the packages to remove. Settings stay until the next boot.
    type: str
    choices: [present, absent]
    default: present
  parts:
    description: >-
      What is compared and set: V(software) with its services, V(settings) of MIG, clocks, rings and ARP, and V(pci),
      which are O(iommu), O(acs) and O(max_read_request_bytes).
    type: list
    elements: str
    choices: [software, settings, pci]
    default: [software, settings]
  driver:
    description:
      - The version of the driver, which selects the row of the table (docs/how-to/gpu-nodes.md). By default the newest
        that is recommended.
    type: str
  modules:
    description:
      - The open kernel modules, built by DKMS; or built and signed by the distribution for each of its kernels
        (Ubuntu).
    type: str
    choices: [dkms, precompiled]
    default: dkms
  gpudirect:
    description: How NICs reach GPU memory. NVIDIA recommends V(dmabuf). V(peermem) needs O(rdma=doca).
    type: str
    choices: [dmabuf, peermem, none]
    default: dmabuf
  rdma:
    description: The kernel's own RDMA drivers, or those of DOCA-Host.
    type: str
    choices: [inbox, doca]
    default: inbox
  fabric:
    description:
      - Fabric Manager of NVSwitch boards. V(auto) looks for NVSwitches on the PCI bus, and for functions that manage
        those of boards with NVLink 5 (HGX B200, B300). An image has no bus, so set the option for it.
    type: str
    choices: [auto, none, nvswitch, nvlink5]
    default: auto
  dcgm:
    description: Whether the node gets DCGM.
    type: bool
    default: true
  storage:
    description:
      - How GPUDirect Storage reaches local NVMe drives. V(nvidia_fs) installs and loads the kernel module nvidia-fs,
        which network file systems need too. V(p2pdma) uses the kernel's own P2PDMA and sets what it needs; V(pci) of
        O(parts) with it sets the kernel argument C(nvme_core.multipath=N).
      - Both write C(/etc/cufile.json). M(sailloft.fleet.gpu_storage_info) tells what the node allows.
    type: str
    choices: [none, p2pdma, nvidia_fs]
    default: none
  storage_settings:
    description:
      - Further settings of C(cufile.json), each by its full path, such as C(fs.gpfs.gds_write_support). Paths that
        cuFile does not know are refused.
      - V(rails) as a list of addresses (C(properties.rdma_dev_addr_list)) stands for the IPv4 addresses of the node's
        RDMA interfaces, by rail.
    type: dict
    default: {}
  extra_packages:
    description: Names of other packages of these archives, such as V(perftest), in any version.
    type: list
    elements: str
    default: []
  rails_on_one_subnet:
    description: Whether several NICs have addresses of one subnet, so that each must answer for its own address only.
    type: bool
    default: false
  signing:
    description: Whether DKMS has a key that signs its modules, and whose certificate is enrolled in the firmware.
    type: bool
    default: false
  repositories:
    description: The archives that have the packages.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: A short name for files.
        type: str
        required: true
      url:
        description: The URL.
        type: str
        required: true
      suite:
        description: The suite of an apt archive; V(/) is a flat one, as NVIDIA's are.
        type: str
        default: /
      components:
        description: The components of an apt archive that is not flat.
        type: list
        elements: str
        default: []
      key:
        description: The armored public key that signs the archive (apt) or its packages (dnf).
        type: str
        required: true
      fingerprints:
        description: The fingerprints of the keys in it, taken from its owner; another key is refused.
        type: list
        elements: str
        required: true
  mig_off:
    description: Whether to turn MIG off on all GPUs that have it.
    type: bool
    default: true
  clocks_mhz:
    description: The lowest and the highest clock of the GPUs in MHz. Empty leaves them unchanged.
    type: list
    elements: int
    default: []
  ring_entries:
    description:
      - Entries of receive and transmit rings, limited to the NIC's maximum. 0 leaves them unchanged.
    type: int
    default: 0
  iommu:
    description: As O(sailloft.fleet.kernel_arguments#module:iommu); V(unchanged) leaves its arguments as they are.
    type: str
    choices: [passthrough, translated, unchanged]
    default: unchanged
  acs:
    description: V(bare_metal) computes the ACS bits of each port for GPUDirect without virtual machines.
    type: str
    choices: [bare_metal, unchanged]
    default: unchanged
  max_read_request_bytes:
    description: MaxReadReq of GPUs, NICs, NVMe drives and NVSwitches. 0 leaves it unchanged.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Choose the newest recommended release, with an archive of the site
  sailloft.fleet.gpu_node:
    driver: 595.91.07
    repositories:
      - name: cuda
        url: https://mirror.example/cuda/ubuntu2404/x86_64
        key: "{{ lookup('ansible.builtin.file', 'cuda.asc') }}"
        fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
    clocks_mhz: [1980, 1980]
    ring_entries: 8192
  register: node

- name: Install what is missing; then call the module again
  ansible.builtin.apt:
    name: "{{ node.install }}"
    allow_downgrade: true
    update_cache: true
  when: node.install | length > 0

- name: Set the PCI bus of a bare-metal node
  sailloft.fleet.gpu_node:
    parts: [pci]
    iommu: passthrough
    acs: bare_metal
    max_read_request_bytes: 4096
"""

RETURN = r"""
package_manager:
  description: V(apt) or V(dnf).
  returned: success
  type: str
install:
  description: The missing packages, each with the pattern of its version.
  returned: with V(software) of O(parts)
  type: list
  elements: str
  sample: ["nvidia-kernel-open-dkms=595.91.07*"]
remove:
  description: The installed packages to remove.
  returned: when O(state=absent)
  type: list
  elements: str
versions:
  description: The installed version of each package of the plan; null if it is not installed.
  returned: with V(software) of O(parts)
  type: dict
archives_changed:
  description: Whether the package lists have to be fetched again.
  returned: success
  type: bool
driver:
  description: The version of the driver.
  returned: with V(software) of O(parts)
  type: str
fabric:
  description: V(none), V(nvswitch) or V(nvlink5).
  returned: with V(software) of O(parts)
  type: str
services:
  description: The services that are enabled, in order.
  returned: with V(software) of O(parts)
  type: list
  elements: str
kernels:
  description: The kernels that need modules.
  returned: with V(software) of O(parts)
  type: list
  elements: str
modules_missing:
  description: The kernels without modules of this driver, one line each.
  returned: with V(software) of O(parts)
  type: list
  elements: str
loaded:
  description: The version of the driver that runs; null if none does.
  returned: with V(software) of O(parts)
  type: str
reboot_required:
  description: >-
    Whether the machine has NVIDIA GPUs, and another driver than RV(driver) or none runs; or whether kernel arguments
    take effect only at the next boot.
  returned: when O(state=present)
  type: bool
secure_boot:
  description: Whether Secure Boot is on; V(false) in an image.
  returned: with V(software) of O(parts)
  type: bool
signing_key:
  description: Where DKMS of this distribution looks for C(key) and C(certificate).
  returned: with V(software) of O(parts)
  type: dict
notes:
  description: Notes for the user, one line each.
  returned: success
  type: list
  elements: str
rings:
  description: The sizes of RX and TX rings by interface.
  returned: with O(ring_entries), outside of images
  type: dict
gpus:
  description: The GPUs.
  returned: when their driver is loaded
  type: list
  elements: str
unit:
  description: The systemd unit.
  returned: with V(settings) of O(parts), if nothing is missing
  type: str
settings_file:
  description: The file of the saved settings.
  returned: with V(settings) of O(parts), if nothing is missing
  type: str
pending:
  description: Changes that take effect at the next boot only, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=converge.options(), supports_check_mode=True)
    finish_on_host(module, lambda: converge.ensure(System(), module.params, in_chroot(), module.check_mode), live=False)


if __name__ == "__main__":
    main()
