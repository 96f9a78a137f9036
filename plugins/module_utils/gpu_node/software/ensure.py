# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the files of a GPU node's software, and report the packages to install or to remove."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import files, packages, plan
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request as r
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import MachineFacts, observe
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.systems import UBUNTU
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile, facts, modes
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def ensure(system: System, data: dict[str, Any], in_image: bool, check: bool = False) -> Outcome:
    """Write the files of the plan, and remove those of an earlier one. Raises HostError before anything is written.

    The facts name the packages that the package manager must install, and the kernels without the driver's modules.
    """
    request = r.read(data)
    machine = observe(system, in_image)
    if cufile.needs_rails(request.cufile) and not in_image:
        machine = replace(machine, rails=facts.rail_addresses(system))
    node_plan = plan.make(request, machine)
    outcome = _write(system, machine, node_plan.files, check)
    missing = [package for package in node_plan.packages if not package.is_installed(machine.installed)]
    outcome.facts.update(
        package_manager=machine.system.packages,
        install=[package.spec(machine.system.packages) for package in missing],
        versions={package.name: machine.installed.get(package.name) for package in node_plan.packages},
        services=list(node_plan.services),
        driver=node_plan.driver,
        fabric=node_plan.fabric,
        signing_key=_signing_paths(machine),
        kernels=list(node_plan.kernels),
        modules_missing=_modules_missing(node_plan, machine, request),
        loaded=machine.loaded,
        # Without a GPU the driver does not load, and nothing that needs it starts.
        reboot_required=bool(machine.devices and machine.devices.gpus) and machine.loaded != node_plan.driver,
        secure_boot=bool(machine.secure_boot),
        notes=list(node_plan.notes),
    )
    if request.storage == modes.P2PDMA:
        outcome.pending += _p2pdma_pending(machine)
        outcome.facts["reboot_required"] |= bool(outcome.pending)
    return outcome


def _p2pdma_pending(machine: MachineFacts) -> list[str]:
    """Return what P2PDMA waits for until the next boot."""
    pending = ["nvme_core uses multipath until the next boot"] if machine.nvme_multipath else []
    if machine.loaded and not modes.set_for_p2pdma(machine.registry):
        pending.append("the driver maps the GPUs' memory for P2PDMA when it is loaded again")
    return pending


def remove(system: System, in_image: bool, check: bool = False) -> Outcome:
    """Remove all files of this module; the facts name the packages to remove. Raises HostError."""
    machine = observe(system, in_image)
    outcome = _write(system, machine, {}, check)
    outcome.facts.update(
        package_manager=machine.system.packages, remove=packages.every_name(machine.installed), notes=[]
    )
    return outcome


def _signing_paths(machine: MachineFacts) -> dict[str, str]:
    """Return where DKMS finds the key that signs modules, and its certificate in DER.

    On Ubuntu the paths are those of update-secureboot-policy in shim-signed; elsewhere they are the defaults of
    mok_signing_key and mok_certificate in framework.conf of dkms 3.
    """
    if machine.system.name == UBUNTU:
        return {"key": "/var/lib/shim-signed/mok/MOK.priv", "certificate": "/var/lib/shim-signed/mok/MOK.der"}
    return {"key": "/var/lib/dkms/mok.key", "certificate": "/var/lib/dkms/mok.pub"}


def _modules_missing(node_plan: plan.SoftwarePlan, machine: MachineFacts, request: r.SoftwareRequest) -> list[str]:
    """Return the kernels without the driver's modules, and what they have instead."""
    return [
        f"kernel {kernel} has modules of {machine.modules[kernel]}"
        if kernel in machine.modules
        else f"kernel {kernel} has none"
        for kernel in node_plan.kernels
        if machine.modules.get(kernel) != request.driver
    ]


def _write(system: System, machine: MachineFacts, wanted: dict[str, str], check: bool) -> Outcome:
    outcome = Outcome()
    contents = {path: system.read_bytes(path) for path in sorted({*wanted, *_left(system, machine)})}
    for path, old_content in contents.items():
        new_content = wanted[path].encode() if path in wanted else None
        if old_content != new_content:
            outcome.differ(
                path, old_content.decode(errors="replace") if old_content is not None else None, wanted.get(path)
            )
    if not check:
        for path in outcome.after:
            if path in wanted:
                system.replace(path, wanted[path].encode())
            else:
                system.remove(path)
    # If these files change, the package lists of apt or dnf are still those of the former files.
    kind = machine.system.packages
    sources = {files.SOURCES[kind], files.KEYS[kind]}
    stems = tuple(path.split("{}")[0] for path in sources)
    outcome.facts["archives_changed"] = any(path.startswith(stems) for path in outcome.after)
    return outcome


def _left(system: System, machine: MachineFacts) -> list[str]:
    """Return the files of this module that exist."""
    paths = [path for path in files.SETTINGS if system.exists(path)]
    paths += [path for path, head in files.SHARED.items() if (system.read_bytes(path) or b"").startswith(head.encode())]
    for pattern in (files.SOURCES[machine.system.packages], files.KEYS[machine.system.packages]):
        folder, _slash, name = pattern.rpartition("/")
        expression = re.escape(name).replace(r"\{\}", "[a-z0-9-]+")
        paths += [f"{folder}/{entry}" for entry in system.names(folder) if re.fullmatch(expression, entry)]
    return paths
