# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the exporters of a node or an image about: node exporter, the timer of its textfiles, dcgm-exporter.

An image does not know the address of the node that boots it. There, and wherever ``network`` is given, the node looks
for its address in this network each time that an exporter starts.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot.unit import check_systemd
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring import dcgm
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import JOBS, host_port
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import rdma
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.daemons import (
    HEAD,
    UNITS,
    Daemon,
    HostFile,
    converge,
    plain_arguments,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.web import check_address, url, web_file
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.web import options as web_options

MODULE = "monitoring_node"
NODE_EXPORTER = "/usr/bin/prometheus-node-exporter"
TEXTFILES = "/var/lib/prometheus/node-exporter"
WEB, COUNTERS = "/etc/prometheus/node-web.yml", "/etc/prometheus/dcgm-counters.csv"
RDMA_CODE = "/usr/lib/sailloft/rdma.pyz"
ADDRESS_CODE = "/usr/lib/sailloft/monitoring_address"
ENVIRONMENT, VARIABLE = "/run/sailloft-monitoring/address", "${SAILLOFT_ADDRESS}"
TIMER, SERVICE = "sailloft-metrics.timer", "sailloft-metrics.service"
DCGM_UNIT = "sailloft-dcgm-exporter.service"
# An mlx5 NIC has more than a thousand statistics.
STATISTICS = (
    r"^((rx|tx)_prio[0-7]_(bytes|packets|discards|pause|pause_duration)"
    r"|(rx|tx)_(global_)?pause.*|tx_pause_storm_.*|rx_(discards|symbol_err|crc_errors|corrected_bits|pcs_symbol_err)_phy"
    r"|rx_out_of_buffer|rx_missed_errors|link_down_events_phy|module_.*)$"
)
# Of virtual machines, containers and bridges.
NOT_PHYSICAL = "^(lo|br.*|bond.*|docker.*|dummy.*|tap.*|veth.*|virbr.*|vnet.*)$"
# rdma.py measures ports instead of infiniband. The next three have series for each processor, which nothing here reads.
COLLECTORS = (
    "--no-collector.infiniband",
    "--no-collector.cpufreq",
    "--no-collector.schedstat",
    "--no-collector.softnet",
    "--collector.ethtool",
    f"--collector.ethtool.device-exclude={NOT_PHYSICAL}",
    f"--collector.ethtool.metrics-include={STATISTICS}",
)
SERVICE_TEXT = """[Unit]
Description=Metrics of this node for node exporter's textfile collector (Sailloft)

[Service]
Type=oneshot
# Its exit code is the verdict.
ExecStart=-/usr/bin/sailloft-health --format prometheus --output {textfiles}/sailloft_health.prom
ExecStart={python} {code} {textfiles}/sailloft_rdma.prom
TimeoutStartSec=60
"""
TIMER_TEXT = """[Unit]
Description=Metrics of this node, once a minute (Sailloft)

[Timer]
OnBootSec=45
OnUnitActiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
"""
DCGM_TEXT = """[Unit]
Description=dcgm-exporter with the counters of Sailloft
Wants=network-online.target
After=network-online.target nvidia-dcgm.service
ConditionPathExists={program}
StartLimitIntervalSec=0

[Service]
Restart=on-failure
RestartSec=5
{before}ExecStart={command}

[Install]
WantedBy=multi-user.target
"""
# A program of its own, because systemd expands no variable that another one sets. It connects nowhere: the kernel tells
# the address from which it would.
ADDRESS_TEXT = """{head}set -e
mkdir -p {folder}
address=$({python} -c '
import ipaddress, socket, sys
network = ipaddress.ip_network("{network}")
with socket.socket(socket.AF_INET6 if network.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as asker:
    asker.connect((str(network[1]), 9))
    address = asker.getsockname()[0]
if ipaddress.ip_address(address) not in network:
    sys.exit("this node has no address in " + str(network))
print("[" + address + "]" if ":" in address else address)
')
echo "SAILLOFT_ADDRESS=$address" > {environment}.$$
mv {environment}.$$ {environment}
"""


def options() -> dict[str, Any]:
    """Return the options of the module as an argument_spec."""
    return {
        "address": {"type": "str", "default": ""},
        "network": {"type": "str", "default": ""},
        "arguments": {"type": "list", "elements": "str", "default": []},
        "dcgm_exporter": {"type": "path"},
        **web_options(),
    }


def ensure(
    system: System, request: Mapping[str, Any], in_image: bool, check: bool = False, python: str = sys.executable
) -> Outcome:
    """Bring the node to the options of the module. Raises HostError."""
    network = _network(request["network"])
    check_systemd(system, MODULE, not in_image)
    if in_image and not network:
        raise RequestError(
            f"{MODULE}: an image does not know the address of its node", "set monitoring_node_network to the network"
        )
    if not network:
        check_address(MODULE, request["address"])
    if not check and not system.exists(NODE_EXPORTER):
        raise HostError(f"{MODULE}: there is no {NODE_EXPORTER}", "install the package prometheus-node-exporter")
    daemons, files = _wanted(request, network, in_image, python)
    return converge(system, daemons, files, in_image, check)


def _wanted(
    request: Mapping[str, Any], network: str, in_image: bool, python: str
) -> tuple[list[Daemon], list[HostFile]]:
    """Return the daemons and all their files. Raises RequestError."""
    web = web_file(WEB, MODULE, request)
    secured = (f"--web.config.file={WEB}",) if web else ()
    address = VARIABLE if network else request["address"]
    before = f"ExecStartPre=+/bin/sh {ADDRESS_CODE}\nEnvironmentFile=-{ENVIRONMENT}\n" if network else ""
    is_known = not network and not in_image
    port = JOBS["node"].port
    exporter = Daemon(
        "prometheus-node-exporter.service",
        (
            NODE_EXPORTER,
            f"--web.listen-address={host_port(address, port) if is_known else f'{address}:{port}'}",
            *secured,
            f"--collector.textfile.directory={TEXTFILES}",
            *_with_given(COLLECTORS, plain_arguments(f"{MODULE}: arguments", request["arguments"])),
        ),
        url=url(request["address"], port, bool(web)) if is_known else "",
    )
    terms = {"head": HEAD.format(module=MODULE), "python": python, "textfiles": TEXTFILES, "code": RDMA_CODE}
    files = [
        HostFile(RDMA_CODE, archive.build(rdma.__name__)),
        web or HostFile(WEB, None, is_secret=True),
        HostFile(f"{UNITS}/{SERVICE}", (terms["head"] + SERVICE_TEXT.format(**terms)).encode()),
        HostFile(f"{UNITS}/{TIMER}", (terms["head"] + TIMER_TEXT).encode()),
        exporter.drop_in(MODULE, before),
    ]
    if network:
        looking = {**terms, "network": network, "environment": ENVIRONMENT, "folder": os.path.dirname(ENVIRONMENT)}
        files.insert(0, HostFile(ADDRESS_CODE, ADDRESS_TEXT.format(**looking).encode()))
    daemons = [Daemon(TIMER, (), reads_once=(f"{UNITS}/{TIMER}",)), exporter]
    if request["dcgm_exporter"]:
        daemons.append(_dcgm(request["dcgm_exporter"], address, secured))
        text = DCGM_TEXT.format(program=request["dcgm_exporter"], before=before, command=daemons[-1].command_line())
        files[:0] = [
            HostFile(COUNTERS, dcgm.counters().encode()),
            HostFile(f"{UNITS}/{DCGM_UNIT}", (terms["head"] + text).encode()),
        ]
    return daemons, files


def _with_given(ours: Iterable[str], theirs: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments; ``theirs`` replace our own of the same name, because node exporter refuses a flag twice."""
    names = {_flag(argument) for argument in theirs}
    return *(argument for argument in ours if _flag(argument) not in names), *theirs


def _flag(argument: str) -> str:
    name = argument.partition("=")[0].lstrip("-")
    return name[len("no-") :] if name.startswith("no-") else name


def _dcgm(program: str, address: str, secured: tuple[str, ...]) -> Daemon:
    port = JOBS["dcgm"].port
    place = f"{address}:{port}" if address == VARIABLE else host_port(address, port)
    (path,) = plain_arguments(f"{MODULE}: dcgm_exporter", [program])
    web = tuple(argument.replace("--web.config.file", "--web-config-file") for argument in secured)
    return Daemon(DCGM_UNIT, (path, f"--address={place}", f"--collectors={COUNTERS}", *web), reads_once=(COUNTERS,))


def _network(text: str) -> str:
    if not text:
        return ""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise RequestError(f"{MODULE}: network is {text!r}: {error}", "write it like 10.0.0.0/16") from None
    if network.num_addresses < 4:
        raise RequestError(f"{MODULE}: network {text} has no room for nodes", "write it like 10.0.0.0/16")
    return str(network)
