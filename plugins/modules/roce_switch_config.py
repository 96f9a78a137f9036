#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Render, compare and plan RoCE configurations of switches from one policy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_switch_config
short_description: Render, compare and plan RoCE configurations of switches from one policy
version_added: 0.1.0
description:
  - Renders one RoCE policy for all switches of an inventory in one call, each in the format of its system; parses
    running configurations into the terms of the policy; and reports how they differ from the policy.
  - It contacts no switch. Run it once, on the controller.
  - ECN thresholds and headroom are compiled for each port from the switch's ASIC, the port's speed, its cable and the
    MTU. ECN marks before PFC pauses, or the task fails.
  - All of the policy and of the inventory is checked before anything is rendered, and all is rendered before anything
    is written. The first error fails the task with the switch, the port, the cause and the next step.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description:
      - V(rendered) renders configurations from O(policy) and O(switches).
      - V(parsed) parses O(running). It uses only C(system) of O(switches).
      - V(compared) does both, and returns the differences.
      - V(planned) returns the stages in which the switches of O(running) and the NICs are changed to the policy, and
        the change of the first stage for each switch. Call it again before each stage, with the configurations that
        were read after the previous one. It fails if a device was not read, or the configuration of one switch cannot
        be read or changed to the policy, because a stage is safe only if the state of all devices is known; in check
        mode, it plans the others and returns RV(left_out).
      - V(restored) returns whether the switches of O(running) are again as in O(backup) or O(restore_path), and the
        change that restores them, in all that a policy can change. It fails if one cannot be read; in check mode, it
        compares the others and returns RV(left_out).
    type: str
    choices: [rendered, parsed, compared, planned, restored]
    default: rendered
  policy:
    description:
      - The policy, as in the variable C(roce_policy). Settings that it omits have their defaults.
      - It has C(classes), C(cnp), C(default), C(mtu_bytes), C(switch_mtu_bytes), C(path_mtu_bytes), C(pfc_watchdog) and
        C(ecmp_fields), which docs/reference/roce-policy.md describes.
    type: dict
    default: {}
  switches:
    description:
      - All switches by name. A list of names stands for C(roce_switch_system), C(roce_switch_asic),
        C(roce_switch_ports), C(roce_switch_headroom) and C(roce_switch_queue_buffer_bytes) of each.
      - C(system) is the switch's operating system.
      - C(asic) is a row of the table of ASICs, or one of O(asics). A system that sends no pauses needs none.
      - C(ports) by the switch's own names, each with C(speed_gbit_s), C(cable_m) and, if known, C(peer), as {switch:,
        port:} or {host:, port:}.
      - C(headroom) is a list of C(speed_gbit_s), C(cable_m) and C(headroom_bytes), which replace those of the ASIC's
        profile for ports of that speed with cables of at most that length. A value is refused if it is less than the
        bytes that may arrive after a pause was sent. Systems that size headroom themselves (RV(not_held)) are not given
        it; it counts only in what must fit and in ECN thresholds.
      - C(queue_buffer_bytes) is the number of bytes that one queue can hold, for systems with thresholds in percent of
        it (Junos).
    type: dict
    required: true
  hosts:
    description:
      - The NICs of all hosts by the host's name. A list of names stands for C(roce_host_nics) of each. With it, each
        host that a port names must exist, and each NIC must be at one port. If the host's NICs are not null, the NIC
        must be among them with the same speed.
    type: dict
  asics:
    description:
      - ASICs that are not in the table or have other values there, by name.
      - Each has C(source) (the source of its values), C(buffer_bytes), C(pool_bytes) (ingress, lossless),
        C(cell_bytes), C(lossless_classes) and, optionally, C(title), C(unicast_queues), C(headroom_pool_bytes),
        C(lossy_pool_bytes) and C(headroom), a list of C(speed_gbit_s), C(cable_m), C(reserved_bytes), C(xoff_bytes),
        C(xon_offset_bytes), C(xon_bytes) and C(alpha_exponent). C(alpha_exponent) of the ASIC is for systems that size
        headroom themselves and so need no rows.
      - C(like) names a row of the table of ASICs, which has the values of all omitted settings.
    type: dict
  running:
    description:
      - Running configurations as text, by switch, for all states except V(rendered). Other switches are ignored.
        A list of names stands for C(roce_switch_running) of each, which the role P(sailloft.fleet.roce_switch#role)
        reads.
    type: dict
  backup:
    description: For O(state=restored), the running configurations before the change, as O(running).
    type: dict
  restore_path:
    description:
      - For O(state=restored), the directory O(backup_path) of an earlier run, instead of O(backup). Switches that it
        does not have are left out of the result.
      - The task fails if it is incomplete, or a file in it is damaged, is not a configuration, or is of another system.
      - With O(running={}), the task only checks this for all of O(switches).
    type: path
  backup_path:
    description:
      - For O(state=planned) and O(state=restored), a directory for the present configuration of each switch that will
        change, as C(NAME.SYSTEM), and their sums, C(SHA256SUMS). It is created if it is missing, and only its owner can
        read it. It is beside the directories of other runs. The role C(roce_switch) names them by their time
        (C(20260131T235959Z)) and creates a file C(finished) in those of completed runs.
    type: path
  nics:
    description: >-
      For O(state=planned), the NICs of the hosts as M(sailloft.fleet.roce_nic_info) returns them, by host. A list of
      names stands for C(roce_host_read) of each, which the role P(sailloft.fleet.roce_host#role) sets.
    type: dict
  nics_wanted:
    description: >-
      For O(state=planned), the same NICs as M(sailloft.fleet.roce_host) predicts them in check mode. A list of names
      stands for C(roce_host_planned) of each.
    type: dict
  unread:
    description: For O(state=planned) and O(state=restored), the names of the switches and hosts that were not read.
    type: list
    elements: str
    default: []
  done:
    description:
      - For O(state=planned), the name of the stage that was completed last.
      - The task fails if this stage or an earlier one remains, because a device accepted a change without making it.
    type: str
  path:
    description:
      - Directory for O(state=rendered), created if it is missing. It gets a file C(NAME.SYSTEM) for each switch, which
        is written as a whole or not at all, and only if it differs. Other files there are not touched.
      - Without it, nothing is written, and the configurations are returned.
    type: path
seealso:
  - module: sailloft.fleet.roce_fabric_proof
"""

EXAMPLES = r"""
- name: Render the configurations of all switches as files
  sailloft.fleet.roce_switch_config:
    policy: "{{ roce_policy | default({}) }}"
    switches: "{{ groups.roce_switches }}"
    hosts: "{{ groups.all }}"
    path: fabric
  delegate_to: localhost
  run_once: true

- name: Render two switches and return their configurations
  sailloft.fleet.roce_switch_config:
    policy:
      classes:
        roce: {mode: lossless, dscp: 26}
    switches:
      leaf1:
        system: sonic
        asic: spectrum4
        ports:
          Ethernet0: {speed_gbit_s: 400, cable_m: 5, peer: {host: gpu01, port: mlx5_0}}
          Ethernet8: {speed_gbit_s: 800, cable_m: 30, peer: {switch: spine1, port: Ethernet0}}
      spine1:
        system: sonic
        asic: spectrum4
        ports:
          Ethernet0: {speed_gbit_s: 800, cable_m: 30, peer: {switch: leaf1, port: Ethernet8}}
  delegate_to: localhost

- name: Parse a running configuration
  sailloft.fleet.roce_switch_config:
    state: parsed
    switches:
      leaf1: {system: sonic}
    running:
      leaf1: "{{ lookup('ansible.builtin.file', 'config_db.json') }}"
  delegate_to: localhost

- name: Compare a running configuration with the policy
  sailloft.fleet.roce_switch_config:
    state: compared
    switches: "{{ groups.roce_switches }}"
    running:
      leaf1: "{{ lookup('ansible.builtin.file', 'config_db.json') }}"
  delegate_to: localhost
  register: held
  failed_when: not held.as_wanted

- name: Plan the stages of the change
  sailloft.fleet.roce_switch_config:
    state: planned
    switches: "{{ groups.roce_switches }}"
    running:
      leaf1: "{{ lookup('ansible.builtin.file', 'config_db.json') }}"
  delegate_to: localhost
"""

RETURN = r"""
rendered:
  description: The configuration of each switch as text, by its name.
  returned: O(state=rendered) without O(path)
  type: dict
files:
  description: The file of each switch, in the order of O(switches).
  returned: O(state=rendered) with O(path)
  type: list
  elements: str
  sample: [fabric/leaf1.sonic, fabric/spine1.eos]
written:
  description: The files that were missing or different.
  returned: O(state=rendered) with O(path)
  type: list
  elements: str
parsed:
  description:
    - The running configuration of each switch in vendor-neutral terms, with name, system, ecmp_fields and ports.
    - Each port has dscp_to_class, class_to_queue, class_to_priority and priority_to_queue, from number to number if one
      is set; queues and headroom, by number; pfc, watchdog and ip_mtu_bytes.
    - A queue that marks at thresholds whose bytes are not known (segments, packets, percents of a queue of unknown
      size) has them as unknown_ecn, and no ecn.
  returned: O(state=parsed)
  type: dict
differences:
  description: >-
    By switch, the differences from the policy; an empty list for a switch without differences. The only difference of a
    switch whose configuration cannot be read, whose settings are not valid, or for which the policy cannot be planned,
    is the reason.
  returned: O(state=compared)
  type: dict
  sample:
    leaf1:
      - ports: [Ethernet0]
        what: queue 3
        wanted: 50%, ECN 600000 to 6000000 bytes at 100%
        seen: 50%, no ECN
        message: "leaf1: Ethernet0: queue 3: wanted 50%, ECN 600000 to 6000000 bytes at 100%, seen 50%, no ECN"
as_wanted:
  description: V(true) if no switch differs.
  returned: O(state=compared)
  type: bool
stages:
  description:
    - The remaining stages, in order. Each is completed on all its switches and hosts before the next one begins.
    - C(switches) and C(hosts) are those that change. C(step) is the value for O(sailloft.fleet.roce_host#module:stage).
    - C(interruptions) is what the stage interrupts, as far as the switches' vendors say, with the switches.
  returned: O(state=planned)
  type: list
  elements: dict
  sample:
    - name: switches have their classes, queues and headroom
      step: settings
      switches: [leaf1, spine1]
      hosts: []
      interruptions: {}
possible_stages:
  description: The names of the stages that may still follow, in order; empty if no stage is left.
  returned: O(state=planned)
  type: list
  elements: str
table:
  description:
    - With O(state=planned), the stages, one line each, with their switches and hosts, and a line for each interruption.
    - With O(state=rendered) and O(path), a line for each file that was missing or different, with its number of lines
      or the numbers of lines that were added and removed.
  returned: O(state=planned), and O(state=rendered) with O(path)
  type: list
  elements: str
  sample: ["1. switches have their classes, queues and headroom: leaf1, spine1"]
left_out:
  description: >-
    In check mode, the refusals of a run with O(unread) devices, or in which the configurations of some switches cannot
    be read or changed; empty where there are none.
  returned: O(state=planned) and O(state=restored)
  type: list
  elements: str
unfinished:
  description:
    - C(path) is the directory of the last run beside O(backup_path) if that run did not finish, else "".
    - C(switches) are the switches that it had to change. They may have changes that are not saved.
  returned: O(state=planned)
  type: dict
changes:
  description:
    - With O(state=planned), the change of the first stage for each of its switches, in the format of its system.
    - With O(state=restored), the change that restores each switch without its own rollback, if it is needed.
  returned: O(state=planned) and O(state=restored)
  type: dict
whole:
  description: For each switch that differs from the policy, the change of all stages together.
  returned: O(state=planned)
  type: dict
boot:
  description:
    - The whole configuration of each switch that loses its settings in a reboot (linux).
    - With O(state=restored), that of its backup; empty where this has no QoS.
  returned: O(state=planned) and O(state=restored)
  type: dict
as_before:
  description: By switch, whether it is as in its backup; null in check mode where its configuration cannot be read.
  returned: O(state=restored)
  type: dict
not_held:
  description: By switch, the settings that its configuration cannot express, with the cause. They were not compared.
  returned: O(state=compared)
  type: dict
"""

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.module import FabricModule
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs, restore, rollout

STATES = ("rendered", "parsed", "compared", "planned", "restored")


def main() -> None:
    """Run as an Ansible module."""
    module = FabricModule(
        argument_spec={
            "state": {"type": "str", "choices": list(STATES), "default": "rendered"},
            "policy": {"type": "dict", "default": {}},
            "switches": {"type": "dict", "required": True},
            "hosts": {"type": "dict"},
            "asics": {"type": "dict"},
            "running": {"type": "dict"},
            "backup": {"type": "dict"},
            "restore_path": {"type": "path"},
            "backup_path": {"type": "path"},
            "nics": {"type": "dict"},
            "nics_wanted": {"type": "dict"},
            "unread": {"type": "list", "elements": "str", "default": []},
            "done": {"type": "str"},
            "path": {"type": "path"},
        },
        returned=("state", "policy", "asics", "path", "done"),
        required_if=[
            *[("state", state, ["running"]) for state in STATES if state != "rendered"],
            ("state", "restored", ["backup", "restore_path"], True),
        ],
        mutually_exclusive=[["backup", "restore_path"]],
    )
    params = module.params
    states = {
        "rendered": lambda: configs.rendered(params, module.check_mode, module._diff),
        "planned": lambda: rollout.planned(params, module.check_mode, module._diff),
        "parsed": lambda: configs.parsed(params),
        "compared": lambda: configs.compared(params),
        "restored": lambda: restore.restored(params, module.check_mode),
    }
    finish(module, states[params["state"]])


if __name__ == "__main__":
    main()
