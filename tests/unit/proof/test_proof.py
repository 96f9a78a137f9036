# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import (
    Claim,
    ProofError,
    compare,
    not_applicable,
    show,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.files import read as read_file
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.files import write
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table

HELD = compare("guest_xml", "the GPU is on guest NUMA node 1", 1, 1, "guest numa_node")
FAILED = compare("hypervisor", "8 VFs", 8, 7, "hv01 sriov_numvfs")
APART = not_applicable("nic_firmware", "ATS in firmware", True, "mstconfig query", "no such NIC here")


def proof(*claims: Claim) -> Proof:
    return Proof("vm1", "GPU VM vm1 on hv01", "hv01", list(claims))


def test_a_claim_holds_only_if_a_value_was_seen_and_equals_the_wanted_one():
    assert HELD.holds is True
    assert FAILED.holds is False
    assert compare("bios", "nothing wanted, nothing seen", None, None, "nowhere").holds is False
    assert compare("bios", "the ports", ["a", "b"], ["a", "b"], "sysfs").holds is True


def test_a_claim_that_does_not_apply_has_a_reason_and_does_not_hold():
    assert APART.holds is None
    with pytest.raises(ProofError, match="applicable"):
        not_applicable("bios", "x", 1, "y", "")


def test_counts_and_verdict_are_computed_from_the_claims():
    whole = proof(HELD, FAILED, APART)
    assert whole.counts.to_dict() == {"held": 1, "failed": 1, "not_applicable": 1}
    assert not whole.holds
    assert proof(HELD, APART).holds


@pytest.mark.parametrize("claims", [[], [APART]])
def test_a_proof_without_applicable_claims_does_not_hold(claims):
    assert not proof(*claims).holds
    assert table(proof(*claims))[-1] == Mentions("FAILS")


def test_layers_have_the_order_of_the_paper_and_other_layers_follow():
    other = compare("fabric", "PFC", True, True, "switch")
    assert list(proof(other, HELD, APART, FAILED).by_layer()) == ["nic_firmware", "hypervisor", "guest_xml", "fabric"]


def test_json_is_reproducible_and_is_read_back():
    whole = proof(HELD, FAILED, APART)
    assert whole.to_json() == proof(HELD, FAILED, APART).to_json()
    assert Proof.from_dict(json.loads(whole.to_json())) == whole


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([], "sailloft-proof/1"),
        ({**proof(HELD).to_dict(), "format": "sailloft-proof/2"}, "sailloft-proof/2"),
        ({"format": "sailloft-proof/1", "name": "a"}, "'title'"),
        *(
            ({**proof(HELD).to_dict(), **change}, named)
            for change, named in (
                ({"claims": [{"layer": "bios"}]}, "claims[0] 'claim'"),
                ({"claims": ["bios"]}, "claims[0]"),
                ({"claims": [{**APART.to_dict(), "reason": ""}]}, repr(APART.claim)),
                ({"claims": [{**APART.to_dict(), "holds": "yes"}]}, "claims[0].holds"),
                ({"claims": [{**HELD.to_dict(), "seen": None}]}, repr(HELD.claim)),
                ({"name": "../../etc/passwd"}, "'../../etc/passwd'"),
            )
        ),
    ],
)
def test_an_invalid_proof_is_refused(data, named):
    with pytest.raises(ProofError) as caught:
        Proof.from_dict(data)
    assert named in caught.value.cause


def test_a_proof_of_a_later_version_or_without_reasons_is_read():
    whole = proof(HELD, FAILED)
    data = {**whole.to_dict(), "site": "one"}
    data["claims"] = [{**claim, "read_at": 1} for claim in data["claims"]]
    assert Proof.from_dict(data) == whole
    for claim in data["claims"]:
        del claim["reason"]
    assert Proof.from_dict(data) == whole


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a\n", "a b"])
def test_a_name_that_is_not_a_file_name_is_refused(name):
    with pytest.raises(ProofError, match="file name"):
        Proof(name, "t", "h", [])


def test_the_table_lists_failures_with_their_values_and_each_reason_once():
    assert table(proof(HELD, FAILED, APART, APART)) == [
        "GPU VM vm1 on hv01",
        "                 holds  fails   n/a",
        "  NIC firmware       0      0     2",
        "  Hypervisor         0      1     0",
        "  Guest XML          1      0     0",
        "  total              1      1     2",
        "FAILS Hypervisor: 8 VFs",
        "      wanted 8, seen 7 in hv01 sriov_numvfs",
        "n/a x2 no such NIC here",
    ]


def test_beside_a_page_the_table_fits_a_screen():
    failed = [compare("hypervisor", f"setting {number} {'x' * 60}", 8, number, "hv01 sysfs") for number in range(7)]
    reasons = [not_applicable("bios", f"b{number}", 1, "s", f"reason {number} " * 50) for number in range(40)]
    lines = table(proof(HELD, *failed, *reasons), "vm1.html")
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= 14
    failures = [line for line in lines if line.startswith("FAILS")]
    assert [line[:29] for line in failures[:-1]] == [f"FAILS Hypervisor: setting {number} x" for number in range(5)]
    assert failures[-1] == "FAILS 2 more; see vm1.html"
    (apart,) = [line for line in lines if line.startswith("n/a ")]
    assert "40 claims" in apart
    assert "vm1.html" in apart
    assert table(proof(HELD, FAILED), "vm1.html")[-1] == "FAILS Hypervisor: 8 VFs: wanted 8, seen 7"


def test_beside_a_page_each_subject_has_one_line_with_the_number_of_its_claims():
    of_leaves = [
        compare("configuration", f"leaf{leaf}: port {port}", 1, 2, "x") for leaf in range(7) for port in range(10)
    ]
    unread = [compare("configuration", f"spine1: setting {number}", 1, None, "x") for number in range(9)]
    lines = [line for line in table(proof(*of_leaves, *unread), "fabric.html") if line.startswith("FAILS")]
    assert [sum(line.count(f"leaf{leaf}:") for line in lines) for leaf in range(7)] == [1, 1, 1, 1, 0, 0, 0]
    assert all("9 more" in line for line in lines if "leaf" in line)
    assert lines[-1] == Mentions("30")
    assert max(map(len, lines)) <= 80


def test_many_unread_claims_are_summarized_in_one_line():
    unseen = [compare("hypervisor", f"unread {number}", 1, None, "x") for number in range(4)]
    text = "\n".join(table(proof(*unseen, FAILED)))
    assert "4 claims whose values could not be read, the first: unread 0" in text
    assert "unread 1" not in text
    assert "wanted 8, seen 7" in text
    assert "unread 2" in "\n".join(table(proof(*unseen[:3])))


def test_a_failure_has_its_reason_and_a_page_shows_each_value():
    failed = compare("bios", "the ports", {"a": 1, "b": [2, 3]}, None, "sysfs", "no driver")
    assert table(proof(failed))[-3:] == [
        "FAILS BIOS: the ports",
        "      wanted a: 1, b: 2, 3, seen nothing in sysfs",
        "      no driver",
    ]
    rows = re.findall('<td class="value">(.*?)</td><td class="value">(.*?)</td>', page(proof(failed, HELD)))
    wanted = '<ul class="value"><li>a: 1</li><li>b: 2, 3</li></ul>'
    unseen = (wanted, '<span class="nothing">nothing</span>')
    # The failed claim is among the failures and in its layer; the claim that holds follows.
    assert rows == [unseen, unseen, ("1", "1")]


def test_values_are_shown_as_words():
    assert show(None) == "nothing"
    assert show([True, 2]) == "yes, 2"
    assert show([]) == "none"
    assert show({"a": False}) == "a: no"


class Reader(HTMLParser):
    """A parser of pages that collects the elements, their attributes, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_data(self, data):
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


TEXT = st.text(alphabet=st.sampled_from("<>&\"'/ab="), max_size=30).map(lambda text: f"{text}<script>alert(1)</script>")


@given(TEXT, TEXT, TEXT, TEXT, TEXT)
def test_no_text_of_a_claim_becomes_markup(claim, wanted, source, reason, layer):
    claims = [
        compare(layer, claim, {wanted: [wanted]}, wanted, source),
        not_applicable(layer, claim, wanted, source, reason),
    ]
    seen = read(page(Proof("x", claim, source, claims)))
    assert "script" not in seen.tags
    assert not [name for name, _value in seen.attributes if name.startswith("on")]
    assert claim in seen.text
    assert reason in seen.text


def test_the_page_refers_to_no_external_resources():
    seen = read(page(proof(HELD, FAILED, APART), "<svg xmlns='x'><text>a</text></svg>"))
    assert not {"script", "link", "img", "iframe"} & set(seen.tags)
    assert not [value for name, value in seen.attributes if name in ("src", "href") and not value.startswith("#")]


def test_claims_that_do_not_apply_are_in_a_separate_section():
    text = page(proof(HELD, APART))
    before, apart = text.split('id="not-applicable"')
    assert "ATS in firmware" not in before
    assert "ATS in firmware" in apart
    assert "no such NIC here" in apart


def test_the_verdict_is_on_the_page():
    assert ">Holds<" in page(proof(HELD))
    assert ">Does not hold<" in page(proof(HELD, FAILED))
    assert ">Nothing was proved<" in page(proof(APART))


@pytest.mark.parametrize("svg", ["<p>no</p>", "<svg><SCRIPT>x</script></svg>", "<svg/><p>"])
def test_a_picture_that_is_not_a_plain_svg_is_refused(svg):
    with pytest.raises(ProofError, match="plain"):
        page(proof(HELD), svg)


def test_a_written_file_is_read_back(tmp_path):
    path = str(tmp_path / "proofs" / "vm1.json")
    assert read_file(path) is None
    write(path, "é\n")
    assert read_file(path) == "é\n"
    assert [item.name for item in (tmp_path / "proofs").iterdir()] == ["vm1.json"]


def test_a_killed_write_leaves_the_old_file_and_the_next_write_completes(tmp_path):
    path = tmp_path / "vm1.json"
    write(str(path), "old")
    (tmp_path / ".vm1.json.new").write_text("ha")  # left by a run that was killed during a write
    assert path.read_text() == "old"
    write(str(path), "new")
    assert path.read_text() == "new"
    assert [item.name for item in tmp_path.iterdir()] == ["vm1.json"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "proofs").write_text("a file")
    with pytest.raises(ProofError, match=r"cannot write .*proofs/vm1.json"):
        write(str(tmp_path / "proofs" / "vm1.json"), "x")


def test_a_failed_write_leaves_no_file(tmp_path):
    path = tmp_path / "plan.xml"
    with raises(ProofError, path, "utf-8", "\\ud800", "21"):
        write(str(path), "half of a character: \ud800")
    path.mkdir()
    with raises(ProofError, path, "Is a directory"):
        write(str(path), "a plan")
    assert list(tmp_path.iterdir()) == [path]


def test_the_section_of_failures_lists_only_failed_claims():
    text = page(proof(HELD, FAILED, APART))
    section = text.split('<section class="failures">')[1].split("</section>")[0]
    assert FAILED.claim in section
    assert HELD.claim not in section
    assert APART.claim not in section
    assert '<section class="failures">' not in page(proof(HELD, APART))


@pytest.mark.parametrize(
    ("claims", "counts"),
    [
        ([HELD, APART], ["1 claim holds", "0 fail", "1 not applicable here"]),
        ([HELD, HELD, FAILED], ["2 claims hold", "1 fails", "0 not applicable here"]),
        ([FAILED, FAILED], ["0 claims hold", "2 fail", "0 not applicable here"]),
    ],
)
def test_the_page_shows_the_counts_in_words(claims, counts):
    head = page(proof(*claims)).split('<dl class="counts">')[1].split("</dl>")[0]
    assert [" ".join(pair) for pair in re.findall("<dd>(.*?)</dd><dt>(.*?)</dt>", head)] == counts


def test_each_layer_in_the_head_links_to_its_section():
    odd = compare('a "b" & c', "PFC", True, True, "switch")
    attributes = read(page(proof(HELD, FAILED, odd))).attributes
    targets = [str(value)[1:] for name, value in attributes if name == "href"]
    assert targets == ["layer-hypervisor", "layer-guest_xml", 'layer-a "b" & c']
    assert [value for name, value in attributes if name == "id"] == targets


def test_the_page_counts_held_failed_and_not_applicable_claims_by_layer():
    held = Claim("hypervisor", "a driver is bound", "vfio-pci", "vfio-pci", True, "hv01 driver")
    text = page(proof(held, held, FAILED, APART))
    links = re.findall(r'<span class="name">([^<]+)</span><span class="tally">(.*?)</span></a>', text)
    assert links == [
        ("NIC firmware", "<b>1</b> n/a"),
        ("Hypervisor", '<b class="held">2</b> held, <b class="failed">1</b> failed'),
    ]


def test_the_json_has_two_spaces_of_indentation_sorted_keys_and_text_as_it_is():
    claim = Claim("bios", "é", [1], None, False, "s", "r")
    assert (
        Proof("a", "t", "h", [claim]).to_json()
        == """{
  "claims": [
    {
      "claim": "é",
      "holds": false,
      "layer": "bios",
      "reason": "r",
      "seen": null,
      "source": "s",
      "wanted": [
        1
      ]
    }
  ],
  "counts": {
    "failed": 1,
    "held": 0,
    "not_applicable": 0
  },
  "format": "sailloft-proof/1",
  "holds": false,
  "host": "h",
  "name": "a",
  "title": "t"
}
"""
    )


def test_claims_are_made_from_what_was_seen():
    assert not_applicable("bios", "a", 1, "s", "r", 2) == Claim("bios", "a", 1, 2, None, "s", "r")
    assert compare("bios", "a", 1, 2, "s", "r") == Claim("bios", "a", 1, 2, False, "s", "r")


@pytest.mark.parametrize(("count", "listed"), [(3, 3), (4, 0)])
def test_up_to_three_unread_claims_of_a_layer_are_listed(count, listed):
    unseen = [compare("bios", f"unread {number}", 1, None, "x") for number in range(count)]
    lines = table(proof(*unseen, compare("bios", "read", 1, 2, "x")))
    assert sum(line.startswith("FAILS BIOS: unread") for line in lines) == listed
    assert ("FAILS BIOS: 4 claims whose values could not be read, the first: unread 0" in lines) is (count == 4)
    assert "FAILS BIOS: read" in lines


def test_reasons_are_counted_in_the_order_of_the_claims():
    reasons = [not_applicable("bios", "x", 1, "s", reason) for reason in ("b", "a", "b")]
    assert table(proof(HELD, *reasons))[-2:] == ["n/a x2 b", "n/a x1 a"]


def test_a_layer_with_another_name_has_it_as_its_heading():
    assert table(proof(compare("a_b", "x", 1, 1, "s")))[2] == "  a b                1      0     0"
    assert show((1, False)) == "1, no"
    assert show({}) == "none"
    assert show({"a": [], "b": None}) == "a: none, b: nothing"
