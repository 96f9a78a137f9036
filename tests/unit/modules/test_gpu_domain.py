# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gpu_domain, called as Ansible calls it, as far as this needs no libvirt."""

from __future__ import annotations

import json
import platform

import pytest
from ansible.module_utils.testing import patch_module_args
from machines import hypervisor, lab, request
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Acs, Ats
from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge
from ansible_collections.sailloft.fleet.plugins.modules import gpu_domain


def untuned():
    """Return the lab with ATS in the NICs beside its GPUs, below ports that block translated requests."""
    host = lab()
    for nic, port in (("0000:14:00.0", "0000:12:01.0"), ("0000:84:00.0", "0000:82:01.0")):
        host.function(nic).ats, host.function(port).acs = Ats(True, 0), Acs(0x5F, 0x1D)
    return host


class Libvirt:
    """A client of a host whose libvirt lacks much; it has no methods that change anything."""

    def __init__(self, _uri):
        pass

    def observe(self, _paths):
        return hypervisor(networks={}, hugetlbfs_mib=[])

    def close(self):
        pass


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_failure_contains_all_findings(check_mode, monkeypatch, capsys):
    monkeypatch.setattr(converge, "Client", Libvirt)
    given = {"domains": [request()], "topology": untuned().to_dict(), "_ansible_check_mode": check_mode}
    with patch_module_args(json.loads(json.dumps(given))), pytest.raises(SystemExit):
        gpu_domain.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] is True
    refusing = [item for item in result["findings"] if item["severity"] == "refuse"]
    assert [item["what"] for item in refusing] == [
        Mentions("default"),
        Mentions("1024", "MiB"),
    ]
    assert result["msg"].splitlines()[0] == "nothing was touched: 2 problems"
    assert result["msg"].splitlines()[2].startswith("2. virtual machine gpu-vm: no hugetlbfs is mounted")
    # The other findings are warnings, whether or not the request is refused.
    others = [item for item in result["findings"] if item["severity"] == "warn"]
    assert len(others) == 2
    warnings = [str(text) for text in result["warnings"]]
    for item in others:
        words = f"{platform.node()}: virtual machine gpu-vm: {item['what']}: {item['why']}; {item['remedy']}"
        assert any(words in text for text in warnings)
    assert set(result["findings"][0]) == {"domain", "what", "why", "remedy", "severity"}


def test_warnings_are_reported_if_nothing_is_refused(monkeypatch, capsys):
    class Whole(Libvirt):
        def observe(self, _paths):
            return hypervisor()

    monkeypatch.setattr(converge, "Client", Whole)
    given = {"domains": [request(name="warned")], "topology": untuned().to_dict(), "_ansible_check_mode": True}
    with patch_module_args(json.loads(json.dumps(given))), pytest.raises(SystemExit):
        gpu_domain.main()
    result = json.loads(capsys.readouterr().out)
    assert result["changed"]
    assert len(result["findings"]) == 2
    warnings = [text for text in map(str, result["warnings"]) if f"{platform.node()}: virtual machine warned: " in text]
    assert len(warnings) == 2
