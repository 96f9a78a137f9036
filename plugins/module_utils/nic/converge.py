# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a host to its whole RoCE state, or compare it: its NICs, their settings for each boot, and NCCL's settings."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Application
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import nccl_conf
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import seen_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import nic_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import ALL
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import ensure, nccl_file, persistence

CONF = nccl_conf.CONF


def converge(system: System, options: dict[str, Any], check: bool = False) -> Outcome:
    """Bring the host to the options of the module ``roce_host``. Raises HostError, before a change for invalid options.

    Facts: ``nics`` and ``cannot`` (see ``ensure``), ``earlier`` (what ``restored`` takes), ``applications``: NCCL with
    the wanted settings, or without these with the settings of the file, if it has a traffic class.
    """
    nics = options["nics"]
    settings = {} if nics is None else ensure.settings(options["policy"], nics, options["rdma_class"])
    nccl = None if options["nccl"] is None else _nccl(options)
    is_whole = options["stage"] == ALL
    earlier: dict[str, Any] = {"saved": unit.saved(system, persistence.SERVICE)}
    outcome = Outcome()
    if nics is not None and options["now"]:
        outcome = ensure.ensure(system, settings, check, options["stage"])
        earlier["nics"] = outcome.facts.pop("nics_before")
    if nics is not None and is_whole:
        outcome = outcome.and_then(unit.ensure(system, persistence.SERVICE, settings, check, running=options["now"]))
    if nccl is not None:
        content = system.read_bytes(CONF)
        earlier["nccl_conf"] = None if content is None else b64encode(content).decode()
        if is_whole:
            outcome = outcome.and_then(nccl_file.write(system, nccl_conf.text(nccl).encode(), check))
        outcome.facts["applications"] = [_application(nccl)]
        outcome.facts["warnings"] = _gid_warnings(outcome.facts)
    else:
        conf = nccl_conf.settings_in(system.read(CONF) or "")
        outcome.facts["applications"] = [_application(conf)] if conf.get("NCCL_IB_TC", "").isdecimal() else []
    outcome.facts["before"] = earlier
    return outcome


def restored(
    system: System, before: dict[str, Any], nics: dict[str, Any] | None, stage: str = ALL, check: bool = False
) -> Outcome:
    """Bring the named NICs, and in the last stage the files, to ``before`` of ``converge``. Raises HostError."""
    earlier = {name: data for name, data in before.get("nics", {}).items() if name in (nics or {})}
    outcome = ensure.restore(system, earlier, check, stage)
    del outcome.facts["nics_before"]
    if stage != ALL:
        return outcome
    if before.get("saved") is None:
        outcome = outcome.and_then(unit.remove(system, persistence.SERVICE, check))
    else:
        outcome = outcome.and_then(unit.ensure(system, persistence.SERVICE, before["saved"], check))
    if "nccl_conf" in before:
        content = None if before["nccl_conf"] is None else b64decode(before["nccl_conf"])
        outcome = outcome.and_then(nccl_file.write(system, content, check))
    return outcome


def _nccl(options: dict[str, Any]) -> dict[str, Any]:
    """Return NCCL's settings by name. Raises HostError where they contradict the policy, or cannot be written."""
    nccl = options["nccl"]
    variables = {name: value for name, value in nccl.items() if name != "settings"}
    try:
        choices = nccl_conf.read_choices({**variables, "rdma_class": options["rdma_class"]})
        settings = nccl_conf.merged(nccl["settings"], nccl_conf.of_policy(read_policy(options["policy"]), choices))
        nccl_conf.text(settings)
    except FabricError as error:
        raise HostError.of(error) from error
    return settings


def _application(nccl: dict[str, Any]) -> dict[str, Any]:
    """Return NCCL as an application whose packets the proof of the path follows."""
    queue_pairs = str(nccl.get("NCCL_IB_QPS_PER_CONNECTION", 1))
    gid_index = str(nccl.get("NCCL_IB_GID_INDEX", ""))
    return {
        "name": "NCCL",
        "tos": int(nccl["NCCL_IB_TC"]),
        "queue_pairs": int(queue_pairs) if queue_pairs.isdecimal() else 1,
        **({"gid_index": int(gid_index)} if gid_index.isdecimal() else {}),
    }


def _gid_warnings(facts: dict[str, Any]) -> list[str]:
    """Return the NICs on which NCCL cannot use the GID of its settings; an address may be configured later."""
    gid_index = facts["applications"][0].get("gid_index")
    application = Application("NCCL", facts["applications"][0]["tos"], gid_index)
    nics = {name: seen_of(name, reading, {}) for name, reading in facts.get("nics", {}).items()}
    return [f"{finding}: {finding.reason}" for finding in nic_checks.gids(application, nics)]
