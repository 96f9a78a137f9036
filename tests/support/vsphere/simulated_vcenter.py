# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated vCenter on loopback (tests/vcsim), with hosts made from the project's own topologies."""

from __future__ import annotations

import importlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# Tests with a vCenter need it, and are left out where only the library is tested.
importlib.import_module("pyVmomi")

SOURCE = Path(__file__).parents[2] / "vcsim"
USER, PASSWORD = "fleet@vsphere.local", "a secret & <more>"
# Kinds of devices that ESXi can pass through to a guest.
PASSED = ("gpu", "nic", "nvme", "nvswitch")
GIB = 1 << 30


def device(function: Function, host: Host, number: int, active: bool) -> dict[str, Any]:
    """Return a function as tests/vcsim/hosts.go reads it."""
    has = {other.address: other for other in host.functions}
    vfs = [has[address] for address in (function.sriov.vfs if function.sriov else []) if address in has]
    return {
        "id": function.address,
        "class_id": function.class_code >> 8,
        "vendor_id": function.vendor_id,
        "device_id": function.device_id,
        "sub_vendor_id": function.subsystem_vendor_id or 0,
        "sub_device_id": function.subsystem_device_id or 0,
        "parent_bridge": function.parent or "",
        "name": f"simulated {function.kind}",
        "capable": function.kind in PASSED,
        "active": active and function.kind in PASSED and not vfs,
        "pnic": f"vmnic{number}" if function.kind == "nic" and not function.physical_function else "",
        "max_vfs": function.sriov.total if function.sriov else 0,
        "vfs": [{**device(vf, host, number, False), "active": True, "pnic": ""} for vf in vfs],
    }


def esxi(host: Host, name: str, active: bool = True, apply_now: bool = True, version: str = "8.0.3") -> dict[str, Any]:
    """Return a host as tests/vcsim/hosts.go reads it; ``active``: its devices are enabled for passthrough."""
    devices = [
        device(function, host, number, active)
        for number, function in enumerate(host.functions)
        if not function.physical_function
    ]
    return {
        "name": name,
        "version": version,
        "cpu": host.cpu.model or "a processor",
        "cpu_vendor": {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(host.cpu.vendor or "", "unknown"),
        "cpu_hz": 2_500_000_000,
        "cores": sum(len(node.siblings or node.cpus) for node in host.numa_nodes),
        "memory_bytes": sum(node.memory_bytes for node in host.numa_nodes),
        "apply_now": apply_now,
        "numa_nodes": [
            {
                "id": node.id,
                "cpus": node.cpus,
                "memory_bytes": node.memory_bytes,
                "pci_ids": [item.address for item in host.functions if host.node_of(item) == node.id],
            }
            for node in host.numa_nodes
        ],
        "devices": devices,
    }


def site(*hosts: dict[str, Any], api_version: str = "8.0.3.0", free_bytes: int = 4096 * GIB) -> dict[str, Any]:
    """Return the description of a vCenter with one cluster of these hosts."""
    return {
        "api_version": api_version,
        "user": USER,
        "password": PASSWORD,
        "cluster": "gpu",
        "datastore_free_bytes": free_bytes,
        # Device groups exist since API 8.0.0.1.
        "device_groups": {"Nvidia:2@nvlink": 2} if api_version.startswith("8.") else {},
        "hosts": list(hosts),
    }


@dataclass
class VCenter:
    """A running simulator: the data for a login, and its control interface."""

    port: int
    ca_path: str

    @property
    def login(self) -> dict[str, Any]:
        """Return the options of a connection."""
        return {
            "hostname": "127.0.0.1",
            "port": self.port,
            "username": USER,
            "password": PASSWORD,
            "ca_path": self.ca_path,
        }

    def _control(self, method: str, body: str | None = None) -> bytes:
        connection = HTTPSConnection("127.0.0.1", self.port, context=create_default_context(cafile=self.ca_path))
        try:
            connection.request(method, "/control", body)
            return connection.getresponse().read()
        finally:
            connection.close()

    def rule(self, method: str, action: str, **more: Any) -> None:
        """Set a rule for the next requests of ``method``: see tests/vcsim/proxy.go."""
        self._control("POST", json.dumps({"method": method, "action": action, **more}))

    def forget(self) -> None:
        """Forget the requests so far, and all rules."""
        self._control("DELETE")

    def requests(self) -> dict[str, int]:
        """Return the number of requests by method."""
        return json.loads(self._control("GET"))["requests"]

    def sessions(self) -> int:
        """Return the number of open sessions."""
        return json.loads(self._control("GET"))["sessions"]


def program() -> str:
    """Return the path of the simulator, which is built if it is missing."""
    return subprocess.run([SOURCE / "build"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextmanager
def serving(described: dict[str, Any]) -> Iterator[VCenter]:
    """Serve a vCenter while the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        topology = Path(folder) / "site.json"
        topology.write_text(json.dumps(described), encoding="utf-8")
        command = [program(), "-topology", str(topology), "-state", folder]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                port = process.stdout.readline().strip()
                if not port:
                    raise RuntimeError((Path(folder) / "log").read_text(encoding="utf-8"))
                yield VCenter(int(port), str(Path(folder) / "ca.pem"))
            finally:
                process.stdin.close()
                process.stdout.close()
                process.wait(10)
