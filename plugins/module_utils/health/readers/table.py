# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one table of readers: what each round runs on the node, and for how long at most.

A reader that has nothing to do on a node, such as one of GPUs where none is planned, measures nothing and runs nothing.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Reader
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers import kernel_log
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import (
    accepted,
    amd,
    bandwidth,
    dcgm,
    fabric_manager,
    nvidia_smi,
    nvlink,
    versions,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host import (
    clock,
    containers,
    edac,
    ethernet,
    file_systems,
    memory,
    nvme,
    pcie,
    rdma,
    units,
)

# Each deadline is a little longer than the limits of the programs that the reader runs one after the other. Readers of
# nvidia-smi wait for each other.
READERS = (
    Reader("kernel_log", kernel_log.read, 20),
    Reader("nvidia_smi", nvidia_smi.read, 35, lists=("gpu",)),
    Reader("nvlink", nvlink.read, 35),
    Reader("dcgm", dcgm.read, 45),
    Reader("dcgm_diag", dcgm.read_diagnostic, 2490, is_deep=True),
    Reader("nvbandwidth", accepted.read_copies, 370, is_deep=True),
    Reader("all_reduce_perf", accepted.read_collective, 370, is_deep=True),
    Reader("bandwidth", bandwidth.read, 20),
    Reader("fabric_manager", fabric_manager.read, 20),
    Reader("versions", versions.read, 20),
    Reader("amd", amd.read, 95),
    Reader("pcie", pcie.read, 20),
    Reader("rdma", rdma.read, 20),
    Reader("ethernet", ethernet.read, 45),
    Reader("nvme", nvme.read, 45),
    Reader("edac", edac.read, 20),
    Reader("file_systems", file_systems.read, 45),
    Reader("memory", memory.read, 20),
    Reader("clock", clock.read, 20),
    Reader("units", units.read, 20),
    Reader("containers", containers.read, 95),
)
