# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The service of the logs on a node and in an image; the real rsyslogd reads each configuration first."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.logs import config, ensure

KAFKA = {"brokers": ["kafka1:9093"], "ca": "/etc/ssl/ca.pem"}
ELASTICSEARCH = {"servers": ["https://logs1:9200"]}


class Node(System):
    """A node in a directory: systemctl is simulated, rsyslogd is the real one."""

    def __init__(self, root):
        super().__init__(str(root))
        self.commands = []
        self.is_running = False
        for name in ("usr/sbin/rsyslogd", "usr/lib/systemd/systemd", "run/systemd/system/x"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")

    def run(self, argv, stdin=None, timeout_s=None):
        if argv[0] == ensure.RSYSLOGD:
            return super().run(argv)
        if argv[1] == "show":
            return f"ActiveState={'active' if self.is_running else 'inactive'}\n"
        self.commands.append(" ".join(argv))
        if "enable" in argv:
            self.replace(ensure.WANTS, b"")
        if "disable" in argv:
            self.remove(ensure.WANTS)
        self.is_running = argv[1] == "restart" or (self.is_running and "disable" not in argv)
        return ""


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def configured(node, in_image=False, check=False, **given):
    defaults = {"state": "present", "host": "n1", "rack": "r1", "kafka": KAFKA, "elasticsearch": None}
    params = {**defaults, "queue_mib": 8, "counts_file": "/x/sailloft_logs.prom", **given}
    node.commands.clear()
    return ensure.ensure(node, params, in_image, check, "/usr/bin/python3")


def test_check_mode_predicts_and_a_second_run_changes_nothing(node):
    predicted = configured(node, check=True)
    assert node.commands == []
    assert not node.exists(ensure.CONFIG)
    made = configured(node)
    assert (predicted.before, predicted.after) == (made.before, made.after)
    unit = ensure.SERVICE
    assert node.commands == ["systemctl daemon-reload", f"systemctl restart {unit}", f"systemctl enable {unit}"]
    assert not configured(node).changed
    assert node.commands == []


def test_a_change_restarts_and_a_receiver_that_is_left_out_leaves_no_files(node):
    configured(node, elasticsearch=ELASTICSEARCH)
    changed = configured(node, queue_mib=9)
    assert set(changed.after) == {ensure.CONFIG, ensure.BULK_SETTINGS, ensure.BULK_CODE}
    assert node.commands == ["systemctl daemon-reload", f"systemctl restart {ensure.SERVICE}"]
    assert not node.exists(ensure.BULK_SETTINGS)


def test_a_service_that_somebody_stopped_is_started_again(node):
    configured(node)
    node.is_running = False
    assert list(configured(node, check=True).after) == [f"{ensure.SERVICE} running"]
    configured(node)
    assert node.is_running


@pytest.mark.parametrize("check", [False, True])
def test_a_configuration_that_rsyslogd_refuses_leaves_the_former_running(node, monkeypatch, check):
    configured(node)
    before = node.read_bytes(ensure.CONFIG)
    monkeypatch.setattr(config, "HEAD", 'module(load="imnothing")\n')
    with raises(HostError, "node_logs", "imnothing", "nothing was changed"):
        configured(node, check=check)
    assert (node.read_bytes(ensure.CONFIG), node.commands, node.is_running) == (before, [], True)


def test_a_check_before_the_package_is_installed_predicts(node, monkeypatch):
    node.remove(ensure.RSYSLOGD)
    monkeypatch.setattr(config, "HEAD", 'module(load="imnothing")\n')
    assert ensure.CONFIG in configured(node, check=True).after


def test_an_image_only_enables_and_reads_the_journal_from_the_boot_on(node):
    configured(node, in_image=True)
    assert node.commands == [f"systemctl --root=/ enable {ensure.SERVICE}"]
    assert "IgnorePreviousMessages" not in node.read(ensure.CONFIG)
    assert not configured(node, in_image=True).changed


def test_absent_removes_what_was_installed_and_nothing_twice(node):
    configured(node, elasticsearch=ELASTICSEARCH)
    removed = configured(node, state="absent")
    assert {*ensure.FILES, f"{ensure.SERVICE} enabled"} == set(removed.after)
    assert node.commands == [f"systemctl disable --now {ensure.SERVICE}", "systemctl daemon-reload"]
    assert not configured(node, state="absent").changed
