# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules that change a GPU host, called as Ansible calls them."""

from __future__ import annotations

import errno
import importlib
import json
import os
from types import SimpleNamespace

import pytest
from ansible.module_utils.testing import patch_module_args
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common import host_module
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System, root_remedy

MODULES = {
    "gpu_host_boot": {"hugepages": {"pages": []}},
    "hugepages": {"pages": []},
    "kernel_arguments": {"iommu": "passthrough"},
    "nic_firmware": {"settings": []},
    "pci_tuning": {"settings": []},
    "sriov": {"functions": []},
    "vfio_binding": {"devices": []},
}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_modules_that_write_refuse_a_host_that_is_not_x86(name, check, monkeypatch, capsys):
    for effect in ("poke_bytes", "replace", "remove", "run"):
        monkeypatch.setattr(System, effect, lambda *_arguments, **_named: pytest.fail("something was touched"))
    monkeypatch.setattr(System, "machine", lambda _system: "aarch64")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("debian_chroot", raising=False)
    module = importlib.import_module(f"ansible_collections.sailloft.fleet.plugins.modules.{name}")
    with patch_module_args({**MODULES[name], "_ansible_check_mode": check}), pytest.raises(SystemExit):
        module.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"]
    assert result["msg"].endswith(
        ": the processor of this host is aarch64, but GPU virtual machines are supported on x86_64 only; "
        "nothing was changed; such a host can still be read and recorded"
    )


def test_the_machine_is_that_of_the_running_kernel():
    assert System().machine() == os.uname().machine


class Module:
    """The part of an AnsibleModule that ends it."""

    _name = "hugepages"

    def exit_json(self, **result):
        raise SystemExit(json.dumps(result))

    def fail_json(self, **result):
        raise SystemExit(json.dumps({"failed": True, **result}))


def ended(finish, *arguments):
    with pytest.raises(SystemExit) as end:
        finish(Module(), *arguments)
    return json.loads(end.value.code)


@pytest.fixture
def image(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("debian_chroot", "image")


@pytest.mark.usefixtures("image")
def test_a_module_that_changes_the_running_kernel_is_refused_in_an_image():
    assert ended(host_module.finish_on_host, pytest.fail)["msg"] == (Mentions("hugepages", "gpu_host_boot", "now"))
    assert ended(host_module.finish_on_gpu_host, System(), pytest.fail)["failed"]
    outcome = Outcome({"a": 1}, {"a": 2}, {"fact": 3}, ["later"])
    assert ended(host_module.finish_on_host, lambda: outcome, False) == {
        "changed": True,
        "diff": {"before": {"a": 1}, "after": {"a": 2}},
        "pending": ["later"],
        "fact": 3,
    }


@pytest.fixture
def effective_user():
    """Let a test run as another user than root, with that user's rights."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)  # nobody
    yield os.geteuid()
    if was_root:
        os.seteuid(0)


def test_other_users_than_root_are_refused_before_anything_is_read_or_changed(effective_user, monkeypatch):
    monkeypatch.setattr(host_module, "in_chroot", lambda: False)
    message = ended(host_module.finish_on_host, pytest.fail)["msg"]
    assert f"hugepages: it changes the host as root, but runs as user {effective_user}" in message
    assert "become: true" in message
    assert ended(host_module.finish_on_host, Outcome, True, True)["changed"] is False, "it only reads"


@pytest.mark.parametrize(
    "access",
    [
        lambda system: system.replace("/etc/sailloft-test/file", b"text"),
        lambda system: system.remove("/proc/1/comm"),
        lambda system: system.poke("/proc/sys/kernel/panic", "0"),
    ],
    ids=["replace", "remove", "poke"],
)
def test_a_refused_access_of_another_user_is_ascribed_to_the_user(effective_user, access):
    with pytest.raises(HostError, match=f"become: true.*user {effective_user}"):
        access(System())


def test_a_refused_access_of_root_is_not_ascribed_to_the_user():
    assert root_remedy(OSError(errno.ENOSPC, "No space left on device"), "look at it") == "look at it"


def test_a_live_host_is_changed(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host_module, "in_chroot", lambda: False)
    monkeypatch.setattr(System, "machine", lambda _system: "x86_64")
    assert ended(host_module.finish_on_gpu_host, System(), Outcome)["changed"] is False
    assert ended(host_module.finish_on_host, lambda: Outcome(failed="no"))["msg"] == "no"


@pytest.mark.parametrize(
    ("ours", "first", "chroot"),
    [((1, 2), (1, 2), False), ((1, 2), (1, 3), True), ((1, 2), (3, 2), True), ((1, 2), None, False)],
)
def test_an_image_is_recognized_by_the_root_of_process_1(monkeypatch, ours, first, chroot):
    def stat(path):
        device, inode = {"/": ours, "/proc/1/root/.": first}[path] or (None, None)
        if device is None:
            raise PermissionError(path)
        return SimpleNamespace(st_dev=device, st_ino=inode)

    monkeypatch.delenv("debian_chroot", raising=False)
    monkeypatch.setattr(host_module.os, "stat", stat)
    assert host_module.in_chroot() is chroot


def test_outcomes_are_combined_in_order():
    one = Outcome({"a": 1}, {"a": 2}, {"x": 1}, ["p"], "one")
    two = Outcome({"b": 1}, {"b": 2}, {"y": 1}, ["q"], "two")
    assert one.and_then(two) == Outcome({"a": 1, "b": 1}, {"a": 2, "b": 2}, {"x": 1, "y": 1}, ["p", "q"], "one; two")
    assert one.and_then(Outcome()) == one
    assert (one.to_result()["failed"], one.to_result()["msg"]) == (True, "one")
    assert not Outcome({"a": 1}, {"a": 1}).changed
