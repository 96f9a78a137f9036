# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cable list and bill of materials."""

from __future__ import annotations

import csv
import io

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.tables import bill_of_materials, cable_list


def test_the_cable_list_has_one_row_per_cable():
    rows = list(csv.DictReader(io.StringIO(cable_list(sites.site()))))
    assert len(rows) == 16 + 16
    assert len({row["label"] for row in rows}) == 32
    assert rows[0] == {
        "label": "fabric-000001",
        "from": "gpu01",
        "from_port": "mlx5_0",
        "from_rack": "rack-1",
        "from_unit": "1",
        "to": "leaf1-1",
        "to_port": "Ethernet0",
        "to_rack": "rack-1",
        "to_unit": "40",
        "fabric": "fabric",
        "medium": "dac",
        "gbit_s": "100",
        "way_m": "2.58",
        "length_m": "3",
    }


def test_the_bill_of_materials_counts_racks_devices_and_cables():
    assert bill_of_materials(sites.site()).splitlines() == [
        "category,item,count",
        'rack,"network, 42 units",1',
        'rack,"rack, 42 units",2',
        "device,leaf,4",
        "device,server,4",
        "device,spine,2",
        "transceiver,mmf 100G,32",
        "cable,dac 100G 2.5 m,8",
        "cable,dac 100G 3 m,8",
        "cable,mmf 100G 5 m,8",
        "cable,mmf 100G 7 m,8",
    ]
