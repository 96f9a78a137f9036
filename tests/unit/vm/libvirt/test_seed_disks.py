# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A seed of cloud-init, as the real xorriso writes and reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import overlay_disks
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

KEYS = ["ssh-ed25519 AAAA admin's key: with a colon"]


def spec(tmp_path: Path) -> DomainSpec:
    seed = {"path": str(tmp_path / "seed.iso"), "format": "raw", "read_only": True, "ssh_keys": KEYS}
    bridge = {"type": "bridge", "source": "br0", "mac": "52:54:00:00:00:01"}
    return parse_specs([{"name": "gpu01-vm", "disks": [seed], "interfaces": [bridge]}])[0]


@pytest.mark.skipif(shutil.which("xorriso") is None, reason="xorriso is not installed here")
def test_a_seed_has_name_keys_and_network_and_is_made_once(tmp_path):
    image = tmp_path / "seed.iso"
    overlay_disks.make(spec(tmp_path))
    assert image.read_bytes()[32768 + 40 : 32768 + 46] == b"CIDATA"  # the volume identifier (ECMA-119, 8.4.7)
    command = ["xorriso", "-osirrox", "on", "-indev", str(image), "-extract", "/", str(tmp_path / "read")]
    subprocess.run(command, check=True, capture_output=True)
    read = {path.name: path.read_text() for path in (tmp_path / "read").iterdir()}
    assert sorted(read) == ["meta-data", "network-config", "user-data"]
    assert yaml.safe_load(read["meta-data"])["local-hostname"] == "gpu01-vm"
    assert read["user-data"].startswith("#cloud-config\n")
    user = yaml.safe_load(read["user-data"])
    assert user["disable_root"] is False
    assert {"name": "root", "ssh_authorized_keys": KEYS} in user["users"]
    (interface,) = json.loads(read["network-config"])["ethernets"].values()
    assert interface == {"match": {"macaddress": "52:54:00:00:00:01"}, "dhcp4": True}
    before = image.stat().st_mtime_ns
    overlay_disks.make(spec(tmp_path))
    assert image.stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["read", "seed.iso"]


def test_a_host_without_a_program_for_seeds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DomainError) as error:
        overlay_disks.make(spec(tmp_path))
    assert (error.value.domain, error.value.remedy) == ("gpu01-vm", "install xorriso")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change", [{"read_only": False}, {"format": "qcow2"}, {"base": "/base.qcow2"}, {"path": "/dev/vdb"}]
)
def test_a_seed_is_a_file_of_its_own(change):
    seed = {"path": "/seed.iso", "format": "raw", "read_only": True, "ssh_keys": KEYS, **change}
    with pytest.raises(DomainError) as error:
        parse_specs([{"name": "a", "disks": [seed]}])
    assert error.value.domain == "a"


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "https://host/image.qcow2"},
        {"base_url": "https://host/image.qcow2", "base_checksum": "sha256:" + "0" * 64},
        {"base": "/base.qcow2", "base_url": "file:///etc/passwd", "base_checksum": "sha256:" + "0" * 64},
        {"base": "/base.qcow2", "base_url": "https://host/image.qcow2", "base_checksum": "md5:0"},
        {"base": "/base.qcow2", "base_url": "https://host/", "base_checksum": "sha256:" + "0" * 64},
    ],
)
def test_an_image_to_download_has_a_file_a_url_and_a_checksum(change):
    with pytest.raises(DomainError) as error:
        parse_specs([{"name": "a", "disks": [{"path": "/a.qcow2", **change}]}])
    assert error.value.domain == "a"
