#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The host's half of the RoCE policy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_nic
short_description: Bring the RoCE NICs of a host to the fabric's policy, now and at every boot
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Sets, on all named NICs of a host in one call, the trust in DSCP, DSCP to priority, priority to traffic class, the
    scheduler (ETS for RoCE, strict for CNPs), PFC, ingress buffers, the ECN notification and reaction points, the DSCP
    of CNPs, the ToS byte of RDMA-CM and of the device, and the MTU.
  - All NICs are planned before the first is touched. PFC comes on last and goes off first. What was written is read
    back.
  - The DCB part goes through C(dcb) of iproute2, or else through the vendor's C(mlnx_qos); all other parts through the
    kernel's files. C(mlnx_qos) was written from its source and has not been tried on such a NIC.
  - A VF has no port, so that it gets the ToS bytes and the MTU only; its packets' priority follows from what its
    physical function trusts. Where that is on this host, is not named too and does not trust DSCP, the VF is refused.
  - What a driver does not offer is reported in RV(cannot). Where the policy would not hold without it, the call fails.
  - For the boot it saves the policy (C(/etc/sailloft/roce_host.json)), its own code
    (C(/usr/lib/sailloft/roce_host.pyz)) and a systemd unit (C(sailloft-roce-host.service)) that runs the one on the
    other.
options:
  policy:
    description: The fabric's C(roce_policy), or what differs from its defaults.
    type: dict
    default: {}
  nics:
    description:
      - By RDMA device (V(mlx5_0)) what is to be known of it. C(speed_gbit_s) is its port's; C(cable_m) the length of
        the cable.
      - With both, each lossless priority gets an ingress buffer of its own, of the size that follows from them. Without
        C(cable_m) the buffers are the driver's own affair.
    type: dict
    required: true
  rdma_class:
    description: The policy's class whose ToS byte RDMA-CM gives; the policy's first, unless told otherwise.
    type: str
  stage:
    description:
      - How far to go. V(all) is the whole policy.
      - V(less_pfc) only ends the pauses of priorities that shall not pause any more. V(settings) is all but the pauses
        of priorities that do not pause yet. These two save nothing for the boot. They are for a fabric whose switches
        come in between; see C(playbooks/fabric_qos.yml).
    type: str
    choices: [all, less_pfc, settings]
    default: all
  restore:
    description:
      - C(nics) and C(saved) as M(sailloft.fleet.roce_nic_info) returned them before a change that is to be taken back.
        Of them, the NICs in O(nics) are brought back to what they had, and so is, with O(stage=all), what is saved for
        the boot. O(policy) is not looked at.
    type: dict
  now:
    description:
      - Whether to bring the settings about now, besides having it done at every boot.
      - V(false) is for an image. The settings' form is checked and they are saved, and the unit is enabled.
    type: bool
    default: true
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
seealso:
  - module: sailloft.fleet.roce_nic_info
"""

EXAMPLES = r"""
- name: Apply the reference policy to two NICs
  sailloft.fleet.roce_nic:
    nics:
      mlx5_0: {speed_gbit_s: 400, cable_m: 5}
      mlx5_1: {speed_gbit_s: 400, cable_m: 5}

- name: Apply a lossy class, and a lossless one for storage
  sailloft.fleet.roce_nic:
    policy:
      classes:
        roce: {mode: lossy, bandwidth_percent: 50}
        storage: {mode: lossless, dscp: 18, traffic_class: 2, bandwidth_percent: 20}
    nics:
      mlx5_0: {}
"""

RETURN = r"""
nics:
  description: By RDMA device, as M(sailloft.fleet.roce_nic_info) returns it (in check mode, as it will be).
  returned: when O(now)
  type: dict
cannot:
  description: By RDMA device and setting, why it cannot have what the policy says.
  returned: when O(now)
  type: dict
  sample: {"mlx5_0": {"forced_tos": "only the vendor's driver (MLNX_OFED, DOCA) has a traffic class of the device"}}
unit:
  description: The systemd unit.
  returned: with O(stage=all)
  type: str
settings_file:
  description: Where the settings are saved.
  returned: with O(stage=all)
  type: str
pending:
  description: Nothing here waits for a boot; always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import LESS_PFC, SETTINGS
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import ensure, persistence


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "policy": {"type": "dict", "default": {}},
            "nics": {"type": "dict", "required": True},
            "rdma_class": {"type": "str"},
            "stage": {"type": "str", "choices": ["all", LESS_PFC, SETTINGS], "default": "all"},
            "restore": {"type": "dict"},
            "now": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    system = System()
    now = module.params["now"]

    stage = module.params["stage"]

    def restore() -> Outcome:
        before = module.params["restore"]
        nics = {name: data for name, data in before["nics"].items() if name in module.params["nics"]}
        done = ensure.restore(system, nics, module.check_mode, stage)
        if stage != "all":
            return done
        if before.get("saved") is None:
            return done.and_then(unit.remove(system, persistence.SERVICE, module.check_mode))
        return done.and_then(unit.ensure(system, persistence.SERVICE, before["saved"], module.check_mode))

    def bring_about() -> Outcome:
        if module.params["restore"]:
            return restore()
        settings = ensure.settings(module.params["policy"], module.params["nics"], module.params["rdma_class"])
        done = ensure.ensure(system, settings, module.check_mode, stage) if now else Outcome()
        if stage != "all":
            return done
        saved = unit.ensure(system, persistence.SERVICE, settings, module.check_mode, running=now)
        return done.and_then(saved)

    finish_on_host(module, bring_about, live=now)


if __name__ == "__main__":
    main()
