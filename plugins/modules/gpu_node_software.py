#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The software of a GPU node: its releases, archives, pins and files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node_software
short_description: Choose release, archives, pins and files of a GPU node's software
version_added: 0.1.0
description:
  - Decides from one table which versions of NVIDIA's driver, Fabric Manager, DCGM, nvidia-fs and DOCA go together on
    this distribution and kernel. Combinations that their vendors do not support are refused, all at once, before
    anything is written.
  - Writes the archives and their keys, the pins of the versions, the kernel modules to load, the limit of locked
    memory, and the ARP settings of rails on one subnet; and removes those that are no longer needed.
  - Returns the packages that are missing (RV(install)), for M(ansible.builtin.apt) and M(ansible.builtin.dnf). It
    installs none itself.
  - Works in an image too, whose root is a chroot on the host that builds it. There the kernels are those of the image.
  - The role P(sailloft.fleet.gpu_node#role) does the rest.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description: V(absent) removes the files, and returns the packages to remove.
    type: str
    choices: [present, absent]
    default: present
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
    description: Whether the node gets nvidia-fs, the kernel module of GPUDirect Storage.
    type: bool
    default: false
  extra_packages:
    description: Names of other packages of these archives, such as V(perftest), in any version.
    type: list
    elements: str
    default: []
  memlock_unlimited:
    description: Whether users and services may lock all memory, as RDMA needs.
    type: bool
    default: true
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
"""

EXAMPLES = r"""
- name: Choose the newest recommended release, with an archive of the site
  sailloft.fleet.gpu_node_software:
    driver: 595.91.07
    repositories:
      - name: cuda
        url: https://mirror.example/cuda/ubuntu2404/x86_64
        key: "{{ lookup('ansible.builtin.file', 'cuda.asc') }}"
        fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
  register: software

- name: Install what is missing
  ansible.builtin.apt:
    name: "{{ software.install }}"
    allow_downgrade: true
    update_cache: true
  when: software.install | length > 0
"""

RETURN = r"""
package_manager:
  description: V(apt) or V(dnf).
  returned: success
  type: str
install:
  description: The missing packages, each with the pattern of its version.
  returned: when O(state=present)
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
  returned: when O(state=present)
  type: dict
archives_changed:
  description: Whether the package lists have to be fetched again.
  returned: success
  type: bool
driver:
  description: The version of the driver.
  returned: when O(state=present)
  type: str
fabric:
  description: V(none), V(nvswitch) or V(nvlink5).
  returned: when O(state=present)
  type: str
services:
  description: The services to enable, in order.
  returned: when O(state=present)
  type: list
  elements: str
kernels:
  description: The kernels that need modules.
  returned: when O(state=present)
  type: list
  elements: str
modules_missing:
  description: The kernels without modules of this driver, one line each.
  returned: when O(state=present)
  type: list
  elements: str
loaded:
  description: The version of the driver that runs; null if none does.
  returned: when O(state=present)
  type: str
reboot_required:
  description: Whether the machine has NVIDIA GPUs, and another driver than RV(driver) or none runs.
  returned: when O(state=present)
  type: bool
secure_boot:
  description: Whether Secure Boot is on; V(false) in an image.
  returned: when O(state=present)
  type: bool
signing_key:
  description: Where DKMS of this distribution looks for C(key) and C(certificate).
  returned: when O(state=present)
  type: dict
notes:
  description: Notes for the user, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.request import (
    AUTO,
    DKMS,
    DMABUF,
    DOCA,
    INBOX,
    NONE,
    NVLINK5,
    NVSWITCH,
    PEERMEM,
    PRECOMPILED,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    texts = {"type": "list", "elements": "str", "default": []}
    repository = {
        "name": {"type": "str", "required": True},
        "url": {"type": "str", "required": True},
        "suite": {"type": "str", "default": "/"},
        "components": texts,
        # This is a public key.
        "key": {"type": "str", "required": True, "no_log": False},
        "fingerprints": {"type": "list", "elements": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "driver": {"type": "str"},
            "modules": {"type": "str", "choices": [DKMS, PRECOMPILED], "default": DKMS},
            "gpudirect": {"type": "str", "choices": [DMABUF, PEERMEM, NONE], "default": DMABUF},
            "rdma": {"type": "str", "choices": [INBOX, DOCA], "default": INBOX},
            "fabric": {"type": "str", "choices": [AUTO, NONE, NVSWITCH, NVLINK5], "default": AUTO},
            "dcgm": {"type": "bool", "default": True},
            "storage": {"type": "bool", "default": False},
            "extra_packages": texts,
            "memlock_unlimited": {"type": "bool", "default": True},
            "rails_on_one_subnet": {"type": "bool", "default": False},
            "signing": {"type": "bool", "default": False},
            "repositories": {"type": "list", "elements": "dict", "default": [], "options": repository},
        },
        supports_check_mode=True,
    )
    system, image = System(), in_chroot()
    state = module.params.pop("state")

    def work() -> Outcome:
        if state == "absent":
            return ensure.remove(system, image, module.check_mode)
        return ensure.ensure(system, module.params, image, module.check_mode)

    finish_on_host(module, work, live=False)


if __name__ == "__main__":
    main()
