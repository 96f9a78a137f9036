# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The service that restores the settings of a GPU node after a reboot."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit

# Clocks are lost when the last client of the driver ends; the persistence daemon is a client that keeps running. The
# services that start jobs come after this one.
SERVICE = unit.BootService(
    module="gpu_node",
    start=boot.__name__,
    settings="/etc/sailloft/gpu_node.json",
    code="/usr/lib/sailloft/gpu_node.pyz",
    unit="sailloft-gpu-node.service",
    description="MIG, clocks and NIC rings of a GPU node",
    after=("nvidia-persistenced.service", "openibd.service"),
    before=(
        "nvidia-dcgm.service",
        "slurmd.service",
        "kubelet.service",
        "containerd.service",
        "docker.service",
    ),
)
