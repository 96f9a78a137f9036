# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each step works on all nodes at once, with each node's own variables, and a failure of one is the reason in its
row.

One file because all tests boot the nodes of one simulated site.
"""

from __future__ import annotations

import base64
import json
import threading
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleUndefinedVariable
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.action import node_boot_fleet
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware, ShownSetting
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_fleet
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import INITRD, boot_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes import shells

IMAGE = Sample("gpu-node", knows=(), base=b"base", gpu=b"driver")
OTHER = Sample("gpu-node", knows=(), base=b"base", gpu=b"driver 2")
MAC, SERVER = "52:54:00:00:00:01", "http://10.9.0.1"


def state(image=IMAGE, name="bm01"):
    """Return the result of node_image_info on a node that runs the image."""
    manifest = image.manifest
    words = [INITRD, *boot_words(image.digest, SERVER, name, "", MAC.replace(":", "-"))]
    line = " ".join([words[0], *manifest.kernel_arguments, *words[1:]])
    layers = [{"name": layer.name, "sha256": layer.sha256, "verity": True} for layer in manifest.layers]
    report = {
        "node": name,
        "name": manifest.name,
        "kernel": manifest.kernel.version,
        "arguments": line,
        "host_keys": [],
    }
    report |= {"image": image.digest, "layers": layers, "writable_bytes": manifest.writable_mib << 20, "warnings": []}
    return {
        "image": image.digest,
        "reason": "",
        "report": report,
        "boot_arguments": words,
        "host_key": "",
        "has_identity": False,
        "boot_id": "1",
        "kernel": manifest.kernel.version,
        "command_line": line,
        "arguments": list(manifest.kernel_arguments),
        "verity_possible": True,
        "systemd": {"state": "running", "finished_s": 9.0},
        "failed_units": [],
    }


BMC = {"address": "10.9.9.1", "username": "root", "password": "none"}


class Place:
    """A host as the action reaches it: its variables, and the answers of its shell."""

    def __init__(self, name, variables, site):
        self.name, self.variables, self.values, self.interpreter = name, variables, dict(variables), "python3"
        self.shell, self.site = self, site

    def program(self, module, arguments, _variables):
        return (module.rpartition(".")[2], arguments)

    def port(self):
        return None

    def module(self, program, _interpreter):
        return getattr(self.site, program[0])(self.name, **program[1])

    def command(self, words):
        return self.site.command(self.name, words)


class Site:
    """Nodes that run an image, their BMCs, and what happens to them; ``fates`` by node."""

    def __init__(self, monkeypatch, nodes, variables=None, fates=None):
        own = {"node_boot_mac": MAC, "node_boot_server_urls": [SERVER], "node_boot_bmc": dict(BMC)}
        self.variables = {name: {**own, **(variables or {}).get(name, {})} for name in nodes}
        self.runs, self.files = dict.fromkeys(nodes, OTHER), dict.fromkeys(nodes, "")
        self.fates, self.boots, self.commands = fates or {}, dict.fromkeys(nodes, 1), []
        self.asked = []
        self.clock = SimpleNamespace(now_s=1000.0)
        self.lock = threading.Lock()
        monkeypatch.setattr(shells, "ReachedHost", lambda _action, name, *_rest: self.place(name))
        monkeypatch.setattr(boot_fleet, "INTERVAL_S", 0.02)

    def place(self, name):
        return Place(name, self.variables.get(name, {}), self)

    def node_image_info(self, name):
        fate = self.fates.get(name, "")
        if fate == "silent":
            raise AnsibleConnectionFailure("a warning\nno route to host")
        if fate == "hangs":
            threading.Event().wait(5)
        boot = self.boots[name]
        seen = state(self.runs[name], name)
        seen["report"]["files"] = self.files[name]
        return {"boot_id": str(boot), "uptime_s": 0.0, **{key: seen[key] for key in seen if key != "boot_id"}}

    def node_boot_restart(self, place, nodes, host):
        if self.fates.get(place) == "silent":
            raise AnsibleConnectionFailure("gone")
        told = {}
        for row in nodes:
            name, fate = row["node"], self.fates.get(row["node"], "")
            if fate not in ("refused", "liar"):
                self.boots[name] += 1
                self.runs[name] = IMAGE
            requested = fate != "refused"
            told[name] = {"msg": fate if fate in ("refused", "busy") else "", "requested": requested, "since_s": 0.5}
        return {"nodes": told}

    def node_firmware(self, place, nodes, restarted, **given):
        self.asked.append(
            (place, "read back" if restarted else "set", [row["name"] for row in nodes], dict(self.boots))
        )
        shown = {}
        for row in nodes:
            fate = self.fates.get(row["name"], "")
            setting = ShownSetting("bios", "Turbo", "Off", "On" if fate == "forgets" else "Off")
            shown[row["name"]] = NodeFirmware("X", (setting,), "no model" if fate == "unset" else "").to_dict()
        return {"nodes": shown}

    def node_console_info(self, place, nodes, log_dir):
        self.asked.append((place, log_dir, [row["name"] for row in nodes]))
        texts = {"lines": ["Kernel panic", f"password {BMC['password']}"], "msg": ""}
        return {"nodes": {row["name"]: dict(texts) for row in nodes}}

    def command(self, place, words):
        with self.lock:
            self.commands.append((place, " ".join(words)))
        if self.fates.get(place) == "dies":
            raise AnsibleConnectionFailure("timed out")
        failed = any(self.fates.get(name) == "sick" for name in words)
        return {"rc": int(failed), "stdout": "", "stderr": "2 of 8 GPUs" if failed else ""}


@pytest.fixture
def take(make, tmp_path):
    """Return a function that takes a step, for its result."""
    texts = [{"item": IMAGE.digest, "content": base64.b64encode(manifests.dump(IMAGE.manifest)).decode()}]

    def call(site, step, rows=None, check_mode=False, **given):
        names = list(site.variables)
        rows = rows or {name: {"image": IMAGE.digest, "channel": ""} for name in names}
        arguments = {"step": step, "names": names, "rows": rows, "manifests": texts, "path": str(tmp_path / "proofs")}
        action = make(node_boot_fleet, check_mode, **{**arguments, **given})
        hostvars = SimpleNamespace(_inventory=None, _variable_manager=None)
        return action.run(task_vars={"hostvars": hostvars})

    return call


def boot(take, site, **given):
    """Return the rows after all steps of a boot."""
    rows = take(site, "look", **given)["rows"]
    for step in ("drain", "boot", "prove", "return", "returned"):
        rows = take(site, step, rows, **given)["rows"]
    return rows


NAMES = ("bm01", "bm02", "bm03")
SHORT = {"node_boot_timeout_s": 1, "node_boot_restart_timeout_s": 0.1}


def test_nodes_are_booted_proved_and_returned(take, monkeypatch, tmp_path):
    hooks = {
        "node_boot_drain": {"command": ["drain", "it"]},
        "node_boot_health": {"command": ["gpu-health", "all of them"]},
        "node_boot_return": {"command": ["resume"], "host": "ctl1"},
    }
    site = Site(monkeypatch, NAMES, dict.fromkeys(NAMES, hooks))
    site.runs["bm01"], site.boots["bm01"] = IMAGE, 7
    rows = boot(take, site)
    assert {name: row["holds"] for name, row in rows.items()} == dict.fromkeys(NAMES, True)
    assert (site.boots, rows["bm02"]["running"]) == ({"bm01": 7, "bm02": 2, "bm03": 2}, IMAGE.digest)
    ran = sorted(site.commands)
    assert [place for place, words in ran if words == "drain it"] == ["localhost"] * 2
    assert [place for place, words in ran if words == "gpu-health all of them"] == list(NAMES)
    assert [place for place, words in ran if words == "resume"] == ["ctl1"] * 2
    for name in NAMES:
        proof = json.loads((tmp_path / "proofs" / f"{name}.json").read_text())
        assert proof["holds"] is True
        assert [claim["source"] for claim in proof["claims"] if claim["layer"] == "health"] == [
            "gpu-health all of them"
        ]


def test_a_node_with_other_files_than_the_inventory_boots_again(take, monkeypatch):
    """Its report has the digest of the files that it wrote."""
    files = {"/etc/hosts": {"content": "10.9.0.1 boot01\n"}}
    site = Site(monkeypatch, NAMES, {"bm02": {"node_boot_files": files}})
    site.runs = dict.fromkeys(NAMES, IMAGE)
    rows = take(site, "look")["rows"]
    assert [name for name in NAMES if rows[name]["needed"]] == ["bm02"]
    text = node_files.text_of("bm02", files)
    monkeypatch.setitem(site.files, "bm02", node_files.digest_of(text))
    assert not any(row["needed"] for row in take(site, "look")["rows"].values())


@pytest.mark.parametrize(
    ("fate", "part"),
    [
        ("silent", "no route to host"),
        ("refused", "refused"),
        ("liar", "previous boot"),
        ("hangs", "no answer in"),
        ("sick", "GPUs"),
        ("dies", "timed out"),
    ],
)
def test_a_node_that_fails_has_the_reason_and_does_not_stop_the_others(take, monkeypatch, fate, part):
    own = {name: {"node_boot_health": {"command": ["gpu-health", name]}, **SHORT} for name in NAMES}
    site = Site(monkeypatch, NAMES, own, {"bm02": fate})
    rows = boot(take, site, read_s=1 if fate == "hangs" else 10)
    assert {name: row["holds"] for name, row in rows.items()} == {"bm01": True, "bm02": False, "bm03": True}
    assert part in rows["bm02"]["why"]
    assert rows["bm02"]["out"] is True
    assert (rows["bm01"]["why"], rows["bm01"]["out"]) == ("", False)


BASELINE = {"node_bmc_baselines": {"X": {"bios": {"Turbo": "Off"}}}, "node_bmc_set": ["bios"]}


def test_a_baseline_is_set_before_the_restart_and_read_back_after_it(take, monkeypatch):
    own = dict.fromkeys(NAMES[:2], BASELINE)
    site = Site(monkeypatch, NAMES, own)
    rows = boot(take, site)
    assert all(row["holds"] for row in rows.values())
    assert site.asked == [
        ("localhost", "set", list(NAMES[:2]), dict.fromkeys(NAMES, 1)),
        ("localhost", "read back", list(NAMES[:2]), dict.fromkeys(NAMES, 2)),
    ]


def test_a_node_that_does_not_get_its_baseline_fails_alone(take, monkeypatch):
    own = dict.fromkeys(NAMES, BASELINE)
    own["bm04"] = {**BASELINE, "node_bmc_baselines": {"X": {"bioss": {}}}}
    site = Site(monkeypatch, [*NAMES, "bm04"], own, {"bm02": "unset", "bm03": "forgets"})
    rows = boot(take, site)
    assert {name: row["holds"] for name, row in rows.items()} == {
        "bm01": True,
        "bm02": False,
        "bm03": False,
        "bm04": False,
    }
    assert site.boots == {"bm01": 2, "bm02": 1, "bm03": 2, "bm04": 1}
    assert "no model" in rows["bm02"]["why"]
    assert "Turbo" in rows["bm03"]["why"]
    assert "bioss" in rows["bm04"]["why"]
    assert rows["bm03"]["out"]


def test_the_consoles_of_nodes_that_do_not_boot_are_read_in_one_call(take, monkeypatch, capsys):
    own = {name: {"node_bmc_console_server": "boot01", **SHORT} for name in NAMES}
    site = Site(monkeypatch, NAMES, own, {"bm02": "liar", "bm03": "liar"})
    rows = boot(take, site)
    ((place, _folder, names),) = site.asked
    assert (place, sorted(names)) == ("boot01", ["bm02", "bm03"])
    shown = capsys.readouterr().out
    assert "bm02: Kernel panic" in shown
    assert "previous boot" in rows["bm02"]["why"]
    assert "its console: password" in rows["bm02"]["why"]
    assert BMC["password"] not in shown + rows["bm02"]["why"]
    assert rows["bm01"]["holds"]


def test_a_bmc_that_fails_after_the_request_decides_nothing(take, monkeypatch):
    site = Site(monkeypatch, NAMES, dict.fromkeys(NAMES, SHORT), {"bm02": "busy"})
    rows = boot(take, site)
    assert rows["bm02"]["holds"] is True


def test_nodes_whose_bmcs_are_reached_through_a_lost_host_fail_alone(take, monkeypatch):
    own = {name: {**SHORT, "node_boot_bmc_from": f"rack{name[-1]}"} for name in NAMES}
    site = Site(monkeypatch, NAMES, own, {"rack2": "silent"})
    rows = boot(take, site)
    assert [name for name in NAMES if not rows[name]["holds"]] == ["bm02"]
    assert all(part in rows["bm02"]["why"] for part in ("bm02", "rack2", "gone"))


@pytest.mark.parametrize("bmc", [{}, {"address": "10.9.9.1"}, {**BMC, "type": "snmp"}, {**BMC, "systm": "1"}])
def test_a_bmc_that_cannot_be_asked_is_a_failure_of_its_node_alone(take, monkeypatch, bmc):
    site = Site(monkeypatch, NAMES, {"bm02": {"node_boot_bmc": bmc}})
    rows = boot(take, site)
    assert [name for name in NAMES if not rows[name]["holds"]] == ["bm02"]
    assert "node_boot_bmc" in rows["bm02"]["why"]
    assert "none" not in rows["bm02"]["why"]


def test_a_drain_that_fails_leaves_the_node_as_it_is(take, monkeypatch):
    own = {name: {"node_boot_drain": {"command": ["drain", name]}} for name in NAMES}
    site = Site(monkeypatch, NAMES, own, {"bm02": "sick"})
    rows = boot(take, site)
    assert (site.boots["bm02"], rows["bm02"]["holds"], rows["bm02"]["out"]) == (1, False, False)
    assert all(part in rows["bm02"]["why"] for part in ("drain bm02", "2 of 8 GPUs"))


def test_check_mode_shows_what_would_boot_and_changes_nothing(take, monkeypatch, tmp_path, capsys):
    site = Site(monkeypatch, NAMES, {name: {"node_boot_drain": {"command": ["drain"]}} for name in NAMES})
    site.runs["bm01"] = IMAGE
    rows = take(site, "look", check_mode=True)["rows"]
    for step in ("drain", "boot", "return", "returned"):
        result = take(site, step, rows, check_mode=True)
        assert (result["rows"], result["changed"]) == (rows, step == "boot")
    assert "bm[02-03]" in capsys.readouterr().out
    assert (site.commands, set(site.boots.values())) == ([], {1})
    assert not (tmp_path / "proofs").exists()


def test_hooks_that_are_files_of_tasks_are_due_and_count_only_when_they_have_ended(take, monkeypatch):
    hooks = {f"node_boot_{name}": {"tasks": f"{name}.yml"} for name in ("drain", "health", "return")}
    site = Site(monkeypatch, NAMES, {"bm02": {**hooks, **SHORT}})
    rows = take(site, "look")["rows"]
    for step, hook in (("drain", "node_boot_drain"), ("boot", "node_boot_health"), ("return", "node_boot_return")):
        result = take(site, step, rows)
        assert result["due"] == ["bm02"], step
        following = {"drain": "boot", "boot": "prove", "return": "returned"}[step]
        for ran, part in (({}, hook), ({"hook": hook, "failure": "no GPU"}, "no GPU")):
            site.variables["bm02"]["__node_boot_ran"] = ran
            lost = take(site, following, result["rows"])["rows"]["bm02"]
            assert (lost["holds"], part in lost["why"] or following == "prove") == (False, True), step
        site.variables["bm02"]["__node_boot_ran"] = {"hook": hook}
        rows = result["rows"] if following == "boot" else take(site, following, result["rows"])["rows"]
    assert (rows["bm02"]["holds"], rows["bm02"]["out"]) == (True, False)


def test_the_plan_of_the_boot_is_that_of_the_nodes_own_variables(take, monkeypatch):
    for setting, value in {
        "node_boot_mac": "52:54:00:00:00:02",
        "node_boot_server_urls": ["http://10.9.0.2"],
        "node_boot_report_url": "http://10.9.0.1/report",
        "node_boot_secure_boot": True,
        "node_boot_kernel_arguments": ["quiet"],
    }.items():
        site = Site(monkeypatch, ["bm01"], {"bm01": {setting: value}})
        site.runs["bm01"] = IMAGE
        row = take(site, "look")["rows"]["bm01"]
        assert (row["holds"], bool(row["why"])) == (False, True), setting


def test_a_spare_is_proved_and_stays_out_until_it_is_named(take, monkeypatch):
    site = Site(monkeypatch, ["bm01"], {"bm01": {"site_spare": True, "node_boot_return": {"command": ["resume"]}}})
    rows = boot(take, site)
    assert (rows["bm01"]["holds"], site.commands) == (True, [])
    take(site, "spares", rows)
    assert site.commands == [("localhost", "resume")]


@pytest.mark.parametrize("jump_s", [-86400.0, 86400.0])
def test_a_clock_of_the_controller_that_jumps_fails_no_node(take, monkeypatch, jump_s):
    real = node_boot_fleet.time.time
    jumps = iter([0.0, *[jump_s] * 10_000])
    monkeypatch.setattr(node_boot_fleet.time, "time", lambda: real() + next(jumps))
    rows = boot(take, Site(monkeypatch, NAMES))
    assert all(row["holds"] for row in rows.values())


def test_a_drain_that_is_a_file_of_tasks_runs_on_nodes_that_were_not_looked_at(take, monkeypatch):
    """A node whose disks are to be erased need not answer for its image."""
    site = Site(monkeypatch, NAMES, {"bm02": {"node_boot_drain": {"tasks": "drain.yml"}}})
    result = take(site, "drain", {name: {"needed": True} for name in NAMES})
    assert result["due"] == ["bm02"]
    for ran, failed in (
        ({}, True),
        ({"hook": boot_fleet.DRAIN, "failure": "jobs"}, True),
        ({"hook": boot_fleet.DRAIN}, False),
    ):
        site.variables["bm02"]["__node_boot_ran"] = ran
        rows = take(site, "drained", result["rows"])["rows"]
        assert [name for name in NAMES if rows[name]["why"]] == (["bm02"] if failed else [])


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"node_boot_bmc_from": "nowhere"}, "nowhere"),
        ({"node_boot_drain": {"command": ["drain"], "host": "nowhere"}}, "nowhere"),
        ({"node_boot_health": {"command": ["gpu-health"], "host": "nowhere"}}, "nowhere"),
        ({"node_boot_return": {"command": ["resume"], "host": "nowhere"}}, "nowhere"),
        ({"node_boot_drain": {"command": "drain it"}}, "node_boot_drain"),
        ({"node_boot_drain": "drain.sh"}, "variables"),
        ({"node_boot_power_kw": "10 kW"}, "10 kW"),
        ({"site_domains": ["rack1"]}, "site_domains"),
        ({"node_boot_timeout_s": "30m"}, "30m"),
        ({"node_boot_kernel_arguments": 5}, "variables"),
        ({**BASELINE, "node_bmc_set": "bios"}, "node_bmc_set"),
        ({**BASELINE, "node_bmc_set": ["bioss"]}, "bioss"),
        ({**BASELINE, "node_bmc_set": 1}, "node_bmc_set"),
        ({**BASELINE, "node_bmc_baselines": ["X"]}, "node_bmc_baselines"),
        ({**BASELINE, "node_boot_bmc_from": "nowhere"}, "nowhere"),
    ],
)
def test_a_wrong_variable_of_a_node_fails_this_node_alone(take, monkeypatch, variables, part):
    site = Site(monkeypatch, NAMES, {"bm02": variables})
    reached = site.place

    def place(name):
        if name == "nowhere":
            raise AnsibleActionFail("nowhere: the inventory has no such host")
        return reached(name)

    monkeypatch.setattr(site, "place", place)
    rows = boot(take, site)
    assert {name: row["holds"] for name, row in rows.items()} == {"bm01": True, "bm02": False, "bm03": True}
    assert part in rows["bm02"]["why"]
    assert rows["bm02"]["why"].count("bm02") == 1
    # Only a hook that is asked after the boot is too late.
    assert (site.boots["bm02"], rows["bm02"]["out"]) == ((2, True) if rows["bm02"]["booted"] else (1, False))


class Templates(dict):
    """Variables of which one is a template that names an unknown variable."""

    def __init__(self, values, wrong):
        super().__init__(values)
        self.wrong = wrong

    def get(self, name, default=None):
        if name == self.wrong:
            raise AnsibleUndefinedVariable("'rack_gateway' is undefined")
        return super().get(name, default)


@pytest.mark.parametrize("wrong", ["node_boot_nics", "node_boot_files", "node_boot_bmc_from", "node_bmc_set"])
def test_a_template_of_a_node_that_cannot_be_read_fails_this_node_alone(take, monkeypatch, wrong):
    site = Site(monkeypatch, NAMES)
    site.variables["bm02"] = Templates(site.variables["bm02"], wrong)
    rows = boot(take, site)
    assert {name: row["holds"] for name, row in rows.items()} == {"bm01": True, "bm02": False, "bm03": True}
    assert "rack_gateway" in rows["bm02"]["why"]


def test_a_node_whose_return_fails_is_out_of_service(take, monkeypatch):
    site = Site(monkeypatch, NAMES, {name: {"node_boot_return": {"command": ["resume", name]}} for name in NAMES})
    site.fates["bm02"] = "sick"
    rows = boot(take, site)
    assert {name: (row["holds"], row["out"]) for name, row in rows.items()} == {
        "bm01": (True, False),
        "bm02": (False, True),
        "bm03": (True, False),
    }
