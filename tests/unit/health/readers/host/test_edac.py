# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory errors are found at their module, in both layouts of the kernel, and counted once."""

from __future__ import annotations

import pytest
from health_nodes import failed, node, results, unmeasured, values, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    GUEST,
    NOT_MEASURED,
    PASS,
    Expected,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.edac import read

MC = "/sys/devices/system/edac/mc/mc0"


def modules(corrected="0", uncorrected="0", total=None, lost="0"):
    """Return the files of a controller with two modules, of which B has errors; ``lost``: of no module."""
    files = {f"{MC}/ce_count": corrected, f"{MC}/ue_count": lost if lost != "0" else uncorrected}
    for name, label, ce, ue in (("dimm0", "P0_DIMM_A", "0", "0"), ("dimm1", "P0_DIMM_B", corrected, uncorrected)):
        files |= {
            f"{MC}/{name}/dimm_label": label,
            f"{MC}/{name}/dimm_ce_count": ce,
            f"{MC}/{name}/dimm_ue_count": ue,
        }
    return files


def rows(corrected="0", uncorrected="0"):
    """Return the files of a controller of the old layout."""
    return {
        f"{MC}/ce_count": corrected,
        f"{MC}/ue_count": uncorrected,
        f"{MC}/csrow1/ue_count": uncorrected,
        f"{MC}/csrow1/ce_count": corrected,
        f"{MC}/csrow1/ch0_ce_count": "0",
        f"{MC}/csrow1/ch0_dimm_label": "CPU0_A1",
        f"{MC}/csrow1/ch1_ce_count": corrected,
        f"{MC}/csrow1/ch1_dimm_label": "",
    }


def reading(root, files):
    """Return a reading of a node with these files."""
    write(root, files)
    return read(node(root))


@pytest.mark.parametrize("layout", [modules, rows])
def test_healthy_memory_passes(tmp_path, layout):
    once = reading(tmp_path, layout())
    assert {result.verdict for result in results(once, once)} == {PASS}


@pytest.mark.parametrize(
    ("layout", "corrected_at", "uncorrected_at"),
    [(modules, "mc0/P0_DIMM_B", "mc0/P0_DIMM_B"), (rows, "mc0/csrow1/ch1", "mc0/csrow1")],
)
def test_errors_are_one_fault_at_their_module(tmp_path, layout, corrected_at, uncorrected_at):
    before = reading(tmp_path, layout())
    assert failed(before, reading(tmp_path, layout("31204", "0"))) == {"edac_corrected": [corrected_at]}
    assert failed(reading(tmp_path, layout("0", "1"))) == {"edac_uncorrected": [uncorrected_at]}


def test_few_corrected_errors_are_no_fault_nor_are_many_old_ones(tmp_path):
    before, after = reading(tmp_path, modules()), reading(tmp_path, modules("20"))
    assert failed(before, after) == {}
    old = reading(tmp_path, modules("31204"))
    assert failed(old, old) == {}


def test_errors_of_no_module_are_the_controllers(tmp_path):
    assert failed(reading(tmp_path, modules(lost="2"))) == {"edac_uncorrected": ["mc0"]}


def test_a_guest_has_none_and_a_server_without_driver_is_not_measured(tmp_path):
    (noted,) = results(reading(tmp_path, {"/proc/cpuinfo": "flags\t\t: fpu sse2"}))
    assert (noted.check, noted.verdict, noted.is_occasional) == ("edac_uncorrected", NOT_MEASURED, True)
    write(tmp_path, {"/proc/cpuinfo": "Features\t: fp asimd"})
    assert read(node(tmp_path, Expected("vm1", machine=GUEST))).measurements == ()
    assert read(node(tmp_path / "guest")).error == ""
    assert reading(tmp_path, {"/proc/cpuinfo": "flags\t\t: fpu hypervisor"}).measurements == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=100))
def test_garbage_is_not_measured(tmp_path, data):
    measured = values(reading(tmp_path, dict.fromkeys(modules(), data)))
    # 0: the controller's count without that of its modules.
    assert all(value in (None, 0) or str(value).encode() in data for value in measured.values())


def test_a_modules_count_that_cannot_be_read_is_no_error_of_the_controller(tmp_path):
    files = modules("31204", "5")
    before = reading(tmp_path, files)
    after = reading(tmp_path, {**files, f"{MC}/dimm1/dimm_ue_count": "\x00", f"{MC}/dimm1/dimm_ce_count": "312O4"})
    assert failed(before, after) == {}
    assert unmeasured(before, after) == {
        check: ["mc0", "mc0/P0_DIMM_B"] for check in ("edac_corrected", "edac_uncorrected")
    }


def test_a_label_of_any_kind_is_one_short_name(tmp_path):
    for label in ("\0\n\x1b[2J", "\u202e" * 9, "A" * 100_000, "\ud83d\ude00".encode(errors="surrogatepass")):
        (fault,) = failed(reading(tmp_path, {**modules("0", "1"), f"{MC}/dimm1/dimm_label": label}))["edac_uncorrected"]
        assert len(fault) <= 500
        assert fault.isprintable()
