# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module vsphere_gpu_vm warns of findings with the name of vCenter, whether or not they refuse the request."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    REFUSE,
    WARN,
    Finding,
    RefusedError,
)
from ansible_collections.sailloft.fleet.plugins.modules import vsphere_gpu_vm

SLOW = Finding("train", "ATS is off", "P2P is slow", "turn it on", WARN)
FULL = Finding("train", "the datastore is full", "the disk needs 10 GiB", "free some", REFUSE)


@pytest.mark.parametrize(("given", "whose"), [({"hostname": "vc1"}, "vc1"), ({}, "vSphere")])
@pytest.mark.parametrize("refused", [False, True])
def test_findings_that_warn_are_warnings_of_the_task(capsys, monkeypatch, given, whose, refused):
    monkeypatch.delenv("VMWARE_HOST", raising=False)

    def converge(_params, _check, _progress):
        if refused:
            raise RefusedError([FULL, SLOW])
        return {"changed": False, "findings": [SLOW.to_dict()], "domains": []}

    monkeypatch.setattr(vsphere_gpu_vm, "converge", converge)
    with patch_module_args({"domains": [], **given}), pytest.raises(SystemExit):
        vsphere_gpu_vm.main()
    result = json.loads(capsys.readouterr().out)
    warning = f"{whose}: virtual machine train: ATS is off: P2P is slow; turn it on"
    (text,) = result["warnings"]
    assert warning in str(text)
    assert result["findings"] == [*([FULL.to_dict()] if refused else []), SLOW.to_dict()]
    assert result.get("failed", False) is refused
