# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gpu_domain, called as Ansible calls it, as far as it needs no libvirt."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from machines import hypervisor, lab, wish

from ansible_collections.sailloft.fleet.plugins.module_utils.domain import service
from ansible_collections.sailloft.fleet.plugins.modules import gpu_domain


class Libvirt:
    """What the client gives of a host whose libvirt lacks much; any call that changes something has no method."""

    def __init__(self, _uri):
        pass

    def observe(self, _paths):
        return hypervisor(networks={}, hugetlbfs_mib=[])

    def close(self):
        pass


@pytest.mark.parametrize("check_mode", [True, False])
def test_all_findings_come_with_the_failure(check_mode, monkeypatch, capsys):
    monkeypatch.setattr(service, "Client", Libvirt)
    given = {"domains": [wish()], "topology": lab().to_dict(), "_ansible_check_mode": check_mode}
    with patch_module_args(json.loads(json.dumps(given))), pytest.raises(SystemExit):
        gpu_domain.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] is True
    refusing = [item for item in result["findings"] if item["severity"] == "refuse"]
    assert [item["what"] for item in refusing] == [
        "libvirt has no network default",
        "no hugetlbfs is mounted for pages of 1024 MiB",
    ]
    assert result["msg"].splitlines()[0] == "nothing was touched: 2 things are amiss"
    assert result["msg"].splitlines()[2].startswith("2. virtual machine gpu-vm: no hugetlbfs is mounted")
    assert set(result["findings"][0]) == {"domain", "what", "why", "mend", "severity"}
