# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules for IBM Storage Scale share."""

from __future__ import annotations


class ModuleDocFragment:
    """The request: what the clients of Storage Scale shall have."""

    DOCUMENTATION = r"""
options:
  cluster:
    description: The name of the clients' cluster.
    type: str
    required: true
  file_systems:
    description: File systems of other clusters.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the file system here.
        type: str
        required: true
      mount:
        description: Its mount point.
        type: str
        required: true
      remote_name:
        description: Its name in its own cluster.
        type: str
        required: true
      remote_cluster:
        description: The name of that cluster.
        type: str
        required: true
  caches:
    description: Filesets that AFM fills from buckets of an object storage.
    type: list
    elements: dict
    default: []
    suboptions:
      file_system:
        description: The file system of the fileset, which belongs to this cluster.
        type: str
        required: true
      fileset:
        description: The fileset.
        type: str
        required: true
      endpoint:
        description: The URL of the object storage.
        type: str
        required: true
      bucket:
        description: The bucket.
        type: str
        required: true
      mode:
        description: >-
          The mode of AFM. V(ro) and V(lu) never write to the bucket; V(sw) and V(iw) do, V(iw) beside other writers;
          V(mu) does on command.
        type: str
        choices: [ro, sw, iw, lu, mu]
        default: iw
  rails:
    description: The numbers of the RDMA ports that Scale uses, in the order of their PCI addresses. Empty is all.
    type: list
    elements: int
    default: []
  fabric_per_rail:
    description: Whether the ports of a rail reach only those of the same rail, so that each is a virtual fabric.
    type: bool
    default: false
  gpudirect:
    description: Whether to turn GPUDirect Storage on.
    type: bool
    default: false
  readings:
    description: The result of M(sailloft.fleet.storage_scale_info) of each node, by node.
    type: dict
    required: true
"""
