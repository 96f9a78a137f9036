# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layers guest OS and GPUDirect on vSphere: what was read inside the guest. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import PATH_CLASSES, Paths, fidelity, pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import claim_values, guest_os
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row, of_each, once
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.not_expressed import not_expressed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest import nccl_topology

LAYER, GPUDIRECT = "guest_os", "gpudirect"
FLAT = not_expressed(
    LAYER,
    "pairs of devices that are as near in the guest's PCI tree as on the host (fidelity)",
    "all",
    "ESXi gives the guest a port for each device, and no switch",
    "NCCL takes GPU and NIC below one switch for PHB and may send their traffic through the CPU, unless its topology "
    "file (below) describes the switches",
)
NOT_ASKED = "the guest has no GPU, or the inventory does not ask for it (gpu_guest_nccl_topology, gpu_guest_nccl)"
FILE = "guest /etc/nccl-topology.xml"


def max_read_request(evidence: VsphereEvidence, function: Function) -> Claim:
    """Claim MaxReadReq of a device as the guest sees it."""
    guest_function = evidence.in_guest(function.address)
    place = guest_function.address if guest_function else ""
    claim = f"MaxReadReq of {name(function)} in the guest"
    source = f"guest config space of {place or 'a device whose address is not known'}, DevCtl bits 14:12"
    return claim_values.read_request(LAYER, claim, place, guest_function, evidence.guest_settings, source)


def nccl_settings(evidence: VsphereEvidence) -> Claim:
    """Claim the content of the guest's /etc/nccl.conf."""
    return guest_os.settings_of_nccl(evidence.nccl, evidence.nccl_settings)


def nccl_file(evidence: VsphereEvidence) -> Claim:
    """Claim that the guest's NCCL topology file matches the plan and the guest's addresses."""
    if not (evidence.nccl_topology_asked and nccl_topology.asked(evidence.plan)):
        return guest_os.file_of_nccl("", evidence.nccl_topology_file)
    text = None
    if evidence.guest:
        text = nccl_topology.render(evidence.plan, evidence.host, evidence.guest, evidence.places())
    if text is None:
        reason = (
            "the file cannot be computed: the guest was not read, or the guest address of a GPU or NIC is not known"
        )
        return Claim(LAYER, guest_os.FILE_CLAIM, claim_values.SAME, None, False, FILE, reason)
    return guest_os.file_of_nccl(text, evidence.nccl_topology_file)


def distances(evidence: VsphereEvidence) -> Claim:
    """Claim that NCCL has the host's distances: the pairs of GPUs and NICs in its file, as read in the guest."""
    addresses = nccl_topology.asked(evidence.plan)
    claim = "pairs of GPUs and NICs that are as near in NCCL's topology file as on the host"
    if not evidence.nccl_topology_asked or len(addresses) < 2:
        return not_applicable(LAYER, claim, "all", FILE, NOT_ASKED)
    on_host = {name(evidence.host.function(address)): address for address in addresses}
    wanted = _as_nccl(pairs(evidence.host, on_host))
    compared = fidelity(wanted, {pair: _in_file(evidence, on_host).get(pair, "not there") for pair in wanted})
    seen: object = f"{compared.equal} of {compared.total}"
    if compared.differences:
        seen = [
            seen,
            *(
                f"{' and '.join(row['pair'])}: {row['host']} on the host, {row['guest']}"
                for row in compared.differences
            ),
        ]
    return compare(
        LAYER, claim, f"{compared.total} of {compared.total}", seen if evidence.nccl_topology_file else None, FILE
    )


def _in_file(evidence: VsphereEvidence, on_host: dict[str, str]) -> dict[tuple[str, str], str]:
    """Return the path classes of NCCL's file by pair of names; empty if the file is missing or invalid."""
    try:
        of_nccl = read_nccl(evidence.nccl_topology_file or "")
    except TopologyError:
        return {}
    places, listed = evidence.places(), of_nccl.by_address()
    labelled = {label: places[address] for label, address in on_host.items() if places.get(address) in listed}
    return _as_nccl(pairs(of_nccl, labelled))


def _as_nccl(path_classes: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Return path classes as NCCL has them: without NODE (topology/paths.py)."""
    return {pair: "PHB" if path == "NODE" else path for pair, path in path_classes.items()}


def gpudirect(evidence: VsphereEvidence) -> Iterator[Claim]:
    """Name each GPU with its nearest NICs; vSphere does not show whether they reach each other directly."""
    functions, paths = evidence.functions(), Paths(evidence.host)
    nics = [item.address for item in functions if item.kind == "nic"]
    for gpu in (item.address for item in functions if item.kind == "gpu"):
        classes = {nic: paths.path_class(gpu, nic) for nic in nics}
        nearest = min(classes.values(), key=list(PATH_CLASSES).index, default="")
        for nic in (nic for nic, path in classes.items() if path == nearest):
            yield not_applicable(
                GPUDIRECT,
                f"GPU {gpu} and NIC {nic} reach each other directly",
                "direct",
                f"{evidence.host_name} HostSystem.hardware.pciDevice",
                "ACS of the ports, ATS and the rate of links are not in the API; cost: not known; remedy: measure it "
                "in the guest (ib_write_bw --use_cuda, all_reduce_perf)",
                f"{nearest} on the host",
            )


CLAIMS: tuple[Row[VsphereEvidence], ...] = (
    of_each(VsphereEvidence.functions, max_read_request),
    once(nccl_settings),
    once(nccl_file),
    FLAT,
    once(distances),
    gpudirect,
)
