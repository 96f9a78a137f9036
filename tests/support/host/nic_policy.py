# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configure a recorded host's NICs according to a policy."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.nic import ensure

NIC = {"speed_gbit_s": 400, "cable_m": 5}
LOSSY = {"classes": {"roce": {"mode": "lossy"}}}


def bring(system, nics=None, policy=None, rdma_class=None, check=False):
    wanted = ensure.settings(policy or {}, {"mlx5_0": NIC} if nics is None else nics, rdma_class)
    return ensure.ensure(system, wanted, check)
