# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts with NICs."""

from __future__ import annotations

import pytest
from nic_host import Dcb, NicHost


@pytest.fixture
def host(tmp_path):
    """Return a function that makes a host from a recording."""

    def make(recording="mlx5-vendor"):
        made = NicHost(tmp_path / str(len(list(tmp_path.iterdir()))), recording)
        for interface in ("ens1np0", "ens2np0", "dcb0"):
            if made.exists(f"/sys/class/net/{interface}"):
                made.dcb[interface] = Dcb()
        return made

    return make
