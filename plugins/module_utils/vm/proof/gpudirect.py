# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims about GPUDirect: one for each GPU and its nearest NICs, the worst first. Pure.

The claim for a pair that is not direct is not applicable, and names the causes, costs and remedies: a cause that has a
remedy makes its own claim in another layer fail. If the guest was not read, the claims fail.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.platform import outlook_causes
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row

LAYER = "gpudirect"


def pairs(evidence: Evidence) -> list[Claim]:
    """Claim that each pair is direct, from what was read on the host and in the guest."""
    plan, host = evidence.planned, evidence.host
    passed = [host.function(device.address) for device in plan.chosen.all()]
    pair_outlooks = outlook.pairs(
        host,
        passed,
        _guest_paths(evidence),
        huge_pages=bool(plan.spec.huge_page_mib),
        guest_causes=outlook_causes(plan, host.iommu),
    )
    return [_pair(evidence, pair) for pair in pair_outlooks]


def _guest_paths(evidence: Evidence) -> dict[tuple[str, str], str]:
    """Return the path classes that the guest sees, by GPU and NIC of the host, without devices that it does not see."""
    if evidence.guest is None:
        return {}
    paths, guest_functions = Paths(evidence.guest), evidence.guest.by_address()
    places = {host: guest for host, guest in evidence.planned.guest_addresses().items() if guest in guest_functions}
    chosen = evidence.planned.chosen
    return {
        (gpu.address, nic.address): paths.path_class(places[gpu.address], places[nic.address])
        for gpu in chosen.gpus
        for nic in chosen.nics
        if gpu.address in places and nic.address in places
    }


def _pair(evidence: Evidence, pair: outlook.Pair) -> Claim:
    rate = "links of unknown rate" if pair.link_gb_per_s is None else f"{pair.link_gb_per_s:.2g} GB/s by their links"
    claim = f"GPU {pair.gpu} and NIC {pair.nic} reach each other directly, {rate}"
    source = f"guest and {evidence.host_name} /sys/bus/pci/devices and config space"
    if evidence.guest is None:
        return Claim(LAYER, claim, "direct", None, False, source, "")
    paths = f"{pair.host_path} on the host, {pair.guest_path} in the guest"
    seen = f"{pair.verdict}: {paths}, {pair.facts.words()}"
    if not pair.causes:
        return Claim(LAYER, claim, "direct", seen, True, source, "")
    reason = "; ".join(f"{cause.what}, which costs: {cause.cost}; remedy: {cause.remedy}" for cause in pair.causes)
    return not_applicable(LAYER, claim, "direct", source, reason, seen)


CLAIMS: tuple[Row[Evidence], ...] = (pairs,)
