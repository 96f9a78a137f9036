# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action report in real runs of Ansible: what a terminal of 80 columns shows, in each format of results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from playing import ANSIBLE, ROOT, ansible_playbook

LINES = [
    "├─ cell 0: \"huge\" pages, it's 'quoted' \\n 100%",
    f"  {'GPU':<14}{'NIC':<14}{'host':<6}{'guest':<7}{'ATS':<5}{'ACS':<9}{'ordering':<10}{'MaxReadReq'} GB/s   verdict",
    "note: " + "a sentence of a hundred words " * 10,
]
# Text of a host, and how it is printed.
HOSTILE, HARMLESS = "bm01: \x1b[2Kapproved\r\nbm02: \u202eok", "bm01: \\x1b[2Kapproved\\r\\nbm02: \\u202eok"
FORMATS = {"the checkout's configuration": {}, "Ansible's default": {"ANSIBLE_CONFIG": "plain.cfg"}}


def play(folder, *arguments, **environment):
    """Run a play that reports LINES for two hosts at a time; return its output."""
    (folder / "plain.cfg").write_text("[defaults]\n")
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"a": {}, "b": {}}}}))
    task = {"name": "Show", "sailloft.fleet.report": {"lines": "{{ lines }}", "subject": "{{ inventory_hostname }}"}}
    tasks = [
        {
            "name": "Read",
            "ansible.builtin.set_fact": {"lines": "{{ lookup('ansible.builtin.file', path) | from_json }}"},
        },
        task,
        {**task, "name": "Hide", "no_log": True, "vars": {"lines": ["a secret"]}},
    ]
    (folder / "lines.json").write_text(json.dumps([*LINES, HOSTILE]))
    (folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    if "ANSIBLE_CONFIG" in environment:
        environment["ANSIBLE_CONFIG"] = str(folder / environment["ANSIBLE_CONFIG"])
    status, output = ansible_playbook(
        *(f"-i{folder}/hosts.json", "-e", f"path={folder}/lines.json", *arguments, f"{folder}/play.json"),
        COLUMNS="80",
        ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".collections"),
        **environment,
    )
    assert status == 0, output
    return output


def check(output):
    """Check that the lines of each host are whole and together, and that no secret is among them."""
    for host in ("a", "b"):
        at = output.index(f"{host}: {LINES[0]}")
        assert output[at : at + 4] == [f"{host}: {line}" for line in (*LINES, HARMLESS)]
    assert sum("cell 0" in line for line in output) == 2
    assert not any("secret" in line for line in output)


@pytest.mark.long
@pytest.mark.parametrize("settings", FORMATS.values(), ids=FORMATS)
def test_the_lines_of_each_host_are_printed_whole_and_together_in_check_mode(tmp_path, settings):
    check(play(tmp_path, "--check", **settings).splitlines())


def test_the_lines_are_printed_and_the_json_of_a_callback_stays_whole_and_has_them(tmp_path):
    check(play(tmp_path).splitlines())
    done = subprocess.run(
        [ANSIBLE, f"-i{tmp_path}/hosts.json", "-e", f"path={tmp_path}/lines.json", tmp_path / "play.json"],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(tmp_path / "plain.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(ROOT / ".collections"), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(done.stdout)["plays"][0]["tasks"][1]["hosts"]["a"]
    assert shown["lines"] == [*LINES, HOSTILE]
    assert LINES[0] in done.stderr
    assert not re.search("secret", done.stdout + done.stderr)
