#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Apply the host's half of the RoCE policy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_nic
short_description: Apply the fabric's policy to the RoCE NICs of a host, now and at every boot
version_added: 0.1.0
description:
  - Sets, on all named NICs of a host in one call, the trust in DSCP, DSCP to priority, priority to traffic class, the
    scheduler (ETS for RoCE, strict for CNPs), PFC, ingress buffers, the ECN notification and reaction points, the DSCP
    of CNPs, the ToS byte of RDMA-CM and of the device, and the MTU.
  - All NICs are planned before the first is changed. PFC is turned on last and off first. Every written setting is read
    back.
  - The DCB part goes through C(dcb) of iproute2, or else through the vendor's C(mlnx_qos); all other parts through the
    kernel's files. C(mlnx_qos) support was written from its source code and has not been tried on such a NIC.
  - A VF has no port, so only its ToS bytes and MTU are set. The priority of its packets depends on the trust setting of
    its physical function. A VF is refused if its physical function is on this host, is not named as well, and does not
    trust DSCP.
  - Settings that a driver does not offer are reported in RV(cannot). The call fails if the policy needs them.
  - For the boot it saves the policy (C(/etc/sailloft/roce_host.json)), its own code
    (C(/usr/lib/sailloft/roce_host.pyz)) and a systemd unit (C(sailloft-roce-host.service)) that runs this code with
    this policy.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  policy:
    description: The fabric's C(roce_policy). Settings that it omits have their defaults.
    type: dict
    default: {}
  nics:
    description:
      - The NICs by RDMA device (V(mlx5_0)). C(speed_gbit_s) is the speed of the port, C(cable_m) the length of the
        cable.
      - With both, each lossless priority gets its own ingress buffer, whose size follows from them. Without C(cable_m),
        the driver keeps its buffers.
    type: dict
    required: true
  rdma_class:
    description: The policy's class for the ToS byte of RDMA-CM. The default is the first class.
    type: str
  stage:
    description:
      - The part of the policy to apply. V(all) is the whole policy.
      - V(less_pfc) only turns PFC off for priorities that must no longer pause. V(settings) is everything except
        turning PFC on. These two save nothing for the boot. They are for a fabric in which the switches are changed
        between them; see C(playbooks/fabric_qos.yml).
    type: str
    choices: [all, less_pfc, settings]
    default: all
  restore:
    description:
      - C(nics) and C(saved) as M(sailloft.fleet.roce_nic_info) returned them before a change that must be undone. The
        NICs in O(nics) get their earlier settings; with O(stage=all), the settings that are saved for the boot are
        restored as well. O(policy) is ignored.
    type: dict
  now:
    description:
      - Apply the settings now, in addition to every boot.
      - V(false) is for an image. The form of the settings is checked, they are saved, and the unit is enabled.
    type: bool
    default: true
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
  description: By RDMA device and setting, why it cannot follow the policy.
  returned: when O(now)
  type: dict
  sample: {"mlx5_0": {"forced_tos": "only the vendor's driver (MLNX_OFED, DOCA) has a traffic class of the device"}}
unit:
  description: The systemd unit.
  returned: with O(stage=all)
  type: str
settings_file:
  description: The file of the saved settings.
  returned: with O(stage=all)
  type: str
pending:
  description: Always empty, because no setting waits for a boot.
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
