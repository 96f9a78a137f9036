# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import units


def test_units_are_powers_of_1024():
    assert (units.KIB, units.MIB, units.GIB) == (1024, 1024**2, 1024**3)
    assert units.BYTES_OF_UNIT == {"bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
