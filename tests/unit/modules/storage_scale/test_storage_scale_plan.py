# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

import scale_outputs as printed

from ansible_collections.sailloft.fleet.plugins.modules import storage_scale_plan

READINGS = {"readings": {"n1": printed.reading("n1")}}


def test_the_plan_is_written_once_and_not_in_check_mode(call, tmp_path):
    native = {"license": "data-access", "node_selector": {"scale": "client"}}
    options = {"path": str(tmp_path / "plans"), **printed.REQUEST, **READINGS, "container_native": native}
    predicted = call(storage_scale_plan, options, True)
    assert predicted["changed"]
    assert not (tmp_path / "plans").exists()
    first = call(storage_scale_plan, options)
    assert [Path(path).name for path in first["files"]] == ["scale.json", "scale-objects.json"]
    assert [part["after"] for part in first["diff"]] == [Path(path).read_text() for path in first["files"]]
    assert predicted["diff"] == first["diff"]
    assert not call(storage_scale_plan, options)["changed"]
