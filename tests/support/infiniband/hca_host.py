# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server with two HCAs, each with its IPoIB interface; a simulated kernel makes the interfaces of partitions."""

from __future__ import annotations

from pathlib import Path

from gpu_server import Server

# RDMA device -> PCI address and main interface.
HCAS = {"mlx5_0": ("0000:14:00.0", "ib0"), "mlx5_1": ("0000:15:00.0", "ib1")}


class HcaHost(Server):
    """The server. ``commands`` has the programs that it ran."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.put("/usr/lib/systemd/systemd", "")
        for device, (address, interface) in HCAS.items():
            place = self.directory(address)
            self.put(f"{place}/uevent", f"PCI_CLASS=20700\nPCI_ID=15B3:1021\nPCI_SLOT_NAME={address}\n")
            self.link(f"/sys/class/infiniband/{device}/device", f"/sys/bus/pci/devices/{address}")
            self.put(f"/sys/class/infiniband/{device}/node_desc", "MT4129 ConnectX7 Mellanox Technologies\n")
            self.put(f"/sys/class/infiniband/{device}/ports/1/link_layer", "InfiniBand\n")
            self.add_interface(address, interface)
            self.firmware[address] = {
                "ADVANCED_PCI_SETTINGS": ["True(1)"] * 3,
                "LINK_TYPE_P1": ["IB(1)", "ETH(2)", "ETH(2)"],
            }

    def add_interface(self, address: str, name: str, pkey: str = "0xffff") -> None:
        """Add a network interface of an HCA."""
        place = f"{self.directory(address)}/net/{name}"
        self.put(f"{place}/pkey", f"{pkey}\n")
        self.put(f"{place}/create_child", "")
        self.link(f"/sys/class/net/{name}", place)

    def be_ethernet(self, device: str) -> None:
        """Make an HCA an Ethernet NIC."""
        self.put(f"/sys/class/infiniband/{device}/ports/1/link_layer", "Ethernet\n")

    def _kernel(self, path: str, text: str) -> None:
        super()._kernel(path, text)
        if path.endswith("/create_child"):
            interface = path.split("/")[-2]
            address = next(address for address, name in HCAS.values() if name == interface)
            self.add_interface(address, f"{interface}.{int(text, 0):04x}", text)
