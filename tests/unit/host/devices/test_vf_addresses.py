# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vf_addresses

PF = "b8:3f:d2:9e:10:04"
# The bytes before the port GUID are flags, the queue pair's number and the subnet; they change.
INFINIBAND = "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:9e:10:04"


def test_addresses_match_the_documented_formula():
    # The bytes are the first that sha256sum prints for printf 'b8:3f:d2:9e:10:04/0', for .../1 and for the port GUID,
    # but the first byte is changed; the comments show its value before.
    assert vf_addresses.mac(PF, 0) == "b2:4d:a3:3d:57:fb"  # b7...
    assert vf_addresses.mac(PF, 1) == "02:c1:09:23:15:60"  # 04...
    assert vf_addresses.guid(INFINIBAND, 0) == "f2:43:dd:84:82:0f:ce:7c"  # f8...


def test_addresses_are_local_unicast_and_unique():
    macs = [vf_addresses.mac(f"b8:3f:d2:9e:10:{port:02x}", index) for port in range(8) for index in range(128)]
    assert len(set(macs)) == len(macs)
    assert {mac[1] for mac in macs} == {"2"}
    assert {mac[0] for mac in macs} == set("0123456789abcdef")


def test_queue_pair_number_and_letter_case_do_not_change_an_address():
    other = INFINIBAND.replace("00:00:10:29", "00:00:33:aa").upper()
    assert vf_addresses.guid(other, 3) == vf_addresses.guid(INFINIBAND, 3)
    assert vf_addresses.mac(PF.upper(), 3) == vf_addresses.mac(PF, 3)
