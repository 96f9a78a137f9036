# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a host to its InfiniBand state, or compare it: link types, HCAs now and at each boot, NCCL's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import nccl_conf
from ansible_collections.sailloft.fleet.plugins.module_utils.hca import boot, ports
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import nccl_file

# rdma-ndd of rdma-core writes each HCA's description when the HCA appears or the host's name changes.
NDD, NDD_FILE = "rdma-ndd.service", "/etc/systemd/system/rdma-ndd.service.d/sailloft.conf"
# systemd takes "%%" for a percent sign.
NDD_TEXT = (
    '# Written by sailloft.fleet.ib_host; changes here are lost.\n[Service]\nEnvironment="RDMA_NDD_ND_FORMAT={} %%d"\n'
)
SERVICE = unit.BootService(
    module="ib_host",
    start=boot.__name__,
    settings="/etc/sailloft/ib_host.json",
    code="/usr/lib/sailloft/ib_host.pyz",
    unit="sailloft-ib-host.service",
    description="node descriptions and partitions of InfiniBand HCAs",
    after=("openibd.service", "rdma-load-modules@infiniband.service", NDD),
    # The network's own configuration gives the interfaces their addresses.
    before=("network-pre.target", "NetworkManager.service", "systemd-networkd.service"),
)


def converge(system: System, options: Mapping[str, Any], check: bool = False) -> Outcome:
    """Bring the host to the options of the module ``ib_host``. Raises HostError, for invalid ones before a change."""
    wanted = ports.settings(options["host"], options["hcas"])
    nccl = None if options["nccl"] is None else _nccl(options["nccl"])
    outcome = Outcome()
    if options["now"]:
        outcome = outcome.and_then(_link_types(system, list(wanted["hcas"]), check))
        # A link type that waits for a boot is no failure of this run.
        ready = [name for name in wanted["hcas"] if _is_infiniband(system, name)]
        now = {**wanted, "hcas": {name: wanted["hcas"][name] for name in ready}}
        outcome = outcome.and_then(ports.ensure(system, now, check))
    outcome = outcome.and_then(unit.ensure(system, SERVICE, wanted, check, running=options["now"]))
    outcome = outcome.and_then(_describer(system, options["host"], check, options["now"]))
    if nccl is not None:
        outcome = outcome.and_then(nccl_file.write(system, nccl.encode(), check))
    return outcome


def _nccl(settings: Mapping[str, Any]) -> str:
    try:
        return nccl_conf.text(settings)
    except FabricError as error:
        raise HostError.of(error) from error


def _is_infiniband(system: System, device: str) -> bool:
    return ports.link_layer(system, device) == ports.INFINIBAND


def _link_types(system: System, devices: list[str], check: bool) -> Outcome:
    """Set the link type of HCAs that are Ethernet NICs now; the firmware takes it at the next boot."""
    wanted: dict[str, dict[str, str]] = {}
    for device in devices:
        if not _is_infiniband(system, device):
            address = system.link_name(f"{ports.DEVICES}/{device}/device") or ""
            nic, _dot, function = address.rpartition(".")
            # The functions of one NIC share its firmware: function 0 is port 1.
            wanted.setdefault(f"{nic}.0", {})[f"LINK_TYPE_P{int(function, 16) + 1}"] = "IB"
    if not wanted:
        return Outcome()
    data = {"settings": [{"devices": [address], "values": values} for address, values in wanted.items()]}
    outcome = nic_firmware.ensure(system, read_topology(system), data, check)
    outcome.facts = {}
    return outcome


def _describer(system: System, host: str, check: bool, running: bool) -> Outcome:
    """Let rdma-ndd write the same descriptions; without ``host`` it takes the machine's name, as it does by itself."""
    outcome = Outcome()
    text = NDD_TEXT.format(host) if host else None
    content = system.read_bytes(NDD_FILE)
    if (None if content is None else content.decode(errors="replace")) == text:
        return outcome
    outcome.differ(NDD_FILE, None if content is None else content.decode(errors="replace"), text)
    if check:
        return outcome
    if text is None:
        system.remove(NDD_FILE)
    else:
        system.replace(NDD_FILE, text.encode())
    if running:
        system.run(["systemctl", "daemon-reload"])
        system.run(["systemctl", "try-restart", NDD])
    return outcome
