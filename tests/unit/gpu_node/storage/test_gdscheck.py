# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from typing import Any

import pytest
from cufile_library import logged

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile, gdscheck, modes
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

# Made up in the forms of GDS 1.13 and 1.16.
HEAD = " GDS release version: {}\n Platform: x86_64\n ============\n ENVIRONMENT:\n ============\n"
TAIL = """\
 =========
 GPU INFO:
 =========
 GPU index 0 NVIDIA H100 bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled
 GPU index 1 NVIDIA H100 bar:1 bar size (MiB):131072 {}, IOMMU State: Disabled
 ==============
 PLATFORM INFO:
 ==============
 IOMMU: disabled
 {}
 Platform verification succeeded
"""


def printed(drivers: str, settings: str = "", gpu: str = "supports GDS", platform: str = "") -> str:
    rule = " =====================\n"
    parts = [HEAD.format("1.16.0.49"), rule, " DRIVER CONFIGURATION:\n", rule, drivers, rule]
    return "".join([*parts, " CUFILE CONFIGURATION:\n", rule, settings, TAIL.format(gpu, platform)])


OLD = " NVMe P2PDMA        : {}\n NVMe               : {}\n IBM Spectrum Scale : Unsupported\n"
NEW = " NVMe               : {}\n IBM Spectrum Scale : dmabuf, compat\n --DmaBuf support : Enabled\n"
SETTINGS = " properties.use_pci_p2pdma : {0}\n properties.use_compat_mode : {1}\n block.nvme.use_pci_p2pdma : {0}\n"


def judged(output: str, mode: str = modes.P2PDMA, gpus: int = 2, **chosen: Any) -> dict[str, Any]:
    wanted = cufile.settings(Settings(RequestError, "storage_settings", chosen), mode)
    claims = gdscheck.claims({"status": "measured", "output": output}, mode, wanted, gpus)
    return {claim.claim: claim.holds for claim in claims}


def test_a_node_as_planned_holds():
    claims = judged(printed(NEW.format("p2pdma, compat"), SETTINGS.format("true", "true")))
    assert len(claims) == 6
    assert set(claims.values()) == {True}


@pytest.mark.parametrize(
    ("drivers", "tokens"),
    [
        (OLD.format("Supported", "Unsupported"), ("p2pdma",)),
        (OLD.format("Supported", "Supported"), ("p2pdma", "nvfs")),
        (OLD.format("Unsupported", "Supported"), ("nvfs",)),
        (OLD.format("Unsupported", "Unsupported"), ()),
        (" NVMe               : Supported\n", ("nvfs",)),
        (NEW.format("nvfs, compat"), ("nvfs", "compat")),
        (NEW.format("compat"), ("compat",)),
    ],
)
def test_the_older_and_the_newer_form_become_one(drivers, tokens):
    assert gdscheck.parse(printed(drivers)).drivers["NVMe"] == tokens


@pytest.mark.parametrize(
    ("drivers", "mode", "holds"),
    [
        (NEW.format("p2pdma, compat"), modes.NVIDIA_FS, False),
        (NEW.format("nvfs, compat"), modes.NVIDIA_FS, True),
        (NEW.format("nvfs, compat"), modes.P2PDMA, False),
        (NEW.format("compat"), modes.P2PDMA, False),
        (NEW.format("p2pdmax, compat"), modes.P2PDMA, False),
        (OLD.format("Unsupported", "Unsupported"), modes.NVIDIA_FS, False),
        (OLD.format("Supported", "Unsupported"), modes.P2PDMA, True),
        ("", modes.P2PDMA, False),
    ],
)
def test_only_the_planned_mode_holds(drivers, mode, holds):
    assert next(iter(judged(printed(drivers), mode).values())) is holds


def test_an_output_of_another_form_holds_nothing():
    claims = judged("Segmentation fault\n")
    assert True not in claims.values()
    assert False in claims.values()


@pytest.mark.parametrize("output", ["", "gdscheck: not found"])
def test_without_gdscheck_nothing_is_known(output):
    (claim,) = gdscheck.claims({"status": "not measured", "reason": "x", "output": output}, modes.P2PDMA, {}, 2)
    assert claim.holds is None
    assert claim.reason


def test_a_gpu_that_does_not_support_it_or_is_missing_fails():
    title = "all GPUs support GPUDirect Storage"
    assert judged(printed(NEW.format("p2pdma"), gpu="compat mode"))[title] is False
    assert judged(printed(NEW.format("p2pdma")), gpus=3)[title] is False


def test_a_switch_with_acs_fails():
    text = printed(NEW.format("p2pdma"), platform="Found ACS enabled for switch 0000:40:01.1")
    assert gdscheck.parse(text).acs_ports == ("0000:40:01.1",)
    assert judged(text)["no switch has ACS on"] is False


@pytest.mark.parametrize(
    ("chosen", "line", "holds"),
    [
        ({"properties.rdma_dynamic_routing": True}, " properties.rdma_dynamic_routing : 1\n", True),
        ({"properties.rdma_dynamic_routing": True}, " properties.rdma_dynamic_routing : 0\n", False),
        ({"properties.posix_pool_slab_count": [128, 64]}, " properties.posix_pool_slab_count : 128 64 \n", True),
        ({"properties.posix_pool_slab_count": [128, 64]}, " properties.posix_pool_slab_count : 128\n", False),
        ({"fs.gpfs.gds_write_support": True}, " fs.gpfs.gds_write_support: true\n", True),
        ({"execution.max_io_threads": 4}, " execution.max_io_threads : 4\n", True),
        ({"execution.max_io_threads": 4}, " execution.max_io_threads : 8\n", False),
        ({"logging.dir": "/x"}, "", None),
    ],
)
def test_a_setting_is_compared_as_gdscheck_prints_it(chosen, line, holds):
    claims = judged(printed(NEW.format("p2pdma"), SETTINGS.format("true", "true") + line), **chosen)
    assert claims[f"{next(iter(chosen))} is in force"] is holds


def test_a_setting_that_another_file_replaced_fails():
    claims = judged(printed(NEW.format("compat"), SETTINGS.format("false", "true")))
    assert claims["block.nvme.use_pci_p2pdma is in force"] is False
    assert claims["properties.allow_compat_mode is in force"] is True


def test_what_the_library_itself_logs_without_a_gpu_is_no_direct_mode(tmp_path):
    path = tmp_path / "cufile.json"
    chosen = {"logging.level": "DEBUG", "logging.dir": str(tmp_path)}
    path.write_text(cufile.render(cufile.settings(Settings(RequestError, "x", chosen), modes.P2PDMA), ()))
    log = logged(path, lambda text: "IBM Spectrum Scale" in text)
    text = "\n".join(re.sub(r"^.*? cufio-drv:\d+ ", "", line) for line in log.splitlines())
    seen = gdscheck.parse(text)
    assert seen.drivers["NVMe"] == ("compat",)
    assert seen.release
    assert True not in judged(text).values()
