# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reader of settings that every package uses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError


def refused(call):
    with pytest.raises(SailloftError) as error:
        call()
    return str(error.value)


def test_null_counts_as_left_out():
    assert Settings(SailloftError, "port 1", {"mtu": None, "name": "a"}).data == {"name": "a"}


@pytest.mark.parametrize("data", [None, [], "mtu", 3])
def test_data_that_is_not_a_dictionary_is_refused(data):
    assert refused(lambda: Settings(SailloftError, "port 1", data)) == Mentions("1", "dictionary")


def test_a_refusal_raises_the_error_of_the_package():
    error = Settings(FabricError, "port 1", {}).refuse("it is down", "plug it in")
    assert error.__class__ is FabricError
    assert (error.subject, error.cause, error.remedy) == ("port 1", "it is down", "plug it in")


def test_unknown_settings_are_refused():
    given = Settings(SailloftError, "port 1", {"mtu": 9000})
    given.only("speed", "mtu")
    assert refused(lambda: given.only("speed", "lanes")) == Mentions("port 1", "'mtu'", "lanes, speed")


@pytest.mark.parametrize("name", [True, 5, 1.5, None])
def test_a_name_that_yaml_reads_as_no_text_is_an_unknown_setting(name):
    given = Settings(SailloftError, "port 1", {name: 9000})
    assert refused(lambda: given.only("on", "mtu")) == Mentions("port 1", repr(name))


def test_the_setting_that_an_unknown_one_is_likely_meant_to_be_is_named_alone():
    given = Settings(SailloftError, "gpu_vm_whole_host", {"brige": "br0"})
    assert refused(lambda: given.only("bridge", "image", "lanes")) == Mentions("'brige'", "bridge")
    assert "lanes" not in refused(lambda: given.only("bridge", "image", "lanes"))


def test_missing_required_settings_are_refused():
    given = Settings(SailloftError, "port 1", {"mtu": 9000, "speed": None})
    given.need("mtu")
    assert refused(lambda: given.need("mtu", "speed")) == Mentions("port 1", "speed")


def test_a_value_is_checked_and_its_default_is_not():
    given = Settings(SailloftError, "port 1", {"mtu": 9000})
    assert given.value("mtu", values.within(1500, 9000)) == 9000
    assert given.value("speed", values.within(1, 2)) is None
    assert given.value("speed", values.within(1, 2), 7) == 7
    message = "port 1: mtu: 9000 is not valid; use a whole number from 1500 to 8999 bytes"
    assert refused(lambda: given.value("mtu", values.within(1500, 8999, "bytes"))) == message


def test_parts_are_named_by_their_place():
    given = Settings(SailloftError, "switch", {"ports": [{"mtu": 1}, {"mtu": 2}]})
    assert [part.data["mtu"] for part in given.parts("ports")] == [1, 2]
    assert given.parts("hosts") == []
    assert given.parts("ports")[0].refusal is SailloftError
    assert refused(lambda: given.parts("ports")[1].need("name")) == Mentions("switch.ports[1]", "name")
    wrong = Settings(SailloftError, "switch", {"ports": {"mtu": 1}})
    assert refused(lambda: wrong.parts("ports")) == Mentions("switch", "ports", "{'mtu': 1}", "list")


def test_a_required_setting_is_checked():
    given = Settings(SailloftError, "port 1", {"mtu": 9000})
    assert given.required("mtu", values.within(1, 9000)) == 9000
    assert "speed" in refused(lambda: given.required("speed", values.within(1, 2)))


def test_a_part_is_named_by_its_path_and_may_be_left_out():
    given = Settings(SailloftError, "switch", {"port": {"mtu": 1}, "fan": 3})
    assert (given.part("port").subject, given.part("port").data) == ("switch.port", {"mtu": 1})
    assert given.part("psu").data == {}
    assert refused(lambda: given.part("fan")).startswith("switch.fan: ")


@dataclass
class Port:
    name: str
    mtu: int = 1500
    speed: int = 0


def test_a_dataclass_is_loaded_with_checks_and_defaults():
    checks = {"name": values.text, "mtu": values.within(1, 9000), "speed": values.within(1, 9)}

    def load(**data):
        return Settings(SailloftError, "port 1", data).load(Port, checks, speed=5)

    assert load(name="a", mtu=None) == Port("a", 1500, 5)
    assert load(name="a", mtu=9000, speed=1) == Port("a", 9000, 1)
    assert refused(lambda: load(mtu=9000)) == Mentions("port 1", "name is missing")
    assert refused(lambda: load(name="a", lanes=1)) == Mentions("port 1", "lanes", "mtu, name, speed")
    assert refused(lambda: load(name="a", mtu=9001)) == Mentions("port 1: mtu", 9001)
