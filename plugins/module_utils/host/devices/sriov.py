# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual functions: their count on a physical function, the mode of its embedded switch, and the settings of each VF.

Sources: Linux Documentation/PCI/pci-iov-howto.rst (the count must be set to 0 before it can change, which removes all
VFs), Documentation/ABI/testing/sysfs-bus-pci (sriov_drivers_autoprobe).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import (
    eswitch,
    libvirt_vfs,
    users,
    vf_addresses,
    vf_settings,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.vf_request import (
    VfRequest,
    refuse_twice,
    wanted,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.vf_settings import (
    ADDRESSES,
    DEVICES,
    PfInterface,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host


def ensure(
    system: System, host: Host, data: Any, check: bool = False, read_again: Callable[[], Host] | None = None
) -> Outcome:
    """Create the VFs of physical functions and apply their settings. Raises HostError.

    The count of VFs and the mode of the switch change only where no VF is in use. ``read_again`` reads the host after
    VFs were added or removed.
    """
    want = wanted(data, host)
    by_address = host.by_address()
    modes = {address: eswitch.mode(system, address) for address, request in want.items() if request.eswitch_mode}
    remode = [address for address, seen in modes.items() if seen != want[address].eswitch_mode]
    remade = [
        address
        for address, request in want.items()
        if _sriov(by_address[address]).now != request.count or (address in remode and _sriov(by_address[address]).now)
    ]
    _refuse_in_use(system, by_address, want, remade, remode)
    links = _links(system, want)
    want = {
        address: _with_addresses(by_address[address], request, links[address]) if address in links else request
        for address, request in want.items()
    }
    refuse_twice(want)
    outcome = Outcome()
    for address in remade:
        if _sriov(by_address[address]).now != want[address].count:
            outcome.differ(f"{address} VFs", _sriov(by_address[address]).now, want[address].count)
    for address in remode:
        outcome.differ(f"{address} eswitch_mode", modes[address], want[address].eswitch_mode)
    probes = _autoprobe_changes(system, want)
    for address, (old_value, new_value) in probes.items():
        outcome.differ(f"{address} drivers_autoprobe", old_value, new_value)
    if not check:
        for address, (_before, new_value) in probes.items():
            system.poke(f"{DEVICES}/{address}/sriov_drivers_autoprobe", "1" if new_value else "0")
        for address in sorted({*remade, *remode}):
            remake(system, address, _sriov(by_address[address]).now, want[address], address in remode)
        if (remade or remode) and read_again:
            by_address = read_again().by_address()
        if remade or remode:
            modes.update({address: eswitch.mode(system, address) for address in remode})
            links = _links(system, want)
    # The driver's defaults of new VFs are not compared, so that check mode, which cannot know them, reports the same.
    links = {address: replace(link, vfs={}) if address in remade else link for address, link in links.items()}
    batch = _setting_changes(links, want, outcome)
    if batch and not check:
        vf_settings.apply(system, batch)
        links = _links(system, want)
        differing = Outcome()
        _setting_changes(links, want, differing)
        if differing.changed:
            raise HostError(
                f"sriov: the driver accepted the settings but did not keep them: found {differing.before}, "
                f"expected {differing.after}",
                "leave them out, or update the driver",
            )
    outcome.facts = {
        "functions": {
            address: _report(
                by_address[address],
                want[address],
                modes.get(address),
                links[address].vfs if address in links else {},
                check and address in remade,
            )
            for address in sorted(want)
        }
    }
    return outcome


def _links(system: System, want: dict[str, VfRequest]) -> dict[str, PfInterface]:
    """Read the interfaces of the physical functions whose VFs have settings. Raises HostError."""
    return {address: vf_settings.read(system, address) for address, request in sorted(want.items()) if request.of_vfs}


def _with_addresses(function: Function, request: VfRequest, link: PfInterface) -> VfRequest:
    """Return the request with the derived addresses of VFs that are not given one. Raises HostError."""
    supported = ADDRESSES.get(link.kind, ())
    for index, settings in sorted(request.settings.items()):
        foreign = [name for name in vf_settings.OF_ONE_VF if name in settings and name not in supported]
        if foreign:
            raise HostError(
                f"sriov: VF {index} of {function.address} has {', '.join(foreign)}, and its interface "
                f"{link.interface} is of type {link.kind}",
                f"leave it out; such a VF has {', '.join(supported) or 'no address that can be set'}",
            )
    if not request.derive_addresses:
        return request
    if not supported or not link.hardware_address.strip("0:"):
        raise HostError(
            f"sriov: {link.interface} of {function.address} (type {link.kind}) has no address to derive from",
            "leave derive_addresses out, and give each VF its own",
        )
    derive = vf_addresses.mac if supported == ADDRESSES["ether"] else vf_addresses.guid
    return replace(
        request,
        settings={
            index: {
                **dict.fromkeys(supported, derive(link.hardware_address, index)),
                **request.settings.get(index, {}),
            }
            for index in range(request.count)
        },
    )


def _refuse_in_use(
    system: System,
    by_address: dict[str, Function],
    want: dict[str, VfRequest],
    remade: list[str],
    remode: list[str],
) -> None:
    """Refuse to remove VFs that are in use, and to change the switch of a NIC that the host itself uses."""
    vfs = [by_address[vf] for address in remade for vf in _sriov(by_address[address]).vfs if vf in by_address]
    in_use = users.of_functions(system, vfs)
    if in_use:
        counts = ", ".join(
            f"{address} from {_sriov(by_address[address]).now} to {want[address].count}"
            + (f" ({want[address].eswitch_mode})" if address in remode else "")
            for address in remade
        )
        raise HostError(
            f"sriov: changing the VFs of {counts} removes all of them, but some are in use: {users.in_words(in_use)}",
            "stop the guests that use them",
        )
    for address in remade:
        libvirt_vfs.refuse_removal(system, address, want[address].count)
    of_host = {address: by_address[address].used_by_host for address in remode if by_address[address].used_by_host}
    if of_host:
        raise HostError(
            f"sriov: eswitch_mode would interrupt what the host uses itself: {users.in_words(of_host)}",
            "leave eswitch_mode out for it; set it at its console, before its network starts",
        )


def _sriov(function: Function) -> Any:
    if function.sriov is None:
        raise HostError(f"sriov: {function.address} has no SR-IOV capability", "leave it out")
    return function.sriov


def _autoprobe_changes(system: System, want: dict[str, VfRequest]) -> dict[str, tuple[bool, bool]]:
    changes = {}
    for address, request in want.items():
        if request.drivers_autoprobe is not None:
            now = system.read(f"{DEVICES}/{address}/sriov_drivers_autoprobe") == "1"
            if now != request.drivers_autoprobe:
                changes[address] = (now, request.drivers_autoprobe)
    return changes


def remake(system: System, address: str, now: int, request: VfRequest, remode: bool) -> None:
    """Remove all VFs, set the mode of the switch, and create the VFs."""
    path = f"{DEVICES}/{address}/sriov_numvfs"
    if now:
        system.poke(path, "0")
    # Drivers differ: ice changes the mode only without VFs (ice_eswitch.c), bnxt in older kernels only with VFs
    # (bnxt_vfr.c), mlx5 in both cases.
    refused = _refused_mode(system, address, request.eswitch_mode) if remode else ""
    if request.count:
        system.poke(path, str(request.count))
    got = system.read(path)
    if got != str(request.count):
        raise HostError(
            f"sriov: {address} has {got} VFs after {request.count} were requested",
            "look at the kernel's log for its driver",
        )
    if refused:
        again = _refused_mode(system, address, request.eswitch_mode) if request.count else refused
        if again:
            raise HostError(
                f"sriov: {address} does not change to {request.eswitch_mode}: without VFs {refused}; with VFs {again}",
                "leave eswitch_mode out, or look at the kernel's log for its driver",
            )
    if remode and eswitch.mode(system, address) != request.eswitch_mode:
        raise HostError(
            f"sriov: {address} accepted eswitch_mode {request.eswitch_mode} but did not keep it",
            "look at the kernel's log for its driver",
        )


def _refused_mode(system: System, address: str, mode: str | None) -> str:
    """Set the mode of the switch; return why it is refused, or "" if it is not."""
    try:
        eswitch.set_mode(system, address, str(mode))
    except HostError as error:
        return error.cause
    return ""


def _setting_changes(
    links: dict[str, PfInterface], want: dict[str, VfRequest], outcome: Outcome
) -> list[tuple[str, str]]:
    """Return the commands for ``vf_settings.apply``, and record the differences in ``outcome``."""
    batch = []
    for address, link in links.items():
        for index, settings in sorted(want[address].settings.items()):
            old_values = {name: link.vfs.get(index, {}).get(name) for name in settings}
            differing = {name: value for name, value in settings.items() if old_values[name] != value}
            if differing:
                outcome.differ(f"{address} VF {index}", {name: old_values[name] for name in differing}, differing)
                batch.append((vf_settings.line(link.interface, index, differing), f"VF {index} of {address}"))
    return batch


def _report(
    function: Function, request: VfRequest, mode: str | None, seen: dict[int, dict[str, Any]], predicted: bool
) -> dict[str, Any]:
    """Return the facts of a function; ``predicted``: its VFs will be created, and have no address yet."""
    report: dict[str, Any] = {
        "count": request.count if predicted else _sriov(function).now,
        "vfs": [] if predicted else list(_sriov(function).vfs),
        "settings": [
            {"vf": index, "name": name, "wanted": value, "seen": seen.get(index, {}).get(name)}
            for index, settings in sorted(request.settings.items())
            for name, value in settings.items()
        ],
    }
    if request.eswitch_mode:
        report["eswitch_mode"] = {"wanted": request.eswitch_mode, "seen": mode}
    return report
