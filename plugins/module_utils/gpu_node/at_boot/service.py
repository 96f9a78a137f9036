# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The service that restores the settings of a GPU node after a reboot."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit

# Clocks are lost when the last client of the driver ends; the persistence daemon is one that stays. Jobs come after.
TEMPLATE = """# Written by sailloft.fleet.gpu_node_boot; changes here are lost.
[Unit]
Description=MIG, clocks and NIC rings of a GPU node (Sailloft)
Wants=systemd-udev-settle.service
After=systemd-udev-settle.service systemd-modules-load.service nvidia-persistenced.service openibd.service
Before=nvidia-dcgm.service slurmd.service kubelet.service containerd.service docker.service
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
    module="gpu_node_boot",
    start=boot.__name__,
    settings="/etc/sailloft/gpu_node.json",
    code="/usr/lib/sailloft/gpu_node.pyz",
    unit="sailloft-gpu-node.service",
    unit_text=TEMPLATE,
)
