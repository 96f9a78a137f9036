# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Failures at the end of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Rescued
      block:
        - ansible.builtin.fail: {msg: it is rescued}
      rescue:
        - ansible.builtin.debug:
    - name: Ignored
      ansible.builtin.fail: {msg: it is ignored}
      ignore_errors: true
    - name: Check the memory
      ansible.builtin.fail:
        msg: "{{ inventory_hostname }} ({{ ansible_host }}): 3 of 32 DIMMs are missing"
      when: inventory_hostname is search('gpu-00')
    - name: Check the NICs
      ansible.builtin.fail: {msg: no link}
      when: inventory_hostname == 'gpu-012'
"""


def test_failures_that_are_alike_are_one_line(tmp_path):
    hosts = {f"gpu-{at:03}": {"ansible_host": f"10.0.0.{at}", "ansible_connection": "local"} for at in range(1, 13)}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", tmp_path / "hosts.json", tmp_path / "play.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_CALLBACKS_ENABLED": "sailloft.fleet.failures", "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-2:] == [
        "9 hosts: Check the memory: failed: HOST (HOST): 3 of 32 DIMMs are missing: gpu-[001-009]",
        "1 hosts: Check the NICs: failed: no link: gpu-012",
    ]
