# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the vsphere modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """The login options of all vsphere modules; VMS and HOSTS are for the modules of virtual machines and of hosts."""

    DOCUMENTATION = r"""
options:
  hostname:
    description:
      - Name or address of vCenter or of an ESXi host.
      - The default is C(VMWARE_HOST) of the environment.
    type: str
  username:
    description:
      - Account. docs/how-to/vsphere.md lists the privileges that it needs.
      - The default is C(VMWARE_USER) of the environment.
    type: str
  password:
    description:
      - Its password, from a vault.
      - The default is C(VMWARE_PASSWORD) of the environment.
    type: str
  port:
    description: Port of the API.
    type: int
    default: 443
  validate_certs:
    description: Verify the certificate. Turn it off for a trial only.
    type: bool
    default: true
  ca_path:
    description:
      - A PEM file with the certificates to trust, instead of those of the system.
      - vCenter provides those of its own authority at C(https://VCENTER/certs/download.zip).
    type: path
requirements:
  - pyvmomi 9.1 or newer where the module runs
notes:
  - Run it on the controller (C(delegate_to=localhost)). Each task logs in once, and logs out at its end.
  - Tested with govmomi's simulator; never tried on a real vCenter.
author:
  - The Sailloft maintainers (@sailloft)
"""

    VMS = r"""
options:
  cluster:
    description: Cluster whose hosts and virtual machines are read. V("") is all of vCenter.
    type: str
    default: ""
  gpu_module_ids:
    description: As O(sailloft.fleet.gpu_domain#module:gpu_module_ids).
    type: dict
    default: {}
  accelerators:
    description: As O(sailloft.fleet.gpu_domain#module:accelerators).
    type: dict
    default: {}
"""

    HOSTS = r"""
options:
  cluster:
    description: Cluster whose hosts are read. V("") is all of vCenter.
    type: str
    default: ""
  hosts:
    description: Names of the hosts. The default is all hosts of O(cluster).
    type: list
    elements: str
    default: []
  accelerators:
    description: As O(sailloft.fleet.gpu_domain#module:accelerators).
    type: dict
    default: {}
"""
