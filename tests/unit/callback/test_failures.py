# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Failures at the end of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
# Batches of three hosts. Of the first six, two fail alike and one fails differently; the recovery is in always.
BATCHES = """
- hosts: all
  gather_facts: false
  serial: 3
  vars: {PLAY_VARS}
  tasks:
    - block:
        - name: Rescued
          ansible.builtin.fail: {msg: rescued}
      rescue:
        - ansible.builtin.debug: {msg: "rescued {{ inventory_hostname }}"}
    - block:
        - name: Check
          FAILURE
          when: inventory_hostname in ['gpu-001', 'gpu-004', 'gpu-005']
        - ansible.builtin.debug: {msg: "went on {{ inventory_hostname }}"}
      always:
        - ansible.builtin.debug: {msg: "released {{ inventory_hostname }}"}
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "the next play"}
"""
FAIL = "ansible.builtin.fail: {msg: \"{{ 'another' if inventory_hostname == 'gpu-001' else 'no link' }}\"}"
LOST = """ansible.builtin.command: uptime
          vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}"""


def played(tmp_path, play, **environment):
    hosts = {f"gpu-{at:03}": {"ansible_host": f"10.0.0.{at}", "ansible_connection": "local"} for at in range(1, 13)}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    (tmp_path / "play.yml").write_text(play, encoding="utf-8")
    enabled = {"ANSIBLE_CALLBACKS_ENABLED": "sailloft.fleet.failures", "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", tmp_path / "hosts.json", tmp_path / "play.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **enabled, **environment},
    )


def test_similar_failures_are_reported_in_one_line(tmp_path):
    done = played(tmp_path, PLAY)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-2:] == [
        "9 hosts: Check the memory: failed: HOST (HOST): 3 of 32 DIMMs are missing: gpu-[001-009]",
        "1 host: Check the NICs: failed: no link: gpu-012",
    ]


@pytest.mark.fleet  # runs a playbook
def test_the_breaker_ends_the_run_if_too_many_hosts_have_the_same_failure(tmp_path):
    done = played(tmp_path, BATCHES.replace("PLAY_VARS", "").replace("FAILURE", FAIL), SAILLOFT_BREAKER_HOSTS="1")
    assert done.returncode == 2, done.stdout + done.stderr
    alike = "2 hosts had the same failure, but at most 1 may: Check: failed: no link: gpu-[004-005]"
    assert f"the run ends after this task: {alike}" in done.stdout
    # A host that failed differently did not end the run, and neither did rescued hosts.
    assert "rescued gpu-006" in done.stdout
    assert "went on gpu-002" in done.stdout
    # The always section runs, and no other task, batch or play follows.
    assert "released gpu-006" in done.stdout
    assert "went on gpu-006" not in done.stdout
    assert "gpu-007" not in done.stdout
    assert "the next play" not in done.stdout


@pytest.mark.long
@pytest.mark.fleet  # runs a playbook
def test_unreachable_hosts_count_as_the_same_failure(tmp_path):
    done = played(tmp_path, BATCHES.replace("PLAY_VARS", "").replace("FAILURE", LOST), SAILLOFT_BREAKER_HOSTS="2")
    assert done.returncode in (2, 4), done.stdout + done.stderr
    assert "3 hosts had the same failure, but at most 2 may: Check: unreachable:" in done.stdout
    assert "gpu-007" not in done.stdout
    assert "the next play" not in done.stdout


@pytest.mark.long
@pytest.mark.fleet  # runs a playbook
def test_a_play_that_disables_the_breaker_is_not_ended(tmp_path):
    play = BATCHES.replace("PLAY_VARS", "breaker_hosts: 0").replace("FAILURE", FAIL)
    done = played(tmp_path, play, SAILLOFT_BREAKER_HOSTS="1")
    assert done.returncode == 2
    assert "the run ends" not in done.stdout
    assert "went on gpu-012" in done.stdout
    assert "the next play" in done.stdout
