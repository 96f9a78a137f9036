# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
import scale_outputs as printed

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import readings
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleError


@pytest.mark.parametrize("data", [{"n1": {}}, {"n1": None}, {"n1": {"ports": [{"x": 1}], "outputs": {}, "mounts": {}}}])
def test_readings_of_another_form_are_refused(data):
    with pytest.raises(ScaleError):
        readings.read(data)


def test_the_node_that_was_not_read_is_named_with_its_cause():
    failed = {"unreachable": True, "msg": "No route to host"}
    with pytest.raises(ScaleError) as error:
        readings.read({"n1": {"ports": [], "outputs": {}, "mounts": {}}, "n2": failed})
    assert "n2" in str(error.value)
    assert "No route to host" in str(error.value)


def test_fields_are_decoded_and_lines_belong_to_their_header():
    text = (
        printed.lines("mmlsfs", "", "deviceName:data:", "fs1:%2Fgpfs%3Afs1:")
        + "mmlsfs::0:1\nnoise\nmmlsfs:other:0:1:::x:y:\n"
    )
    assert {tag: [record.fields for record in records] for tag, records in readings.parse(text).items()} == {
        "": [{"deviceName": "fs1", "data": "/gpfs:fs1"}]
    }
