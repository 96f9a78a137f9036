# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules that change a GPU host, called as Ansible calls them."""

from __future__ import annotations

import importlib
import json
import os

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

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
