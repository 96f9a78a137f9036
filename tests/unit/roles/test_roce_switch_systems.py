# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each vendor's own collection, by the role's tasks, against simulated switches: one play a system, four switches in it.

"good" does what it is told, "refuses" a line, "dies" when the change is made and not yet kept, and comes back, and "garbage"
answers in no protocol. Few, for each task of each switch is a process of Ansible's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch_systems import SYSTEMS
from ansible_collections.sailloft.fleet.tests.unit.fabric import switches
from ansible_collections.sailloft.fleet.tests.unit.roles.simulated_eos import Eos
from ansible_collections.sailloft.fleet.tests.unit.roles.simulated_nxos import Nxos
from ansible_collections.sailloft.fleet.tests.unit.roles.simulated_switch import served

ROOT = Path(__file__).parents[3]
# Of the same environment as this interpreter, whatever PATH is.
ANSIBLE = str(Path(sys.executable).with_name("ansible-playbook"))

try:
    from ansible_collections.sailloft.fleet.tests.unit.roles.simulated_junos import Junos
except ImportError:  # without paramiko, which comes with ncclient
    Junos = None


def role(tasks: str, **more: Any) -> dict[str, Any]:
    return {"ansible.builtin.include_role": {"name": "sailloft.fleet.roce_switch", "tasks_from": tasks}, **more}


def facts(**given: str) -> dict[str, Any]:
    return {"ansible.builtin.set_fact": given}


def play(folder: Path, system: str, hosts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Reads each host, applies its ``roce_switch_change``, and restores "dies": what each said and showed on the way."""
    error = "{{ ansible_failed_result.msg | default(ansible_failed_result) | string }}"
    kept = {"read": "said_read", "apply": "said_apply", "backup": "roce_switch_backup"}
    of_host = ", ".join(f"'{key}': hostvars[host].{name} | default('')" for key, name in kept.items())
    shown = f"{{% for host in ansible_play_hosts_all %}}{{{{ {{'host': host, {of_host}}} | to_json }}}}\n{{% endfor %}}"
    tasks = [
        {
            "block": [role(f"{system}/read"), facts(roce_switch_backup="{{ roce_switch_running }}")],
            "rescue": [facts(said_read=error)],
        },
        {
            "when": "said_read is not defined",
            "block": [role(f"{system}/apply")],
            "rescue": [facts(said_apply=error)],
        },
        {
            "when": "inventory_hostname == 'dies'",
            "block": [
                {
                    "ansible.builtin.wait_for": {
                        "host": "{{ ansible_host }}",
                        "port": "{{ switch_port }}",
                        "timeout": 10,
                    },
                    "delegate_to": "localhost",
                    "vars": {"ansible_connection": "local"},
                },
                role(f"{system}/restore"),
            ],
        },
        {
            "ansible.builtin.copy": {"content": shown, "dest": f"{folder}/seen", "mode": "0600"},
            "run_once": True,
            "delegate_to": "localhost",
            "vars": {"ansible_connection": "local"},
        },
    ]
    common = {
        "ansible_user": "admin",
        "ansible_password": "admin",
        "ansible_network_os": {
            "eos": "arista.eos.eos",
            "nxos": "cisco.nxos.nxos",
            "dell_sonic": "dellemc.enterprise_sonic.sonic",
            "junos": "junipernetworks.junos.junos",
        }[system],
        "ansible_port": "{{ switch_port }}",
        "ansible_httpapi_port": "{{ switch_port }}",
        "ansible_connection": "ansible.netcommon." + ("netconf" if system == "junos" else "httpapi"),
        "ansible_httpapi_use_ssl": False,
        "ansible_command_timeout": 6,
        "ansible_python_interpreter": sys.executable,
        "roce_switch_system": system,
    }
    (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
    (folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    with (folder / "output").open("w") as output:  # no pipe, which the processes that hold connections would keep open
        subprocess.run(
            [ANSIBLE, "-i", str(folder / "inventory.json"), str(folder / "play.json")],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOST_KEY_CHECKING": "0"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=120,
        )
    print((folder / "output").read_text())
    seen = [json.loads(line) for line in (folder / "seen").read_text().splitlines()]
    return {each["host"]: each for each in seen}


def held(system: str, switch: Any) -> Any:
    """What a system's own configuration holds of ``switch``."""
    return SYSTEMS[system].parse(SYSTEMS[system].render(switch), switch.name)


CASES = {
    "eos": (Eos, ["Ethernet1/1", "Ethernet2/1"], "hostname leaf1\ninterface Ethernet2/1\n   mtu 1500\n"),
    "junos": (Junos, ["et-0/0/0", "et-0/0/1"], "set system host-name leaf1\nset interfaces et-0/0/1 mtu 1514\n"),
    "nxos": (Nxos, ["Ethernet1/1", "Ethernet1/2"], "hostname leaf1\ninterface Ethernet1/2\n  mtu 1500\n"),
}
# (what "refuses" does not take, where "dies" goes away)
BAD = {
    "eos": ("no-drop", "copy running-config startup-config"),
    "junos": ("pfc-priority", "unlock"),
    "nxos": ("pfc-cos", "copy running-config startup-config"),
}


@pytest.mark.parametrize("system", CASES)
def test_a_change_is_applied_kept_and_restored_or_refused_as_a_whole(tmp_path, system):
    make, ports, start = CASES[system]
    refused, death = BAD[system]
    if make is None:
        pytest.skip("needs ncclient (requirements.txt)")
    wanted = switches.switch(system, ports)
    remediation = SYSTEMS[system].remediation
    change = remediation(start, wanted)
    devices = {
        "good": make(start),
        "refuses": make(start, refuses=refused),
        "dies": make(start, dies_at=death),
        "garbage": make(start, garbage=True),
    }
    with served(*devices.values()):
        hosts = {
            name: {"ansible_host": each.http.host, "switch_port": each.http.port, "roce_switch_change": change}
            for name, each in devices.items()
        }
        seen = play(tmp_path, system, hosts)
    good, dies, garbage = devices["good"], devices["dies"], devices["garbage"]
    assert (seen["good"]["read"], seen["good"]["apply"]) == ("", "")
    assert remediation(seen["good"]["backup"], wanted) == change
    assert remediation(good.running, wanted) == ""  # a second time, nothing
    assert SYSTEMS[system].parse(good.running, "leaf1") == held(system, wanted)
    assert good.startup == good.running

    assert seen["refuses"]["apply"].startswith("refuses: ")
    line = next(each.strip() for each in change.splitlines() if refused in each)
    assert line in seen["refuses"]["apply"]
    assert devices["refuses"].running == start
    assert devices["refuses"].saved == []

    assert seen["dies"]["apply"].startswith("dies: ")
    assert any(remediation(each, wanted) == "" for each in dies.held), "it had made the change"
    assert dies.running == dies.startup == start

    assert seen["garbage"]["read"].startswith("garbage: its running configuration cannot be read: ")
    assert garbage.running == start
    assert garbage.saved == []

