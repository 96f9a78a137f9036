#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The whole RoCE state of a host, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_host
short_description: Bring a host to its RoCE state, its NICs now and at every boot and NCCL's settings
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
  - With O(nccl) it writes C(/etc/nccl.conf), with the settings that follow from the policy. Settings that contradict
    the policy are refused before anything is changed.
  - In check mode it compares all of these.
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
      - Without this option no NIC is changed, and nothing is saved for the boot.
      - With both, each lossless priority gets its own ingress buffer, whose size follows from them. Without C(cable_m),
        the driver keeps its buffers.
    type: dict
  rdma_class:
    description: The policy's class for the ToS byte of RDMA-CM and for NCCL's data. The default is the first class.
    type: str
  nccl:
    description: The content of C(/etc/nccl.conf). Without this option the file stays as it is.
    type: dict
    suboptions:
      settings:
        description: All settings that do not follow from the policy, by name. The file has these and no others.
        type: dict
        default: {}
      fifo_class:
        description: The policy's class for NCCL's control messages. The default is the class of its data.
        type: str
        default: ""
      gid_index:
        description: The index of NCCL's GID. V(-1) leaves the choice to NCCL.
        type: int
        default: -1
      queue_pairs:
        description: Queue pairs per connection. V(0) keeps NCCL's default.
        type: int
        default: 0
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
      - RV(before) of a call before a change that must be undone. The NICs in O(nics) get their earlier settings; with
        O(stage=all), the settings that are saved for the boot are restored as well, and C(/etc/nccl.conf) if that call
        had O(nccl). O(policy) and O(nccl) are ignored.
    type: dict
  now:
    description:
      - Apply the settings now, in addition to every boot.
      - V(false) is for an image. The form of the settings is checked, they are saved, the unit is enabled, and
        O(nccl) is written.
    type: bool
    default: true
seealso:
  - module: sailloft.fleet.roce_nic_info
"""

EXAMPLES = r"""
- name: Apply the reference policy to two NICs
  sailloft.fleet.roce_host:
    nics:
      mlx5_0: {speed_gbit_s: 400, cable_m: 5}
      mlx5_1: {speed_gbit_s: 400, cable_m: 5}

- name: Apply a lossy class, and a lossless one for storage
  sailloft.fleet.roce_host:
    policy:
      classes:
        roce: {mode: lossy, bandwidth_percent: 50}
        storage: {mode: lossless, dscp: 18, traffic_class: 2, bandwidth_percent: 20}
    nics:
      mlx5_0: {}

- name: Compare NCCL's settings with the reference policy
  sailloft.fleet.roce_host:
    nccl: {settings: {NCCL_DEBUG: WARN}, gid_index: 3, queue_pairs: 16}
  check_mode: true
"""

RETURN = r"""
nics:
  description: By RDMA device, as M(sailloft.fleet.roce_nic_info) returns it (in check mode, as it will be).
  returned: when O(now) and O(nics)
  type: dict
before:
  description:
    - What O(restore) takes. C(nics) are those in O(nics), as RV(nics), C(saved) is what was saved for the boot, and
      C(nccl_conf) the content of C(/etc/nccl.conf) in Base64; null where there was none.
  returned: without O(restore)
  type: dict
applications:
  description: >-
    The applications whose packets the proof of the path follows, each with C(name), C(tos), C(queue_pairs) and, if it
    is set, C(gid_index). Without O(nccl), NCCL as C(/etc/nccl.conf) has it, if that has C(NCCL_IB_TC).
  returned: without O(restore)
  type: list
  elements: dict
  sample: [{"name": "NCCL", "tos": 106, "queue_pairs": 16, "gid_index": 3}]
cannot:
  description: By RDMA device and setting, why it cannot follow the policy.
  returned: when O(now) and O(nics)
  type: dict
  sample: {"mlx5_0": {"forced_tos": "only the vendor's driver (MLNX_OFED, DOCA) has a traffic class of the device"}}
unit:
  description: The systemd unit.
  returned: with O(stage=all) and O(nics)
  type: str
settings_file:
  description: The file of the saved settings.
  returned: with O(stage=all) and O(nics)
  type: str
pending:
  description: Always empty, because no setting waits for a boot.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import LESS_PFC, SETTINGS
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import converge


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "policy": {"type": "dict", "default": {}},
            "nics": {"type": "dict"},
            "rdma_class": {"type": "str"},
            "nccl": {
                "type": "dict",
                "options": {
                    "settings": {"type": "dict", "default": {}},
                    "fifo_class": {"type": "str", "default": ""},
                    "gid_index": {"type": "int", "default": -1},
                    "queue_pairs": {"type": "int", "default": 0},
                },
            },
            "stage": {"type": "str", "choices": ["all", LESS_PFC, SETTINGS], "default": "all"},
            "restore": {"type": "dict"},
            "now": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params, system = module.params, System()

    def bring_about() -> Outcome:
        if params["restore"] is not None:
            return converge.restored(system, params["restore"], params["nics"], params["stage"], module.check_mode)
        return converge.converge(system, params, module.check_mode)

    finish_on_host(module, bring_about, live=params["now"])


if __name__ == "__main__":
    main()
