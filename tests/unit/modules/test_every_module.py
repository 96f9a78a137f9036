# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each module, run as Ansible runs it: its options are those of its documentation, and it ends with one result.

One file because its table has a line for each module.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import runpy
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.basic import PASSWORD_MATCH, AnsibleModule
from ansible.module_utils.common import respawn
from ansible.module_utils.testing import patch_module_args
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import client

PLUGINS = Path(__file__).parents[3] / "plugins"
RECORDINGS = Path(__file__).parents[2] / "recordings"
COLLECTION = "ansible_collections.sailloft.fleet.plugins"
# Those without main() are documentation of an action plugin.
MODULES = sorted(path.stem for path in (PLUGINS / "modules").glob("*.py") if "\ndef main(" in path.read_text())

# Options whose values no module logs or returns.
SECRETS = {
    "monitoring_node": ["users"],
    "monitoring_server": ["users", "secrets"],
    "netbox_links_info": ["netbox_token"],
    "node_boot_certificate": ["bmc.password"],
    "node_boot_restart": ["nodes.bmc.password"],
    "node_consoles": ["consoles.password"],
    "node_fence": ["bmc.password"],
    "node_firmware": ["nodes.bmc.password"],
    "node_health_info": ["bmcs.password"],
    "node_boot_statement": ["signing_password"],
    "node_identity": ["nodes.secrets.content", "signing_password"],
    "node_identity_quote": ["nonce"],
    "node_image": ["signing_password"],
    "storage_client": ["s3_keys"],
    "vsphere_gpu_vm": ["password"],
    "vsphere_gpu_vm_info": ["password"],
    "vsphere_host_passthrough": ["password"],
    "vsphere_host_topology_info": ["password"],
}
SCALE = {"path": "/nowhere", "cluster": "a b", "readings": {}}
# Modules that read or change the running kernel, with the arguments that they require.
OF_THE_KERNEL = {
    "bios_info": {},
    "gpu_host": {},
    "gpu_host_boot": {},
    "gpu_host_restore": {},
    "host_guests_info": {},
    "hugepages": {"pages": []},
    "ib_host": {"hcas": {}},
    "ib_manager": {"fabric": "compute", "files": {}, "config": "opensm-node-1.conf"},
    "ib_port": {"guid": "0x1", "port": 1, "state": "disabled"},
    "kernel_arguments": {},
    "monitoring_server": {},
    "nic_firmware": {"settings": []},
    "pci_tuning": {"settings": []},
    "roce_counters_info": {},
    "roce_host": {},
    "roce_nic_info": {},
    "slurm_release": {"proved": []},
    "sriov": {"functions": []},
    "vfio_binding": {"devices": []},
}
# Wrong arguments of the other modules, and the message of the refusal.
TOPOLOGY = {"format": "other"}
NO_TOPOLOGY = (
    "not a topology: its format is 'other', expected 'sailloft-topology/1'; read it again with host_topology_info"
)
STORE = {"store": "/nowhere"}
NO_STORE = "store /nowhere: not a store, it has no directory blobs; give the path of a store, or build an image"
KEYS = {"signing_key": "/nowhere/key", "public_key": "/nowhere/key.pub"}
NO_SWITCHES = "switches: there are none; put switches into the inventory's group roce_switches"
NO_LOGIN = (
    "hostname, username or password of vCenter is missing; set them from a vault, or VMWARE_HOST, VMWARE_USER and "
    "VMWARE_PASSWORD in the environment"
)
HOLDER = {"user": "anne", "host": "ctl1", "machine": "", "process": 1, "playbook": "a.yml", "since": "today"}
MEASURED = {"nvbandwidth": {}, "nccl": {}, "nccl_nodes": {}}
REFUSED = {
    "slurm_service": (
        {"part": "node"},
        "slurm_service: controllers is empty; name the controllers, the primary first",
    ),
    "cabling_info": (
        {"text": "{"},
        "neighbours: lldpcli's output is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1); provide the complete output of the command",
    ),
    "gpu_acceptance_proof": (
        {"path": "/nowhere", "name": "gpu01", "machine": "guest", "topology": TOPOLOGY, **MEASURED},
        f"gpu01: {NO_TOPOLOGY}",
    ),
    "gpu_domain": (
        {"domains": [{"name": "a", "memory_mib": 1, "gpus": 8}]},
        "virtual machine a: gpus: not a dictionary; write it as name: value pairs",
    ),
    "gpu_domain_info": (
        {"domains": [{"name": "a", "memory_mib": 1, "gpus": 8}]},
        "virtual machine a: gpus: not a dictionary; write it as name: value pairs",
    ),
    "gpu_node": (
        {"driver": "1"},
        "gpu_node: driver 1 is not in the table of releases, which lists what goes with it; use one of ",
    ),
    "gpu_plan": ({"topology": TOPOLOGY}, f"host: {NO_TOPOLOGY}"),
    "gpu_vm_follow_info": (
        {"domain": {"name": "a", "gpus": 8}, "server": "gpu1", "answers": False, "bmc": ""},
        "virtual machine a: gpus: not a dictionary; write it as name: value pairs",
    ),
    "gpu_vm_proof": (
        {"path": "/nowhere", "name": "vm1", "host_name": "gpu01", "host_topology": TOPOLOGY, "domain": {}},
        f"vm1: {NO_TOPOLOGY}",
    ),
    "host_topology_info": (
        {"recording": "/nowhere"},
        "/nowhere cannot be read: No such file or directory; a recording is a directory with sys and proc, a tar of "
        "one, hwloc XML, NCCL XML, or JSON of host_topology_info",
    ),
    "netbox_links_info": (
        {"netbox_url": "nowhere", "netbox_token": "secret"},
        "NetBox: nowhere/api/dcim/interfaces/: this is not a response of NetBox; check the URL",
    ),
    "monitoring_node": (
        {"network": "10.0.0.1/16"},
        "monitoring_node: network is '10.0.0.1/16': 10.0.0.1/16 has host bits set; write it like 10.0.0.0/16",
    ),
    "node_boot_certificate": (
        {
            "node": "bm01",
            "certificate": "x",
            "bmc": {"address": "x", "username": "x", "password": "secret", "type": "ipmi"},
        },
        "bm01: ",
    ),
    "node_boot_hold": (
        {**STORE, "name": "a", "holder": HOLDER},
        "hold 'a': not a hold name; give it as it was reported, like hold-0123abcd",
    ),
    "node_boot_scripts": ({**STORE, "nodes": []}, NO_STORE),
    "node_consoles": (
        {"consoles": [{"name": "bm01", "device": "ipmi:10.0.0.1", "username": "root", "password": "secret" * 4}]},
        "bm01: its password has 24 bytes; IPMI takes 1 to 20; ",
    ),
    "node_firmware": (
        {"nodes": [{"name": "bm01", "baselines": {"X": {"bios": []}}}]},
        "bm01: node_bmc_baselines.X.bios: not a dictionary; ",
    ),
    "node_wipe": ({"disks": []}, "the policy is never: nothing was erased; "),
    "crash_dumps_info": ({"path": "/nowhere"}, "/nowhere: No such file or directory; "),
    "node_crash_dump": (
        {"key": "age1x", "init": ""},
        "node_crash_dump: key: 'age1x' is no public key of age; give the one that age-keygen shows, age1...",
    ),
    "node_health": (
        {"expected": "{}"},
        "node_health: expected: not a list of what a node must have: its format is None, "
        "expected 'sailloft-health-expected/1'; write it again with the role node_health",
    ),
    "node_health_proof": (
        {"path": "/no\0where", "bmcs": {}},
        r"cannot read '/no\x00where/health-bmcs.json': ",
    ),
    "node_inspection": ({}, "node_inspection: this host is no image: nothing was changed; "),
    "nodes_pending_info": ({"path": "/nowhere"}, "/nowhere: keeps no reports: No such file or directory; "),
    "storage_client": (
        {"local": [{"name": "cache"}]},
        "storage_client.local[0]: give either drives or numa_node; name the drives by PCI address, or a node with ",
    ),
    "node_logs": ({}, "node_logs: no receiver is set; set kafka or elasticsearch, or state: absent"),
    "node_boot_statement": (
        {**STORE, **KEYS, "nodes": [], "stores": [], "days": 0},
        "node_boot_statement_days: 0 is not a number of days; give 1 to 3650",
    ),
    "node_identity": ({**STORE, **KEYS, "nodes": []}, NO_STORE),
    "node_identity_approval": (
        {"node": "bm01", "ek": "AAAA"},
        "node bm01: not an RSA 2048 endorsement key of the TCG's template L-1; give what node_identity_info returns "
        "as ek",
    ),
    "node_identity_info": ({"tcti": "nowhere"}, "TPM nowhere: "),
    "node_identity_quote": (
        {**STORE, "node": "bm01", "public_key": "/nowhere", "ek": "AAAA", "ak": "AAAA"},
        "node bm01: not an attestation key of a TPM; give what node_identity_info returns as ak",
    ),
    "node_image": (
        {"layers": {}, "images": {}, **KEYS},
        "first_stage: no script was given; use the module through its action plugin, or give its text",
    ),
    "node_image_channel": ({**STORE, "channel": "stable", "state": "absent"}, NO_STORE),
    "node_image_keep": (
        {"nodes": [{"name": "bm01"}], "stores": [], "without": ["bm02"]},
        "node bm02: is to be left out, but is not a node of the inventory; correct its name",
    ),
    "node_image_rollout": (
        {"target": "x", "channel": "stable", "stores": [], "nodes": [], "without": ["bm02"]},
        "node bm02: is left out of the rollout, but is not a node of the channel; correct node_boot_rollout_without",
    ),
    "node_image_store": (STORE, NO_STORE),
    "roce_fabric_drift": ({"path": "/nowhere", "switches": {}, "running": {"leaf1": ""}}, NO_SWITCHES),
    "roce_fabric_proof": ({"path": "/nowhere", "switches": {}, "running": {}}, "running: it is empty; "),
    "roce_path_info": ({"switches": {}, "running": {}, "nics": {}}, NO_SWITCHES),
    "roce_switch_config": ({"switches": {}}, NO_SWITCHES),
    "storage_scale_plan": (SCALE, "storage_scale: cluster: 'a b' "),
    "storage_scale_proof": (SCALE, "storage_scale: cluster: 'a b' "),
    "vsphere_gpu_vm": ({"domains": []}, NO_LOGIN),
    "vsphere_gpu_vm_info": ({}, NO_LOGIN),
    "vsphere_host_passthrough": ({"settings": []}, NO_LOGIN),
    "vsphere_host_topology_info": ({}, NO_LOGIN),
}


# These have a result, or depend on the machine. node_boot_restart and node_fence are tested with BMCs.
NEVER_REFUSED = (
    "node_console_info",
    "fleet_node_info",
    "gpu_acceptance_run",
    "gpu_storage_info",
    "ib_fabric_info",
    "node_boot_restart",
    "node_fence",
    "node_health_info",
    "node_image_info",
    "storage_scale_info",
)


class Made(BaseException):
    """Raised in place of the creation of an AnsibleModule."""


def merged(below, above):
    """Return two trees of dictionaries as one; ``above`` comes first where both have a value."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {
        name: merged(below[name], above[name]) if name in below and name in above else {**below, **above}[name]
        for name in {**below, **above}
    }


def documentation(name):
    """Return the module's documentation with the options and attributes of its fragments."""
    for node in ast.parse((PLUGINS / "modules" / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION":
            found = yaml.safe_load(ast.literal_eval(node.value))
    for fragment in found.get("extends_documentation_fragment", []):
        file, _dot, part = fragment.removeprefix("sailloft.fleet.").partition(".")
        source = importlib.import_module(f"{COLLECTION}.doc_fragments.{file}").ModuleDocFragment
        more = yaml.safe_load(getattr(source, part.upper() or "DOCUMENTATION"))
        for key in ("options", "attributes"):
            found[key] = merged(more.get(key, {}), found.get(key, {}))
    return found


@pytest.fixture
def made(monkeypatch):
    """Return a function that runs a module until it creates its AnsibleModule, and returns the arguments of that."""
    kept = {}

    def init(self, argument_spec, **others):
        kept.update(others, argument_spec=argument_spec)
        raise Made

    def run(name):
        with pytest.raises(Made):
            runpy.run_path(str(PLUGINS / "modules" / f"{name}.py"), run_name="__main__")
        return kept

    monkeypatch.setattr(AnsibleModule, "__init__", init)
    return run


def faults(spec, options, where=""):
    """Yield the differences between an argument specification and the documented options, level by level."""
    for name in sorted({*spec, *options}):
        at = f"{where}{name}"
        if name not in spec or name not in options:
            yield f"{at} is only in the {'specification' if name in spec else 'documentation'}"
            continue
        held, told = spec[name], options[name]
        for key, default in (("required", False), ("default", None), ("type", "str"), ("elements", None)):
            one, other = held.get(key, default), told.get(key, default)
            if one != other:
                yield f"{at}: {key} is {one!r}, documented {other!r}"
        if list(held.get("choices") or []) != list(told.get("choices") or []):
            yield f"{at}: choices are {held.get('choices')!r}, documented {told.get('choices')!r}"
        yield from faults(held.get("options") or {}, told.get("suboptions") or {}, f"{at}.")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_the_options_and_the_check_mode_of_its_documentation(made, name):
    arguments, described = made(name), documentation(name)
    assert list(faults(arguments["argument_spec"], described.get("options", {}))) == []
    support = described["attributes"]["check_mode"]["support"]
    assert bool(arguments.get("supports_check_mode")) == (support in ("full", "partial"))


def options(spec, where=""):
    """Yield the options of an argument specification and those within them, with their full names."""
    for name, option in spec.items():
        yield f"{where}{name}", option
        yield from options(option.get("options") or {}, f"{where}{name}.")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_neither_logs_nor_returns_secrets(made, name):
    found = dict(options(made(name)["argument_spec"]))
    assert [option for option in found if found[option].get("no_log")] == SECRETS.get(name, [])
    # Ansible warns of an option with such a name that does not say whether it is a secret.
    doubtful = [option for option in found if PASSWORD_MATCH.search(option.rpartition(".")[2])]
    assert [option for option in doubtful if "no_log" not in found[option]] == []


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a module outside of an image and returns its result."""
    for name in ("debian_chroot", "VMWARE_HOST", "VMWARE_USER", "VMWARE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)

    def call(name, given, **more):
        given = json.loads(json.dumps({**given, **more, "_ansible_module_name": f"sailloft.fleet.{name}"}))
        with patch_module_args(given), pytest.raises(SystemExit):
            runpy.run_path(str(PLUGINS / "modules" / f"{name}.py"), run_name="__main__")
        return json.loads(capsys.readouterr().out)

    mask = os.umask(0o022)  # node_image sets it
    yield call
    os.umask(mask)
    gc.enable()  # roce_path_info disables it


def test_the_tests_below_call_each_module():
    assert sorted([*REFUSED, *OF_THE_KERNEL, *NEVER_REFUSED]) == MODULES


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_a_module_refuses_wrong_arguments_with_one_message(run, name, check_mode):
    given, message = REFUSED[name]
    result = run(name, given, _ansible_check_mode=check_mode)
    assert result["failed"] is True
    assert result["msg"].startswith(message)
    assert "\n" not in result["msg"]
    assert "secret" not in json.dumps(result)


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("name", OF_THE_KERNEL)
def test_a_module_of_the_running_kernel_is_refused_in_an_image(run, name, check_mode, monkeypatch):
    monkeypatch.setenv("debian_chroot", "image")
    result = run(name, OF_THE_KERNEL[name], _ansible_check_mode=check_mode)
    assert result["failed"] is True
    assert result["msg"] == Mentions(f"sailloft.fleet.{name}", "image", "kernel", "gpu_host_boot", "now: false")


def test_nothing_is_removed_from_an_image_that_has_nothing(run, monkeypatch):
    monkeypatch.setenv("debian_chroot", "image")
    result = run("gpu_node", {"state": "absent"}, _ansible_check_mode=True)
    assert (result.get("msg"), result["changed"], result["diff"]["after"]) == (None, False, {})


def test_a_fabric_is_followed_without_the_search_for_reference_cycles(run):
    run("roce_path_info", REFUSED["roce_path_info"][0])
    assert not gc.isenabled()


def test_a_note_about_a_recording_is_a_warning(run, tmp_path):
    recording = tmp_path / "recording.json"
    host = read_recording(str(RECORDINGS / "llnl-corona.json"))
    host.notes = ["the memory of node 1 is not known"]
    recording.write_text(json.dumps(host.to_dict()))
    result = run("host_topology_info", {"recording": str(recording)})
    (warning,) = result["warnings"]
    assert f"{recording}: the memory of node 1 is not known" in str(warning)


@pytest.fixture
def no_binding(monkeypatch):
    """Take libvirt's binding away from this interpreter; the list of interpreters that a module is run again with."""
    again = []
    monkeypatch.setattr(client, "libvirt", None)
    monkeypatch.setattr(respawn, "probe_interpreters_for_module", lambda paths, _name: paths[0])

    def respawned(interpreter):
        again.append(interpreter)
        raise SystemExit(print("{}"))

    monkeypatch.setattr(respawn, "respawn_module", respawned)
    return again


@pytest.mark.parametrize(
    ("name", "given", "times"),
    [
        ("gpu_domain", {"domains": []}, 1),
        ("gpu_domain_info", {}, 1),
        ("gpu_host", {"gpu_domain": {}}, 1),
        ("gpu_host", {}, 0),
    ],
)
def test_a_module_is_run_again_where_libvirt_has_its_binding(run, no_binding, name, given, times):
    run(name, given, _ansible_check_mode=True)
    assert len(no_binding) == times
