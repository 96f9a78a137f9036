# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Differences of a fabric from its policy, devices that were not read, and the metrics."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from proof_requests import params

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import exposition
from ansible_collections.sailloft.fleet.plugins.modules import roce_fabric_drift

DEVICES = {**dict.fromkeys(("leaf1", "leaf2", "spine1"), "switch"), **dict.fromkeys(("gpu1", "gpu2"), "host")}


def request_of() -> dict[str, Any]:
    """Return the arguments of the module for a fabric that has its policy."""
    request = params("sonic")
    request["nics"] = {host: copy.deepcopy(nics) for host, nics in request["nics"].items()}
    return {**request, "nics_wanted": copy.deepcopy(request["nics"]), "unread": {}, "counted": {}}


def set_mtu(request: dict[str, Any], switch: str) -> None:
    config = json.loads(request["running"][switch])
    config["PORT"]["Ethernet0"]["mtu"] = "1500"
    request["running"][switch] = json.dumps(config)


def failures(request: dict[str, Any]) -> dict[str, int | None]:
    """Return the devices with differences, None for one that was not read."""
    counts = drift.differences_by_device(drift.drift(request), DEVICES)
    return {device: count and 1 for device, count in counts.items() if count != 0}


def test_a_fabric_with_its_policy_differs_nowhere():
    proof = drift.drift(request_of())
    assert proof.holds
    assert drift.differences_by_device(proof, DEVICES) == dict.fromkeys(DEVICES, 0)
    assert drift.report(proof, DEVICES) == []
    assert drift.first(proof, DEVICES) == ""


def test_a_difference_is_that_of_its_device_only():
    """The link of spine1 to leaf1 has two ends that do not agree; the cause is spine1."""
    request = request_of()
    set_mtu(request, "spine1")
    assert failures(request) == {"spine1": 1}


def test_a_setting_of_a_nic_that_a_run_would_change_differs():
    request = request_of()
    request["nics_wanted"]["gpu2"]["mlx5_0"]["forced_tos"] = 106  # a path leaves it to the application
    assert failures(request) == {"gpu2": 1}
    (claim,) = [claim for claim in drift.drift(request).claims if claim.holds is False]
    assert (claim.claim, claim.wanted, claim.seen) == ("gpu2 mlx5_0: forced_tos", 106, None)


def test_a_difference_of_a_nic_is_named_once():
    request = request_of()
    request["nics"]["gpu2"]["mlx5_0"].update(trust="pcp", ip_mtu_bytes=1500)
    told = [
        claim.claim for claim in drift.drift(request).claims if claim.holds is False and "gpu2 mlx5_0: " in claim.claim
    ]
    assert [sum(fact in claim for claim in told) for fact in ("trust", "MTU", "ip_mtu_bytes")] == [1, 1, 0]


def test_a_loss_while_traffic_runs_counts_for_its_device():
    request = request_of()
    counts = {"out_of_sequence": 7, "cnp_handled": 9}
    request["counted"] = {"gpu2": {"differences": {"mlx5_0": counts}, "unknown": {}}, "leaf1": None}
    assert failures(request) == {"gpu2": 1}
    assert "mlx5_0" in drift.first(drift.drift(request), DEVICES)


def test_a_host_with_an_odd_reading_was_not_read():
    request = request_of()
    request["nics"]["gpu2"]["mlx5_0"]["pfc"] = "3"
    assert failures(request) == {"gpu2": None}
    assert drift.first(drift.drift(request), DEVICES) == f"1 of {len(DEVICES)} devices were not read"


@pytest.mark.parametrize("how", ["unread", "unparsable"])
def test_a_switch_that_was_not_read_fails_and_the_others_are_compared(how):
    request = request_of()
    set_mtu(request, "spine1")
    if how == "unread":
        request["unread"] = {"leaf2": "leaf2: connection refused"}
        del request["running"]["leaf2"]
    else:
        request["running"]["leaf2"] = "connection refused"
    proof = drift.drift(request)
    assert failures(request) == {"leaf2": None, "spine1": 1}
    (claim,) = [claim for claim in proof.claims if claim.layer == drift.UNREAD]
    assert claim.holds is False
    assert any(claim.reason in line for line in drift.report(proof, DEVICES))
    told = drift.first(proof, DEVICES)
    assert f"1 of {len(DEVICES)} devices" in told
    assert "spine1" in told, "the first difference, too"


def test_nothing_that_was_read_does_not_hold():
    nothing = {name: {} for name in ("running", "nics", "nics_wanted")}
    request = {**request_of(), **nothing, "unread": dict.fromkeys(DEVICES, "it does not answer")}
    assert failures(request) == dict.fromkeys(DEVICES)
    proof = drift.drift(request)
    assert f"{len(DEVICES)} of {len(DEVICES)} devices" in drift.first(proof, DEVICES)
    assert sum("it does not answer" in line for line in drift.report(proof, DEVICES)) == len(DEVICES)
    assert not drift.drift(request).holds
    assert not drift.drift({**request, "unread": {}}).holds


def test_a_policy_that_is_refused_is_no_difference():
    with pytest.raises(FabricError):
        drift.drift({**request_of(), "policy": {"nonesuch": 1}})


LINE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\} (\d+)')


def test_metrics_have_types_and_no_difference_of_a_device_that_was_not_read():
    request = request_of()
    set_mtu(request, "spine1")
    request["unread"] = {"leaf2": "no"}
    del request["running"]["leaf2"]
    text = exposition(drift.metrics(drift.drift(request), {**DEVICES, 'a"b\\': "host"}))
    parsed = {}
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            assert types[name] == "gauge"
            parsed[name.removeprefix("sailloft_fabric_drift_"), labels] = int(value)
    assert text.endswith("\n")
    assert ("differences", 'device="leaf2",kind="switch"') not in parsed
    assert parsed["device_read", 'device="leaf2",kind="switch"'] == 0
    assert parsed["device_read", 'device="spine1",kind="switch"'] == 1
    assert parsed["differences", 'device="spine1",kind="switch"'] > 0
    assert parsed["differences", 'device="gpu1",kind="host"'] == 0
    assert parsed["device_read", r'device="a\"b\\",kind="host"'] == 1


def run(capsys: Any, **arguments: Any) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        roce_fabric_drift.main()
    return json.loads(capsys.readouterr().out)


def test_the_module_replaces_the_metrics_in_each_run_but_not_in_check_mode(tmp_path, capsys):
    request = {key: value for key, value in request_of().items() if key not in ("name", "applications")}
    file = tmp_path / "new/sailloft_fabric_drift.prom"
    given = {**request, "path": str(tmp_path / "proofs"), "metrics_path": str(file.parent)}
    assert run(capsys, **given, _ansible_check_mode=True)["changed"] is True
    assert not list(tmp_path.iterdir())
    assert run(capsys, **given)["changed"] is True
    first = file.stat()
    assert run(capsys, **given)["changed"] is False
    assert file.stat().st_mtime_ns > first.st_mtime_ns
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    result = run(capsys, **{**given, "unread": {"gpu2": "no"}})
    assert (result["changed"], result["holds"], result["differences"]["gpu2"]) == (True, False, None)
