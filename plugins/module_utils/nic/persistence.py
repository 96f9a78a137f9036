# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restore the settings of RoCE NICs after a reboot, before workloads start."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import boot

# After the units that create the devices and VFs or set up the network (and its MTU); before users of RDMA at boot.
SERVICE = unit.BootService(
    module="roce_host",
    start=boot.__name__,
    settings="/etc/sailloft/roce_host.json",
    code="/usr/lib/sailloft/roce_host.pyz",
    unit="sailloft-roce-host.service",
    description="QoS of the RoCE NICs",
    after=(
        "sys-kernel-config.mount",
        "sys-kernel-debug.mount",
        "openibd.service",
        "sailloft-gpu-host.service",
        "network.target",
    ),
    before=(
        "kubelet.service",
        "containerd.service",
        "docker.service",
        "slurmd.service",
        "libvirtd.service",
        "virtqemud.service",
        "libvirt-guests.service",
    ),
)
