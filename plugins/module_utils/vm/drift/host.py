# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A domain's devices, CPUs and memory compared with the host, now and when the domain was planned. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import port_role
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import label, name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices, foreign_member
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import HOST, Drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.read_xml import Definition
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.nodes import serving_node
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.host_record import (
    Recorded,
    link_limit,
    link_words,
    record,
)

PLAN_AGAIN = "run playbooks/gpu_vms.yml, which plans it again for this host"


def against_host(have: Definition, host: Host, running: bool) -> list[Drift]:
    """Return items for ``have``, the definition or the running domain; ``running`` is True if the domain runs."""
    functions = host.by_address()
    missing = [address for address in sorted(have.places) if _is_missing(have, functions, address)]
    items = _missing(have, host, missing, running)
    host_devices = HostDevices(host)
    drivers: dict[str, list[str]] = {}
    groupless = []
    for address in sorted(set(have.places) - set(missing)):
        function = functions[address]
        if function.config_bytes == 0 and any(item.config_bytes for item in host.functions):
            items.append(_dead(function))
            continue
        old = have.recorded.get(address)
        # A stopped domain may leave the device without a driver: libvirt binds it at the start (managed='yes').
        if function.driver != "vfio-pci" and (running or function.driver is not None):
            drivers.setdefault(function.driver or "no driver", []).append(name(function))
        if function.iommu_group is None:
            groupless.append(name(function))
        items += _node(have, host, function, old)
        items += _group(host_devices, have, function, old)
        if old:
            items += _moved(functions, function, old)
        items += _links(host, functions, function, old)
    items += _drivers(drivers, running)
    items += _no_iommu(groupless)
    items += _huge_pages(have, host, running)
    items += _cpus(have, host)
    return items


def no_plan(reason: str) -> Drift:
    """Return the item for a requested domain that cannot be planned on the host now."""
    return Drift(
        f"the request cannot be planned on this host as it is now: {reason}",
        [HOST],
        "playbooks/gpu_vms.yml fails, and the virtual machine can be neither changed nor proven",
        "correct the problems in the other items, or change the inventory",
    )


def _is_missing(have: Definition, functions: dict[str, Function], address: str) -> bool:
    """Return True if the address has no function, or another one than recorded."""
    if address not in functions:
        return True
    old = have.recorded.get(address)
    return old is not None and record(functions, address).model != old.model


def _missing(have: Definition, host: Host, missing: list[str], running: bool) -> list[Drift]:
    """Return items for devices that are not at the address that the domain has for them: they moved, or are gone.

    Bus numbers are assigned depth first, so devices that moved keep their order. If the host has as many unclaimed
    devices of a model as are missing, these are the missing ones, in the same order.
    """
    functions = host.by_address()
    unchanged = set(have.places) - set(missing)
    unclaimed: dict[str, list[str]] = {}
    for function in host.functions:
        if function.address not in unchanged:
            unclaimed.setdefault(record(functions, function.address).model, []).append(function.address)
    items = []
    for address in missing:
        old = have.recorded.get(address)
        model = old.model if old else ""
        missing_of_model = [item for item in missing if item in have.recorded and have.recorded[item].model == model]
        candidates = sorted(unclaimed.get(model, []))
        device = label(old.kind if old else have.guest.function(have.places[address]).kind, address)
        consequence = "libvirt does not start the virtual machine without it"
        if running:
            consequence = f"the running guest has lost it, and {consequence}"
        if address in functions:
            consequence = f"the next start gives the guest {name(functions[address])} in its place"
        if old and len(candidates) == len(missing_of_model):
            now = candidates[missing_of_model.index(address)]
            summary = f"{device} has another address now: {now}"
            remedy = f"where the inventory names {address}, write {now}; then {PLAN_AGAIN}"
        elif address in functions:
            summary = f"{device} is gone: {name(functions[address])} now has its address"
            remedy = f"check the host's log and slot; otherwise remove it from the inventory, and {PLAN_AGAIN}"
        else:
            summary = f"{device} is gone from the host"
            remedy = (
                f"check the host's log and slot (echo 1 > /sys/bus/pci/rescan); otherwise remove it, and {PLAN_AGAIN}"
            )
        items.append(Drift(summary, [HOST], consequence, remedy))
    return items


def _dead(function: Function) -> Drift:
    return Drift(
        f"{name(function)} does not answer: its config space reads as all ones",
        [HOST],
        "it has fallen off the bus; its driver in the guest has lost it, or the next start fails",
        "check the host's log for AER or Xid errors; a power cycle of the host restores it unless it is broken",
    )


def _drivers(drivers: dict[str, list[str]], running: bool) -> list[Drift]:
    consequence = "the next start takes it away from that driver, and hangs or fails if the host uses it"
    if running:
        consequence = "QEMU has lost it: the guest's driver works on a device that the host has taken back"
    return [
        Drift(
            f"{excerpt(names)} {'is' if len(names) == 1 else 'are'} bound to {driver}, not to vfio-pci",
            [HOST],
            consequence,
            "run playbooks/gpu_hosts.yml with it in gpu_host_vfio, or stop what uses it on the host",
        )
        for driver, names in sorted(drivers.items())
    ]


def _no_iommu(names: list[str]) -> list[Drift]:
    if not names:
        return []
    return [
        Drift(
            f"{excerpt(names)} {'is' if len(names) == 1 else 'are'} in no IOMMU group",
            [HOST],
            "the host's IOMMU is off: libvirt does not start the virtual machine",
            "enable it in the BIOS, boot with intel_iommu=on or amd_iommu=on (role gpu_host)",
        )
    ]


def _node(have: Definition, host: Host, function: Function, old: Recorded | None) -> list[Drift]:
    guest_node = have.guest.function(have.places[function.address]).numa_node
    cell = have.cell(guest_node)
    now = host.node_of(function)
    if now is None or cell is None or len(cell.nodes) != 1:
        return []
    # The node in the guest is that of the cell. A device on a node without memory was planned onto the serving node.
    if serving_node(host, now) == cell.nodes[0]:
        return []
    since = "" if old is None or old.node == str(now) else f" (node {old.node or 'unknown'} when it was planned)"
    return [
        Drift(
            f"{name(function)} is on NUMA node {now} now{since}; the guest has it on the cell of node {cell.nodes[0]}",
            [HOST],
            "its threads and buffers are put on the wrong node, and its DMA crosses the socket link",
            PLAN_AGAIN,
        )
    ]


def _group(host_devices: HostDevices, have: Definition, function: Function, old: Recorded | None) -> list[Drift]:
    if function.iommu_group is None:
        return []
    reason = foreign_member(host_devices, function, have.name, have.places)
    now = record(host_devices.functions, function.address).group
    if reason is None and (old is None or old.group == now):
        return []
    planned_group = "" if old is None else f" ({old.group or 'alone'} when it was planned)"
    consequence = "VFIO refuses a group that is not viable: the next start fails"
    if reason is None:
        consequence = (
            "devices of the same group are not isolated from it: ACS of a port above has changed, or a device was added"
        )
    return [
        Drift(
            f"{name(function)} shares its IOMMU group with {now or 'nothing'} now{planned_group}",
            [HOST],
            consequence,
            "assign those to the same virtual machine or unbind them; if ACS is missing, see gpu_host_acs and the BIOS",
        )
    ]


def _moved(functions: dict[str, Function], function: Function, old: Recorded) -> list[Drift]:
    now = record(functions, function.address)
    if now.path == old.path:
        return []
    path_now, path_planned = (" > ".join(item.path.split()) for item in (now, old))
    return [
        Drift(
            f"{name(function)} is now behind {path_now}, it was behind {path_planned}",
            [HOST],
            "the guest's PCI tree mirrors the former place; ACS and MaxReadReq of the new ports may not be set",
            f"run playbooks/gpu_hosts.yml for the ports, then {PLAN_AGAIN}",
        )
    ]


def _links(host: Host, functions: dict[str, Function], function: Function, old: Recorded | None) -> list[Drift]:
    owner = functions.get(function.physical_function or "", function)
    items = []
    now = record(functions, function.address).link
    if old and old.link and now and now != old.link:
        items.append(
            Drift(
                f"the link of {name(function)} supports {now} now, {old.link} when it was planned",
                [HOST],
                "its bandwidth differs from the plan and the guest's NCCL topology file",
                "check whether it is in another slot or behind another riser, or its BIOS setting has changed",
            )
        )
    for step in host.path(owner.address):
        # A function on the root bus has no link, and the internal link of a switch cannot become slower.
        if step.parent is None or port_role(host, step.parent) == "switch_upstream":
            continue
        if step.link is None or not step.link.speed_gt_s or not step.link.width:
            continue
        speed, width = link_limit(functions, step)
        narrow = width is not None and step.link.width < width
        slow = speed is not None and step.link.speed_gt_s < speed
        if not narrow and not slow:
            continue
        place = name(step) if step.kind != "bridge" else f"switch {step.address}"
        advice = "" if narrow else "; an idle device may lower its speed, so check again under load"
        items.append(
            Drift(
                f"the link of {place} runs at {link_words(step.link.speed_gt_s, step.link.width)}, "
                f"both ends support {link_words(speed, width)}",
                [HOST],
                f"all traffic through it is limited to that bandwidth{advice}",
                "reseat it or check its riser; setpci can retrain the link, a power cycle does",
            )
        )
    return items


def _huge_pages(have: Definition, host: Host, running: bool) -> list[Drift]:
    """Compare the huge pages of each node with its cells' needs: all pages if the domain runs, else the free ones."""
    needed_pages: dict[tuple[int, int], int] = {}
    for cell in have.cells:
        if cell.page_mib and len(cell.nodes) == 1:
            key = cell.nodes[0], cell.page_mib
            needed_pages[key] = needed_pages.get(key, 0) + cell.memory_mib // cell.page_mib
    nodes = {node.id: node for node in host.numa_nodes}
    items = []
    for (node, size), pages in sorted(needed_pages.items()):
        pool = nodes[node].huge_pages if node in nodes else []
        pages_of_size = next((item for item in pool if item.size_bytes == size * MIB), None)
        count = 0 if pages_of_size is None else pages_of_size.total if running else pages_of_size.free
        if count < pages:
            free = "" if running else "free "
            items.append(
                Drift(
                    f"NUMA node {node} has {count} {free}huge pages of {size} MiB, the virtual machine needs {pages}",
                    [HOST],
                    "the next start fails for lack of memory",
                    "run playbooks/gpu_hosts.yml (gpu_host_hugepages); after long uptime reserve them at boot",
                )
            )
    return items


def _cpus(have: Definition, host: Host) -> list[Drift]:
    node_of = {cpu: node.id for node in host.numa_nodes for cpu in node.cpus}
    offline: dict[int, list[str]] = {}
    remote_threads = []
    for thread, cpus in have.pins.items():
        for cpu in cpus:
            if cpu not in node_of:
                offline.setdefault(cpu, []).append(thread)
        word, _space, number = thread.rpartition(" ")
        cell = have.vcpu_cell(int(number)) if word == "vCPU" else None
        nodes = {node_of[cpu] for cpu in cpus if cpu in node_of}
        if cell and cell.nodes and nodes - set(cell.nodes):
            remote_threads.append(f"{thread} on node {format_ranges(nodes)}, memory on {format_ranges(cell.nodes)}")
    drifts = []
    if offline:
        threads = excerpt(sorted({thread for items in offline.values() for thread in items}))
        drifts.append(
            Drift(
                f"CPU {format_ranges(offline)} of the host is offline or gone; {threads} is pinned to it",
                [HOST],
                "the kernel moves the thread to any CPU, and the next start fails",
                "bring it back (echo 1 > /sys/devices/system/cpu/cpuN/online), or " + PLAN_AGAIN,
            )
        )
    if remote_threads:
        drifts.append(
            Drift(
                f"vCPUs are not on the node of their memory: {excerpt(remote_threads)}",
                [HOST],
                "each access to that memory crosses the socket link",
                PLAN_AGAIN,
            )
        )
    return drifts
