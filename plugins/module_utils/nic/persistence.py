# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restore the settings of RoCE NICs after a reboot, before workloads start."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import boot

# After the units that make the devices and VFs or set up the network (and its MTU); before users of RDMA at boot.
TEMPLATE = """# Written by sailloft.fleet.roce_nic; changes here are lost.
[Unit]
Description=QoS of the RoCE NICs (Sailloft)
Wants=systemd-udev-settle.service
After=systemd-udev-settle.service systemd-modules-load.service sys-kernel-config.mount sys-kernel-debug.mount
After=openibd.service sailloft-gpu-host.service network.target
Before=kubelet.service containerd.service docker.service slurmd.service
Before=libvirtd.service virtqemud.service libvirt-guests.service
ConditionPathExists={settings}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} {code} {settings}
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
SERVICE = unit.Service(
    module="roce_nic",
    start=boot.__name__,
    settings="/etc/sailloft/roce_host.json",
    code="/usr/lib/sailloft/roce_host.pyz",
    unit="sailloft-roce-host.service",
    unit_text=TEMPLATE,
)
