# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each vendor's collection, used by the role's tasks on simulated switches: one play per system, four switches.

"good" accepts the change, "refuses" refuses a line, "dies" is lost after the change is made and before it is saved, and
comes back, and "garbage" answers in no protocol. There are few tasks, because each task needs a process per switch.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import switches
from playing import ANSIBLE, collection_path, only_collections, play_of_hosts
from shown_counters import PORTS, SHOWN
from simulated_switch import Case, served

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import Answers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import COUNTERS, read_counters
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

pytestmark = pytest.mark.fleet
ROOT = Path(__file__).parents[3]
# Each simulated system has its own file in tests/support/roles; simulated_switch is their base.
FILES = (ROOT / "tests/support/roles").glob("simulated_*.py")
SIMULATED = sorted({path.stem.removeprefix("simulated_") for path in FILES} - {"switch", "fabric"})


def role(tasks: str, **apply: Any) -> dict[str, Any]:
    """Return the task that includes the role's ``tasks``, with keywords for each of them."""
    included = {"name": "sailloft.fleet.roce_switch", "tasks_from": tasks, "apply": apply}
    return {"ansible.builtin.include_role": included}


def facts(**given: str) -> dict[str, Any]:
    return {"ansible.builtin.set_fact": given}


def play(
    folder: Path, system: str, tried: Case, hosts: dict[str, dict[str, Any]], environment: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """Read the hosts as in check mode, apply the change, restore "dies" by its own rollback and "good" by its backup.

    Return each host's messages and readings.
    """
    error = "{{ ansible_failed_result.msg | default(ansible_failed_result) | string }}"
    kept = ("said_read", "said_apply", "__roce_switch_backup", "shown_changed", "roce_switch_running", "counted")
    of_host = ", ".join(f"'{name}': hostvars[host].{name} | default('')" for name in kept)
    shown = f"{{% for host in ansible_play_hosts_all %}}{{{{ {{'host': host, {of_host}}} | to_json }}}}\n{{% endfor %}}"
    tasks = [
        {
            "when": "inventory_hostname in ['good', 'garbage']",
            "block": [role("read", check_mode=True), facts(__roce_switch_backup="{{ roce_switch_running }}")],
            "rescue": [facts(said_read=error)],
        },
        {
            "when": "said_read is not defined",
            "block": [role(f"{system}/apply")],
            "rescue": [facts(said_apply=error)],
        },
        {
            "when": "inventory_hostname == 'good'",
            "block": [
                role(f"{system}/read"),
                facts(shown_changed="{{ roce_switch_running }}"),
                role("counters"),
                facts(counted="{{ roce_switch_counters }}"),
                role("restore/computed"),
                role(f"{system}/read"),
            ],
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
        "ansible_network_os": tried.network_os,
        "ansible_port": "{{ switch_port }}",
        "ansible_httpapi_port": "{{ switch_port }}",
        "ansible_connection": f"ansible.netcommon.{tried.connection}",
        "ansible_httpapi_use_ssl": False,
        # On a busy machine, a process that holds a connection must not time out between two tasks.
        "ansible_command_timeout": 60,
        "ansible_connect_timeout": 120,
        "ansible_python_interpreter": sys.executable,
        "roce_switch_system": system,
        "roce_switch_ports": {},
    }
    (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
    (folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    with (folder / "output").open("w") as output:  # not a pipe: processes that hold connections would keep it open
        subprocess.run(
            [ANSIBLE, "-i", str(folder / "inventory.json"), str(folder / "play.json")],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOST_KEY_CHECKING": "0", **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=540,
        )
    print((folder / "output").read_text())
    seen = [json.loads(line) for line in (folder / "seen").read_text().splitlines()]
    return {each["host"]: each for each in seen}


def held(system: str, switch: Any) -> Any:
    """Return ``switch`` as it is read back from the system's configuration."""
    seen = SYSTEMS[system].parse(SYSTEMS[system].render(switch), switch.name)
    if system == "dell_sonic":  # its modules gather 40 m where none is set
        seen = replace(seen, ports={port: replace(qos, cable_m=40) for port, qos in seen.ports.items()})
    return seen


def changes(system: str, change: str) -> dict[str, str]:
    """Return the change of each switch; a Dell switch that fails gets few calls, because each takes a second."""
    few = {}
    if system == "dell_sonic":
        calls = json.loads(change)
        at = next(at for at, call in enumerate(calls) if call["module"] == "sonic_qos_wred")
        few = {"refuses": json.dumps(calls[at - 1 : at + 1]), "dies": json.dumps(calls[-1:])}
    return {name: few.get(name, change) for name in ("good", "refuses", "dies", "garbage")}


def juniper_device(folder: Path) -> dict[str, str]:
    """Return the environment of a site that has juniper.device 2 in place of junipernetworks.junos.

    Its modules are those of junipernetworks.junos 11 with the other name (github.com/Juniper/ansible-junos-stdlib).
    PyPI does not have it, so this is such a copy.
    """
    environment = only_collections(folder, "ansible.netcommon", "ansible.posix", "ansible.utils", "community.general")
    copy = folder / "ansible_collections/juniper/device"
    shutil.copytree(collection_path("junipernetworks.junos"), copy)
    for path in [*copy.rglob("*.py"), *copy.rglob("*.yml")]:
        path.write_text(path.read_text().replace("junipernetworks.junos", "juniper.device"))
    return environment


# A run takes a minute a system, and two with Dell's modules, which take a second for each call.
@pytest.mark.long
@pytest.mark.parametrize(
    ("system", "collections"), [*((system, None) for system in SIMULATED), ("junos", juniper_device)]
)
def test_a_change_is_either_applied_and_saved_or_completely_undone(tmp_path, system, collections):
    tried: Case = importlib.import_module(f"simulated_{system}").CASE
    environment = {}
    if collections is juniper_device:
        tried = replace(tried, network_os="juniper.device.junos")
        environment = juniper_device(tmp_path)
    start = tried.start
    wanted = switches.switch(system, tried.ports)
    remediation = SYSTEMS[system].remediation
    change = remediation(tried.shown or start, wanted)
    devices = {
        "good": tried.make(start),
        "refuses": tried.make(start, refuses=tried.refuses),
        "dies": tried.make(start, dies_at=tried.dies_at),
        "garbage": tried.make(start, garbage=True),
    }
    with served(*devices.values()):
        hosts = {
            name: {
                "ansible_host": each.http.host,
                "switch_port": each.http.port,
                "__roce_switch_change": changes(system, change)[name],
            }
            for name, each in devices.items()
        }
        seen = play(tmp_path, system, tried, hosts, environment)
    good, dies, garbage = devices["good"], devices["dies"], devices["garbage"]
    assert (seen["good"]["said_read"], seen["good"]["said_apply"]) == ("", "")
    assert remediation(seen["good"]["__roce_switch_backup"], wanted) == change
    applied = seen["good"]["shown_changed"]
    assert remediation(applied, wanted) == ""  # a second run changes nothing
    assert ("</configuration-set>" in applied) == (system == "junos")  # with groups expanded by the switch
    assert SYSTEMS[system].parse(applied, "leaf1") == held(system, wanted)
    assert (
        SYSTEMS[system].restoration(seen["good"]["__roce_switch_backup"], seen["good"]["roce_switch_running"], "leaf1")
        == ""
    )
    assert good.startup == good.running != good.saved[0]
    counters, unknown = (seen["good"]["counted"][name] for name in ("counters", "unknown"))
    if SYSTEMS[system].counters is None:
        assert (counters, set(unknown)) == ({}, set(COUNTERS))
    else:
        assert (counters, unknown) == read_counters(SYSTEMS[system].counters, Answers(SHOWN[system], {}))
        assert counters[PORTS[system]]["dropped"][3] == 34

    assert seen["refuses"]["said_apply"].startswith("refuses: ")
    lines = (each.strip() for each in change.splitlines() if tried.refuses in each)
    line = next(lines, "qos/wred-profiles/wred-profile")
    assert line in seen["refuses"]["said_apply"]
    assert (len(set(devices["refuses"].held)) > 1) == (not tried.whole)
    assert getattr(devices["refuses"], "candidate", start) == start
    assert devices["refuses"].running == start
    assert devices["refuses"].saved == []

    assert seen["dies"]["said_apply"].startswith("dies: ")
    assert len(set(dies.held)) > 1, "it had made the change"
    assert dies.running == dies.startup == dies.saved[-1] == start

    assert seen["garbage"]["said_read"].startswith(
        f"garbage: its running configuration cannot be read at {garbage.http.host}: "
    )
    assert garbage.running == start
    assert garbage.saved == []


def test_a_missing_or_old_collection_is_named_before_a_switch_is_reached(tmp_path, monkeypatch):
    for name, value in only_collections(tmp_path, "ansible.posix", "community.general").items():
        monkeypatch.setenv(name, value)
    old = tmp_path / "ansible_collections/cisco/nxos"
    old.mkdir(parents=True)
    (old / "MANIFEST.json").write_text(json.dumps({"collection_info": {"version": "8.1.0"}}))
    hosts = {system: {"roce_switch_system": system} for system in ("dell_sonic", "eos", "junos", "nxos")}
    seen = play_of_hosts(tmp_path, [role("read")], hosts, roce_switch_ports={})
    names = {
        "dell_sonic": ["dellemc.enterprise_sonic"],
        "eos": ["arista.eos"],
        "junos": ["juniper.device", "junipernetworks.junos"],
        "nxos": ["cisco.nxos"],
    }
    for system, tasks in seen.items():
        *_earlier, last = tasks.values()
        assert last["failed"]
        assert last["msg"].startswith(f"{system}: ")
        assert f"ansible-galaxy collection install {names[system][0]}" in last["msg"]
        assert all(name in last["msg"] for name in names[system])


@pytest.mark.long
def test_a_switch_without_its_network_connection_is_refused_before_it_is_reached(tmp_path):
    network_systems = {
        "dell_sonic": "dellemc.enterprise_sonic.sonic",
        "eos": "arista.eos.eos",
        "junos": "junipernetworks.junos.junos",
        "nxos": "cisco.nxos.nxos",
    }
    hosts = {system: {"roce_switch_system": system} for system in network_systems}
    hosts["eos"] = {"roce_switch_system": "eos", "ansible_connection": "ansible.netcommon.httpapi"}
    seen = play_of_hosts(tmp_path, [role("read")], hosts, roce_switch_ports={})
    for system, network_system in network_systems.items():
        *_earlier, last = seen[system].values()
        assert last["failed"]
        assert last["msg"].startswith(f"{system}: ")
        connection = "netconf" if system == "junos" else "httpapi"
        facts_told = (f"ansible_connection: ansible.netcommon.{connection}", "ansible_network_os: ", network_system)
        assert [fact for fact in facts_told if fact not in last["msg"]] == []
