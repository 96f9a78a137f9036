# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module roce_switch_config, called as Ansible calls it, with a made-up system."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from messages import Mentions
from plain_system import PLAIN
from switches import ASIC_OF, OWN_ASICS, PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.modules import roce_fabric_proof, roce_switch_config

PROJECT = Path(__file__).parents[4]
SWITCHES = {
    name: {
        "system": "plain",
        "asic": "spectrum4",
        "ports": {
            "swp1": {"speed_gbit_s": 400, "cable_m": 5, "peer": {"host": f"gpu-{name}", "port": "mlx5_0"}},
            "swp2": {"speed_gbit_s": 800, "cable_m": 30, "peer": {"switch": other, "port": "swp2"}},
        },
    }
    for name, other in (("leaf1", "leaf2"), ("leaf2", "leaf1"))
}


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that calls the module and returns its result."""
    monkeypatch.setitem(SYSTEMS, "plain", PLAIN)

    def call(**given):
        with patch_module_args(json.loads(json.dumps({"switches": SWITCHES, **given}))), pytest.raises(SystemExit):
            roce_switch_config.main()
        return json.loads(capsys.readouterr().out)

    return call


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_configurations_are_returned_without_a_path(run):
    result = run()
    assert not result["changed"]
    assert list(result["rendered"]) == ["leaf1", "leaf2"]
    seen = PLAIN.parse(result["rendered"]["leaf1"], "leaf1")
    assert seen.ports["swp1"].queues[3].ecn.minimum_bytes == 600_000


def test_configurations_are_written_to_a_folder_once(run, tmp_path):
    folder = tmp_path / "configs" / "vela"
    given = {"path": str(folder), "_ansible_diff": True}
    asked = run(**given, _ansible_check_mode=True)
    assert asked["changed"]
    assert contents(folder) == {}
    first = run(**given)
    assert {name: first[name] for name in ("changed", "files", "written", "diff")} == {
        name: asked[name] for name in ("changed", "files", "written", "diff")
    }
    texts = run()["rendered"]
    assert contents(folder) == {f"{name}.plain": text.encode() for name, text in texts.items()}
    assert first["diff"] == []  # both files are new
    for lines in (asked["table"], first["table"]):
        assert str(folder) in lines[0]
        for name, line in zip(texts, lines[1:]):
            assert line.split() == [f"{name}.plain", "new,", str(len(texts[name].splitlines())), "lines"]
    second = run(**given)
    assert (second["changed"], second["written"], second["diff"]) == (False, [], [])
    assert second["files"] == first["files"]


def written_at(path: Path) -> tuple[int, int]:
    """Return the values that another write would change; a read can change only the access time."""
    there = path.stat()
    return there.st_ino, there.st_mtime_ns


def test_only_differing_files_are_written(run, tmp_path):
    run(path=str(tmp_path))
    (tmp_path / "leaf2.plain").write_text("edited")
    (tmp_path / "notes").write_text("mine")
    before = written_at(tmp_path / "leaf1.plain")
    result = run(path=str(tmp_path), _ansible_diff=True)
    assert result["written"] == [str(tmp_path / "leaf2.plain")]
    assert [(each["after_header"], each["before"]) for each in result["diff"]] == [(*result["written"], "edited")]
    assert [line.split()[0] for line in result["table"][1:]] == ["leaf2.plain"]
    assert re.search(r" \+\d+ -1 lines$", result["table"][1])
    assert written_at(tmp_path / "leaf1.plain") == before
    assert (tmp_path / "notes").read_text() == "mine"


def test_nothing_is_written_if_one_switch_is_refused(run, tmp_path):
    bad = {**SWITCHES, "leaf3": {"system": "plain", "asic": "none", "ports": {"swp1": {"speed_gbit_s": 400}}}}
    result = run(switches=bad, path=str(tmp_path / "configs"))
    assert result["failed"]
    assert result["msg"].startswith("switch leaf3: ASIC 'none' is unknown; valid values: jericho2, ")
    assert not (tmp_path / "configs").exists()


@pytest.mark.parametrize("name", ["../leaf3", "a/b", ".leaf", ""])
def test_a_switch_name_that_is_not_a_valid_file_name_is_refused(run, tmp_path, name):
    bad = {name: {"system": "plain", "asic": "spectrum4", "ports": {"swp1": {"speed_gbit_s": 400, "cable_m": 5}}}}
    result = run(switches=bad, path=str(tmp_path / "configs"))
    assert result["msg"] == Mentions(name, "_")


def test_an_unwritable_folder_is_reported(run, tmp_path):
    (tmp_path / "file").write_text("")
    output = run(path=str(tmp_path / "file"))["msg"]
    assert re.fullmatch(rf"cannot (read|write) {tmp_path}/file(/leaf1\.\w+)?: .*", output), output


def test_the_options_policy_hosts_and_asics_are_used(run):
    assert run(policy={"classes": {}})["msg"].startswith("roce_policy: classes is not")
    assert run(hosts={})["msg"] == Mentions("host gpu-leaf1", "inventory")
    assert run(hosts={"gpu-leaf1": {"mlx5_0": {}}, "gpu-leaf2": {"mlx5_0": {}}})["rendered"]
    assert run(asics={"own": {}})["msg"] == Mentions("roce_asics: own", "missing")


def test_a_running_configuration_is_parsed(run):
    running = run()["rendered"]
    given = {"state": "parsed", "switches": {"leaf1": {"system": "plain"}}}
    found = run(**given, running={"leaf1": running["leaf1"]})["parsed"]
    assert run(**given, running={"leaf1": json.loads(running["leaf1"])})["parsed"] == found
    assert list(found) == ["leaf1"]
    assert found["leaf1"]["ports"]["swp1"]["dscp_to_class"]["26"] == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state": "parsed"}, Mentions("missing")),
        ({"state": "compared"}, Mentions("missing")),
        ({"state": "parsed", "running": {}}, Mentions("empty")),
        ({"state": "parsed", "running": {"leaf1": "garbage"}}, Mentions("leaf1")),
        ({"state": "parsed", "running": {"leaf1": None}}, Mentions("leaf1")),
        ({"state": "parsed", "running": {"leaf9": "{}"}}, Mentions("leaf9")),
        ({"state": "parsed", "switches": {"a": 5}, "running": {"a": ""}}, Mentions("dictionary")),
        (
            {"state": "parsed", "switches": {"a": {"system": []}}, "running": {"a": ""}},
            Mentions("unknown"),
        ),
        ({"state": "compared", "running": {"leaf9": "{}"}}, Mentions("leaf9")),
    ],
)
def test_invalid_options_are_refused(run, given, message):
    assert run(**given)["msg"] == message


def test_a_running_configuration_is_compared_with_the_wanted_one(run):
    running = run()["rendered"]
    same = run(state="compared", running=running)
    assert (same["as_wanted"], same["differences"]) == (True, {"leaf1": [], "leaf2": []})
    assert same["not_held"]["leaf1"] == PLAIN.not_held
    assert not same["changed"]
    running["leaf2"] = running["leaf2"].replace('"minimum_bytes": 600000', '"minimum_bytes": 600')
    other = run(state="compared", running={"leaf2": running["leaf2"]})
    assert not other["as_wanted"]
    (found,) = other["differences"]["leaf2"]
    assert found == {
        "ports": ["swp1"],
        "what": "queue 3",
        "wanted": "50%, ECN 600000 to 6000000 bytes at 100%",
        "seen": "50%, ECN 600 to 6000000 bytes at 100%",
        "message": "leaf2: swp1: queue 3: wanted 50%, ECN 600000 to 6000000 bytes at 100%, seen 50%, ECN 600 to "
        "6000000 bytes at 100%",
    }


def test_a_failed_proof_names_the_first_difference_and_the_page(run, call, tmp_path):
    port, _up = PORTS["eos"]
    ports = {port: {"speed_gbit_s": 400, "cable_m": 3}}
    switches = {"leaf1": {"system": "eos", "asic": ASIC_OF["eos"], "ports": ports, "queue_buffer_bytes": 50_000_000}}
    given = {"switches": switches, "asics": OWN_ASICS}
    running = run(**given, policy={"classes": {"roce": {"dscp": 30}}})["rendered"]
    result = call(roce_fabric_proof, {**given, "running": running, "path": str(tmp_path)})
    assert result["failed"] is True
    assert result["first"].startswith("leaf1: ")
    assert result["msg"] == f"{result['first']}; see {tmp_path}/fabric.html"


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_each_rendered_configuration_is_read_back_without_differences(run, system):
    """A rendered switch, compared with itself, has no differences: with the reference policy and with two classes."""
    down, up = PORTS[system]
    ports = {down: {"speed_gbit_s": 400, "cable_m": 3}, up: {"speed_gbit_s": 400, "cable_m": 30}}
    switches = {"leaf1": {"system": system, "asic": ASIC_OF[system], "ports": ports}}
    switches["leaf1"]["queue_buffer_bytes"] = 20_000_000
    storage = {"dscp": 20, "traffic_class": 4, "bandwidth_percent": 20, "mode": "lossy"}
    roce = {"mode": "lossy" if system == "linux" else "lossless"}
    for policy in ({"classes": {"roce": roce}}, {"classes": {"roce": roce, "storage": storage}}):
        given = {"policy": policy, "switches": switches, "asics": OWN_ASICS}
        held = run(**given, state="compared", running=run(**given)["rendered"])
        assert held["differences"] == {"leaf1": []}


@pytest.mark.long
@pytest.mark.skipif("sonic" not in SYSTEMS, reason="the example's switches run SONiC")
def test_the_playbook_renders_all_switches_of_the_example_once(tmp_path):
    command = [
        Path(sys.executable).parent / "ansible-playbook",
        "-i",
        "inventories/vela",
        "playbooks/fabric_config.yml",
    ]
    command += ["-e", f"fabric_path={tmp_path}/fabric"]

    def play(*more):
        done = subprocess.run([*command, *more], cwd=PROJECT, capture_output=True, text=True, check=True)
        lines = done.stdout.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{tmp_path}/fabric: 78 switches"))
        table = lines[at : next(n for n, line in enumerate(lines) if n > at and not line.startswith("  "))]
        assert len(lines) < len(table) + 40
        return len(table) - 1

    assert play("--check", "--diff") == 78
    assert contents(tmp_path / "fabric") == {}
    assert play() == 78
    names = sorted(contents(tmp_path / "fabric"))
    assert names[:2] == ["leaf-001.sonic", "leaf-002.sonic"]
    assert names[73:] == ["leaf-074.sonic", *(f"spine-00{number}.sonic" for number in range(1, 5))]
    # A fabric has one plan, regardless of the switches to which the play is limited.
    (tmp_path / "fabric" / "spine-001.sonic").unlink()
    assert play("--limit", "leaf-002") == 1
    # The result does not contain the fabric's variables: Ansible would take longer for them than for everything else.
    done = subprocess.run([*command, "-vvv"], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert "module_args" in done.stdout
    assert "cable_m" not in done.stdout
