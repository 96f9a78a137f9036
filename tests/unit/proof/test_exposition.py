# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Metrics are files that Prometheus' own tool accepts, with the time of the reading."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import COUNTER, Metric, MetricsError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import publish as write

METRICS = [
    Metric("sailloft_things", "Things.", [({"device": 'a"b\\c\nd'}, 1), ({"device": "é"}, 0.5)]),
    Metric("sailloft_packets_total", "Packets.", [({}, 2**63)], COUNTER),
]


def test_promtool_accepts_a_file_and_each_value_is_whole(tmp_path):
    path, changed = write(str(tmp_path / "new"), "things", METRICS, 1000.4, check_mode=False)
    text = (tmp_path / "new/sailloft_things.prom").read_text()
    assert (path, changed) == (str(tmp_path / "new/sailloft_things.prom"), True)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert text.splitlines()[2:4] == [
        r'sailloft_things{device="a\"b\\c\nd"} 1',
        'sailloft_things{device="é"} 0.5',
    ]
    assert f"sailloft_packets_total {2**63}" in text
    assert 'sailloft_reading_timestamp_seconds{reading="things"} 1000\n' in text


def test_a_later_reading_of_the_same_is_no_change_but_has_a_new_time(tmp_path):
    write(str(tmp_path), "things", METRICS, 1000, check_mode=False)
    assert write(str(tmp_path), "things", METRICS, 2000, check_mode=True)[1] is False
    assert "1000" in (tmp_path / "sailloft_things.prom").read_text()
    assert write(str(tmp_path), "things", METRICS, 2000, check_mode=False)[1] is False
    assert "} 2000\n" in (tmp_path / "sailloft_things.prom").read_text()
    assert write(str(tmp_path), "things", METRICS[:1], 3000, check_mode=False)[1] is True
    assert [each.name for each in tmp_path.iterdir()] == ["sailloft_things.prom"]


def test_check_mode_writes_nothing(tmp_path):
    assert write(str(tmp_path / "new"), "things", METRICS, 1000, check_mode=True)[1] is True
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MetricsError, match="file/sailloft_things"):
        write(str(tmp_path / "file"), "things", METRICS, 1000, check_mode=False)
