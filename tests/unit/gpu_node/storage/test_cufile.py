# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cufile.json as cuFile's own library reads it: the wheel nvidia-cufile. There is no GPU, so it opens no driver."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cufile_library import library, logged, parameters
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile, modes
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

# CUFileBoolConfigParameter_t of cufile.h.
ALLOW_COMPAT_MODE, USE_PCIP2PDMA = 1, 7


def settings(mode: str = modes.P2PDMA, **chosen: Any) -> dict[str, Any]:
    return cufile.settings(Settings(RequestError, "storage_settings", chosen), mode)


def written(tmp_path: Path, chosen: dict[str, Any], rails: tuple[str, ...] = ()) -> Path:
    path = tmp_path / "cufile.json"
    path.write_text(cufile.render(chosen, rails))
    return path


def test_every_path_is_one_that_the_library_looks_up():
    content = library().read_bytes()
    assert [path for path in cufile.PATHS if f"\0{path}\0".encode() not in content] == []


@pytest.mark.parametrize(
    "wrong", ["fs.block.nvme.use_pci_p2pdma", "fs.gpfs.gds_rdma_write_support", "fs.nvme.use_pci_p2pdma"]
)
def test_the_library_looks_up_no_such_path(wrong):
    assert f"\0{wrong}\0".encode() not in library().read_bytes()
    with pytest.raises(RequestError):
        settings(**{wrong: True})


@pytest.mark.parametrize(("mode", "direct"), [(modes.P2PDMA, "1"), (modes.NVIDIA_FS, "0")])
def test_the_library_reads_the_file_with_its_comment(tmp_path, mode, direct):
    path = written(tmp_path, settings(mode, **{"properties.allow_compat_mode": False}))
    assert parameters(path, ALLOW_COMPAT_MODE, USE_PCIP2PDMA) == ["0", direct]


def test_the_library_takes_the_addresses_of_the_rails_and_the_directory_of_the_log(tmp_path):
    chosen = {"properties.rdma_dev_addr_list": "rails", "logging.level": "DEBUG", "logging.dir": str(tmp_path)}
    device = re.compile(r"RDMA device IP\[ \d+ \]: (\S+)")
    path = written(tmp_path, settings(**chosen), ("10.0.0.1", "10.0.1.1"))
    log = logged(path, lambda text: len(device.findall(text)) == 2)
    assert device.findall(log) == ["10.0.0.1", "10.0.1.1"]


def test_the_file_is_the_same_for_the_same_settings_and_is_json_after_its_comment():
    chosen = settings(**{"fs.gpfs.gds_write_support": True, "properties.rdma_dev_addr_list": ["10.1.1.1"]})
    text = cufile.render(chosen, ())
    assert text == cufile.render(dict(reversed(list(chosen.items()))), ())
    assert json.loads(text.split("\n", 1)[1]) == {
        "properties": {"allow_compat_mode": True, "use_pci_p2pdma": True, "rdma_dev_addr_list": ["10.1.1.1"]},
        "fs": {"gpfs": {"gds_write_support": True}},
        "block": {"nvme": {"use_pci_p2pdma": True}},
    }


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"properties.alow_compat_mode": True}, Mentions("properties.allow_compat_mode")),
        ({"properties.allow_compat_mode": "maybe"}, Mentions("properties.allow_compat_mode")),
        ({"properties.use_pci_p2pdma": False}, Mentions("gpu_node_storage")),
        ({"profile.cufile_stats": 4}, Mentions("profile.cufile_stats")),
        ({"properties.rdma_dev_addr_list": "10.0.0.1"}, Mentions("rdma_dev_addr_list")),
    ],
)
def test_invalid_settings_are_refused(chosen, why):
    with pytest.raises(RequestError) as error:
        settings(**chosen)
    assert str(error.value) == why
