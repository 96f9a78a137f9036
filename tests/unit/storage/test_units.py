# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units that the real systemd accepts, in an order that it can keep."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.storage import units
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import read_request

REQUEST = read_request(
    {
        "local": [{"name": "cache", "numa_node": 0, "count": 4, "purpose": "cache"}],
        "nfs": [
            {"source": "nas1:/home", "path": "/home", "rdma": True, "cache": "cache", "options": ["nconnect=8"]},
            {"source": "nas1:/sw", "path": "/opt/soft-ware"},
        ],
        "s3": [
            {
                "name": "data",
                "endpoint": "https://s3:9000",
                "bucket": "sets/c4",
                "path": "/data",
                "cache": "cache",
                "size_gib": 9,
            }
        ],
        "s3_keys": {"data": {"access_key_id": "AKIA1", "secret_access_key": "geheim/+="}},
    }
)


def test_the_real_systemd_accepts_the_units(tmp_path):
    (tmp_path / units.BOOT_UNIT).write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    for unit in units.wanted(REQUEST):
        (tmp_path / unit.name).write_text(unit.text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in units.wanted(REQUEST))],
        capture_output=True,
        text=True,
        check=False,
    )
    # Programs may not be there.
    complaints = [line for line in ran.stderr.splitlines() if str(tmp_path) in line or "cycle" in line]
    assert complaints == []
    (tmp_path / "home.mount").write_text("[Mount]\nWhat=x\nWhere=/home\nNonsense=yes\n")
    ran = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "home.mount"], capture_output=True, text=True, check=False
    )
    assert "Nonsense" in ran.stderr


@pytest.mark.parametrize("path", ["/home", "/mnt/a-b/c_d", "/.hidden/x.y", "/a:b"])
def test_a_mount_points_unit_has_systemds_name(path):
    escaped = subprocess.run(
        ["systemd-escape", "--path", "--suffix=mount", path], capture_output=True, text=True, check=False
    )
    assert units.mount_unit(path) == escaped.stdout.strip()


def test_nfs_waits_for_its_cache_and_its_network():
    (home,) = (unit for unit in units.wanted(REQUEST) if unit.name == "home.mount")
    assert "Options=proto=rdma,port=20049,fsc,nconnect=8\n" in home.text
    assert f"After=network-online.target {units.CACHE_UNIT}\n" in home.text


def test_no_key_is_in_a_unit_or_a_file_that_is_shown():
    shown = [unit.text for unit in units.wanted(REQUEST)] + list(units.config_files(REQUEST).values())
    assert not [text for text in shown if "geheim" in text or "AKIA1" in text]
    assert "geheim/+=" in units.secret_files(REQUEST)["/etc/sailloft/s3_data.env"]


def test_the_health_check_gets_mounts_and_services():
    mounts, names = units.health(REQUEST)
    assert mounts == ["/cache", "/home", "/opt/soft-ware", "/data"]
    assert names == [units.BOOT_UNIT, units.CACHE_UNIT, "sailloft-s3-data.service"]
    assert units.health(read_request({})) == ([], [])


def test_no_drive_is_mounted_that_the_boot_did_not_verify():
    """Units require what they are on: systemd.unit(5), Requires and RequiresMountsFor."""
    lines = {unit.name: unit.text.splitlines() for unit in units.wanted(REQUEST)}
    drives = {name: text for name, text in lines.items() if "Type=xfs" in text}
    assert drives
    assert all({f"Requires={units.BOOT_UNIT}", f"After={units.BOOT_UNIT}"} <= {*text} for text in drives.values())
    assert "RequiresMountsFor=/cache" in lines[units.CACHE_UNIT]
    assert "RequiresMountsFor=/cache" in lines["sailloft-s3-data.service"]
