# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page has all hosts, is small and the same for the same look, and no text of a node becomes markup."""

from __future__ import annotations

import json
import re

import pytest
from fleets import fleet

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import FAULT, HEALTH, datum
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.floor import FleetFloor
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import FleetHost
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import look_at
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.page import fleet_page
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import Proved
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import HostReading

NOW_S = 1.8e9
HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--<script>", "&lt;b&gt;", "\u2028"]


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_the_page_has_each_host_once_and_is_the_same_for_the_same_look():
    look, floor = fleet(40, NOW_S)
    page = fleet_page(look, floor, "site", "../proofs")
    assert page == fleet_page(*fleet(40, NOW_S), "site", "../proofs")
    data = data_of(page)
    assert [row[0] for row in data["hosts"]] == [each.host.name for each in look.hosts]
    assert len(data["racks"]) == len(floor.racks)
    assert sum(sum(row[2::2]) for row in data["links"]) == sum(floor.links.values())
    assert page.count("<script") == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_node_is_data_only(text):
    reading = HostReading([datum(HEALTH, FAULT, text, NOW_S, [text])], NOW_S, text, text)
    look = look_at([FleetHost(text, text, (HEALTH,))], {text: reading}, Proved(), NOW_S)
    page = fleet_page(look, FleetFloor(), text, f"../{text}")
    assert "onerror" not in page.partition("<script")[0].replace("&lt;img src=x onerror=alert(1)&gt;", "")
    assert page.count("<script") == page.count("</script") == 2
    assert "<img" not in page
    assert "<!--" not in page
    assert data_of(page)["hosts"][0][0] == text


def test_only_the_pages_own_script_runs_and_nothing_is_loaded():
    page = fleet_page(*fleet(4, NOW_S), "site", "proofs")
    assert "default-src 'none'" in page
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", page)
    assert not re.search(r"(src|href)\s*=\s*[\"']|url\(|@import|https?:", page)


def test_a_link_that_differs_is_marked_at_both_ends():
    hosts = [FleetHost(name, "nodes") for name in ("gpu-2", "gpu-1", "leaf1")]
    proved = Proved(links={("gpu-1", "leaf1"): "gpu-1 ens1 - leaf1 swp1: missing"})
    data = data_of(fleet_page(look_at(hosts, {}, proved, NOW_S), FleetFloor(), "site", "proofs"))
    ((one, other, text),) = data["sick"]
    assert [data["hosts"][one][0], data["hosts"][other][0], data["texts"][text]] == [
        "gpu-1",
        "leaf1",
        "gpu-1 ens1 - leaf1 swp1: missing",
    ]
