# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layer guest OS: registers as the guest sees them, NCCL's files, distances of devices. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import atomic_ops
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import MANAGEMENT
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import fidelity, pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.atomic_ops import COST_OF_ROOT_PORTS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import Passed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import claim_values
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    MAX_READ_REQUEST_BYTES,
    Evidence,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row, of_each, once

LAYER = "guest_os"
# The files of an RDMA device by setting of a VF. The first GID ends with the port's GUID (IBA volume 1, 4.1.1).
GUID_FILES = {"node_guid": "node_guid", "port_guid": "ports/1/gids/0"}
FILE_CLAIM = "the guest's NCCL topology file is the plan's"
# Linux drivers/vfio/pci/vfio_pci_config.c, vfio_exp_config_write: the guest's DevCtl bits 14:12 are a copy, and a write
# to them becomes a call of pcie_set_readrq() on the device.
VFIO_COPY = (
    "the guest sees VFIO's copy of the register, and the device's own was found to be read-only on the hypervisor"
)


def max_read_request(evidence: Evidence, device: Passed) -> Claim:
    """Claim MaxReadReq of a device as the guest sees it."""
    guest_function = evidence.guest.by_address().get(device.guest_address) if evidence.guest else None
    claim = f"MaxReadReq of {name(device.function)} in the guest"
    source = f"guest config space of {device.guest_address}, DevCtl bits 14:12"
    owner = device.function.physical_function or device.address
    if guest_function and evidence.host_settings and owner in evidence.host_settings.read_only:
        seen = claim_values.bytes_text(guest_function.max_read_request_bytes)
        wanted = claim_values.bytes_text(MAX_READ_REQUEST_BYTES)
        return not_applicable(LAYER, claim, wanted, source, VFIO_COPY, seen)
    return claim_values.read_request(
        LAYER, claim, device.guest_address, guest_function, evidence.guest_settings, source
    )


def atomic_operations(evidence: Evidence) -> Iterator[Claim]:
    """Claim that each GPU that needs PCIe AtomicOps requests them, and that the guest's root port completes them."""
    for device in evidence.planned.passed():
        function = device.function
        if function.kind != "gpu":
            continue
        claim = f"{name(function)} has PCIe AtomicOps in the guest"
        wanted = _atomic_ops(True, sorted(atomic_ops.SIZES_BITS))
        place, root_port = device.guest_address, device.guest_path[0]
        source = f"guest config space of {place} (DevCtl2 bit 6) and {root_port} (DevCap2 bits 7 and 8)"
        seen, reason = None, ""
        guest_functions = evidence.guest.by_address() if evidence.guest else {}
        port, gpu = (
            guest_functions[address].atomic_ops if address in guest_functions else None
            for address in (root_port, place)
        )
        if port and gpu:
            seen = _atomic_ops(gpu.requests, [bits for bits in port.completes_bits if bits in atomic_ops.SIZES_BITS])
        if not atomic_ops.needed(function):
            reason = "its driver runs without them"
        elif evidence.planned.spec.mirror_topology == "true" and len(device.guest_path) > 2:
            reason = "mirror_topology: true puts it below a switch, where QEMU does not complete them"
        else:
            obstacle = atomic_ops.obstacle(evidence.host, function.address)
            reason = f"the host has none for it: {obstacle}" if obstacle else ""
        yield (
            not_applicable(LAYER, claim, wanted, source, reason, seen)
            if reason
            else compare(LAYER, claim, wanted, seen, source)
        )


def _atomic_ops(requests: bool, completes_bits: list[int]) -> str:
    return f"AtomicOpsCtl: ReqEn{'+' if requests else '-'}, completed by its root port: {completes_bits} bits"


def distances(evidence: Evidence) -> Iterator[Claim]:
    """Claim the distances of all pairs of devices at once; name both distances of a pair that differs from the host.

    Pairs that are farther apart for the sake of AtomicOps (plan/atomic_ops.py) have a claim of their own.
    """
    devices = evidence.planned.passed()
    on_host = {name(device.function): device.address for device in devices}
    wanted = pairs(evidence.host, on_host)
    claim = "pairs of devices that are as near in the guest as on the host (fidelity)"
    source = f"guest and {evidence.host_name} /sys/bus/pci/devices"
    if not wanted:
        reason = f"{evidence.planned.name} has fewer than two devices, so no pair of them"
        yield not_applicable(LAYER, claim, "all", source, reason)
        return
    pairs_apart = _pairs_apart(evidence)
    equal = {
        pair: path_class
        for pair, path_class in wanted.items()
        if frozenset(on_host[label] for label in pair) not in pairs_apart
    }
    seen: object = None
    far: object = None
    if evidence.guest:
        guest_addresses = set(evidence.guest.by_address())
        places = {
            label: device.guest_address
            for label, device in zip(on_host, devices)
            if device.guest_address in guest_addresses
        }
        guest_pairs = pairs(evidence.guest, places)
        compared = fidelity(wanted, {pair: guest_pairs.get(pair, "not there") for pair in wanted})
        lines = {
            tuple(
                item["pair"]
            ): f"{' and '.join(item['pair'])}: {item['host']} on the host, {item['guest']} in the guest"
            for item in compared.differences
        }
        differing = [line for pair, line in lines.items() if pair in equal]
        counted = f"{len(equal) - len(differing)} of {len(equal)}"
        seen = [counted, *differing] if differing else counted
        far = [line for pair, line in lines.items() if pair not in equal]
    yield compare(LAYER, claim, f"{len(equal)} of {len(equal)}", seen, source)
    if pairs_apart:
        claim = "pairs of devices that are farther apart in the guest, so that GPUs have PCIe AtomicOps"
        yield not_applicable(LAYER, claim, [], source, f"a GPU of each is {COST_OF_ROOT_PORTS}", far)


def guids(evidence: Evidence) -> Iterator[Claim]:
    """Claim the GUIDs of each VF that was given some, as the guest's driver has them."""
    in_guest = evidence.guest.by_address() if evidence.guest else {}
    for device in evidence.planned.passed():
        rows = [row for row in evidence.settings_of_vf(device) if row["name"] in GUID_FILES]
        if not rows:
            continue
        function = in_guest.get(device.guest_address or "")
        names = function.interfaces.get("rdma", []) if function else []
        folder = f"/sys/class/infiniband/{names[0] if names else 'DEVICE'}"
        texts = {row["name"]: evidence.guest_files.get(f"{folder}/{GUID_FILES[row['name']]}") for row in rows}
        yield compare(
            LAYER,
            f"{name(device.function)} has its GUIDs in the guest",
            {row["name"]: _guid(row["wanted"]) for row in rows},
            {key: _guid(text) for key, text in texts.items()} if any(texts.values()) else None,
            f"guest {folder}",
            "" if names else "the guest has no RDMA device of it; load the driver in the guest",
        )


def _guid(text: str | None) -> str:
    """Return a GUID as 16 digits: of ip-link(8), of the kernel's node_guid, the last half of a GID."""
    return (text or "").strip().replace(":", "").lower()[-16:]


def _pairs_apart(evidence: Evidence) -> set[frozenset[str]]:
    """Return the pairs, as host addresses, that the plan puts farther apart because of a GPU that needs AtomicOps."""
    plan = evidence.planned
    gpus = {gpu.address for gpu in plan.chosen.gpus if atomic_ops.needed(gpu) and plan.spec.mirror_topology == "auto"}
    differing_pairs = (frozenset(label.split()[-1] for label in item["pair"]) for item in plan.fidelity.differences)
    return {pair for pair in differing_pairs if pair & gpus}


def settings_of_nccl(requested: dict[str, str], text: str | None) -> Claim:
    """Claim the content of the guest's /etc/nccl.conf: the settings that are ``requested`` for, and no others."""
    claim, source = "NCCL has its settings", "guest /etc/nccl.conf"
    if not requested:
        return not_applicable(LAYER, claim, "none", source, "the inventory sets none (gpu_guest_nccl)")
    seen = None
    if text is not None:
        lines = (line.strip() for line in text.splitlines())
        seen = dict(sorted(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")))
    return compare(LAYER, claim, dict(sorted(requested.items())), seen, source)


def file_of_nccl(planned: str, text: str | None) -> Claim:
    """Claim that the guest's NCCL topology file is the ``planned`` one; empty: none is requested."""
    source = "guest /etc/nccl-topology.xml"
    if not planned:
        reason = "the guest has no GPU, or the inventory does not ask for it (gpu_guest_nccl_topology, gpu_guest_nccl)"
        return not_applicable(LAYER, FILE_CLAIM, claim_values.SAME, source, reason)
    lines = None
    if text is not None:
        lines = [
            line
            for line in unified_diff(
                planned.splitlines(), text.splitlines(), "the plan's", "the guest's", n=0, lineterm=""
            )
            if not line.startswith("@@")
        ]
    return compare(LAYER, FILE_CLAIM, claim_values.SAME, claim_values.differences(lines), source)


def nccl_settings(evidence: Evidence) -> Claim:
    """Claim the content of the guest's /etc/nccl.conf."""
    return settings_of_nccl(evidence.nccl, evidence.nccl_settings)


def nccl_topology(evidence: Evidence) -> Claim:
    """Claim that the guest's NCCL topology file is that of the plan."""
    return file_of_nccl(evidence.nccl_topology, evidence.nccl_topology_file)


def fabric_programs(evidence: Evidence) -> Iterator[Claim]:
    """Claim that the programs run that a guest needs for the NVSwitches that it has."""
    kinds = {function.kind for function in evidence.planned.chosen.nvswitches}
    if not kinds:
        return
    wanted = ["nv-fabricmanager", *(["nvlsm"] if MANAGEMENT in kinds else [])]
    software = evidence.guest.nvidia if evidence.guest else None
    seen = None if software is None or software.programs is None else software.programs
    yield compare(LAYER, "the programs run that manage its NVSwitches", wanted, seen, "guest /proc/*/comm")


CLAIMS: tuple[Row[Evidence], ...] = (
    of_each(Evidence.devices, max_read_request),
    atomic_operations,
    once(nccl_settings),
    once(nccl_topology),
    distances,
    guids,
    fabric_programs,
)
