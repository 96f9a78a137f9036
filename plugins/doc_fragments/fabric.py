# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules that compare readings of a fabric with its policy share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the policy and of the inventory."""

    DOCUMENTATION = r"""
options:
  policy:
    description: The policy, as in the variable C(roce_policy). Settings that it omits have their defaults.
    type: dict
    default: {}
  switches:
    description:
      - All switches by name, as M(sailloft.fleet.roce_switch_config) takes them. The links of the fabric follow from
        C(peer) of their ports.
    type: dict
    required: true
  asics:
    description: ASICs as M(sailloft.fleet.roce_switch_config) takes them.
    type: dict
  hosts:
    description:
      - C(roce_host_nics) by host, as M(sailloft.fleet.roce_switch_config) takes it. A NIC without C(cable_m) keeps the
        ingress buffers of its driver, so there is no claim about its own buffer for RoCE. A NIC that is missing here
        has speed and cable of the switch's port at the other end.
    type: dict
  guests:
    description: >-
      By guest, the host that it runs on (C(gpu_guest_host)), or names of guests. The NIC of a guest, with the MAC of
      a VF or NIC of that host, is followed over its physical function to the port.
    type: dict
    default: {}
"""
