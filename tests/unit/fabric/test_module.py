# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Passwords in configurations are neither in the system's log nor in a module's result."""

from __future__ import annotations

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

from ansible_collections.sailloft.fleet.plugins.modules import (
    roce_fabric_drift,
    roce_fabric_proof,
    roce_path_info,
    roce_switch_config,
)

SECRET = "$6$hash-of-a-password"
RUNNING = {"running": {"leaf1": SECRET}, "backup": {"leaf1": SECRET}}
FINE = {"leaf1": {"system": "linux", "ports": {}}}
UNKNOWN = {"leaf1": {"system": "abacus"}}


@pytest.mark.parametrize("switches", [FINE, UNKNOWN, "no switches"])
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (roce_switch_config, {"state": "parsed", **RUNNING}),
        (roce_switch_config, {"state": "restored", **RUNNING}),
        (roce_fabric_drift, {"path": "proofs", "running": RUNNING["running"]}),
        (roce_fabric_proof, {"path": "proofs", "running": RUNNING["running"]}),
        (roce_path_info, {"running": RUNNING["running"], "nics": {}}),
    ],
)
def test_configurations_are_neither_logged_nor_returned(module, arguments, switches, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    logged = []
    monkeypatch.setattr(
        basic.AnsibleModule, "log", lambda _self, msg, log_args=None: logged.append(f"{msg} {log_args}")
    )
    with patch_module_args({**arguments, "switches": switches}), pytest.raises(SystemExit):
        module.main()
    output = capsys.readouterr().out
    assert '"invocation"' in output
    assert SECRET not in output
    assert SECRET not in "".join(logged)
    assert switches == "no switches" or logged
