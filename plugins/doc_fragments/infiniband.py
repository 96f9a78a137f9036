# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules of InfiniBand fabrics share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options from which a fabric is planned, and those of a UFM."""

    DOCUMENTATION = r"""
options:
  blueprint:
    description: The file of the blueprint.
    type: path
    required: true
  fabric:
    description: The name of the fabric, as its links in the blueprint have it.
    type: str
    required: true
  guids:
    description:
      - The GUIDs of the inventory. By host, the port GUID of each RDMA device by its name, and by switch its node GUID.
        Null counts as left out. A number of 16 decimal digits or less needs quotes.
      - Where O(readings) or O(found) have another GUID, this one is taken, and the difference is reported.
    type: dict
    default: {}
  found:
    description: >-
      What C(ibnetdiscover -p) printed, as RV(sailloft.fleet.cabling_info#module:infiniband) has it, for the GUIDs.
      Switches without a name of their own need C(--node-name-map) with the planned C(node_names).
    type: list
    elements: str
    default: []
  readings:
    description:
      - The files that M(sailloft.fleet.ib_fabric_info) wrote, by host. One of them has the subnet, those of further
        managers' hosts only the managers' files.
    type: dict
    default: {}
  subnet_manager:
    description: V(opensm) is that of linux-rdma. V(nvidia) is NVIDIA's, of MLNX_OFED, DOCA or UFM.
    type: str
    choices: [nvidia, opensm]
    default: opensm
  managers:
    description: >-
      The HCAs on which subnet managers run, as C(HOST DEVICE), the master first, 15 at most. Each one gets its own
      C(opensm.conf).
    type: list
    elements: str
    default: []
  routing:
    description:
      - The routing engines in the order in which they are tried; V([ftree, updn]) without it, and V([ar_updn]) with
        NVIDIA's subnet manager.
      - If all fail, opensm uses C(minhop), which can have credit loops.
    type: list
    elements: str
  default:
    description:
      - The default partition, 0x7fff. C(membership) of all HCAs is V(full), or V(limited) if there are O(partitions).
        Limited members cannot reach each other. C(ipoib) is V(true).
    type: dict
  partitions:
    description:
      - The partitions by name. C(pkey) is 0x0001 to 0x7ffe, and C(members) is V(full) or V(limited) by group or host.
      - C(ipoib) (V(false)) makes its broadcast group, with C(mtu) in bytes. With C(index0), it has the first place in
        its members' tables, which software uses that does not choose. C(service_level) is that of its paths.
    type: dict
  service_levels:
    description:
      - By number (0 to 15), the virtual C(lane), its C(weight) (V(64)), and whether the lane is C(high) priority.
      - Without it, QoS is left off.
    type: dict
  options:
    description: >-
      Further settings of C(opensm.conf), or other values for those that are planned, except for those with an option
      here. A name that opensm does not have is refused; with NVIDIA's, names are not checked. Log and dumps are planned
      below C(/var/log/opensm/FABRIC).
    type: dict
  directory:
    description: The directory of the files on the managers' hosts.
    type: path
    default: /etc/opensm
"""

    UFM = r"""
options:
  ufm_url:
    description: The URL of UFM, such as C(https://ufm.example.com). A redirection is refused.
    type: str
    required: true
  ufm_username:
    description: The user.
    type: str
  ufm_password:
    description: The password of O(ufm_username).
    type: str
  ufm_token:
    description: A token, instead of user and password.
    type: str
  ca_path:
    description: A file with the certificate of the authority that signed UFM's. The default is the system's.
    type: path
  validate_certs:
    description: Whether to verify the certificate.
    type: bool
    default: true
notes:
  - It was tried with a simulation of the documented API only, never with a UFM.
"""
