# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ring sizes, with ethtool's answers made up in the format of ethtool.c, do_gring."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_nodes import Node
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import rings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError


class Nics(Node):
    """A node with NICs: ``sizes`` are the RX and TX sizes of each, the largest and the current ones."""

    def __init__(self, root, **sizes):
        super().__init__(root)
        self.sizes = sizes
        for name in sizes:
            self.write(f"/sys/class/net/{name}/device/vendor", "0x15b3\n")

    def run(self, argv, stdin=None, timeout_s=None):
        self.ran.append(argv)
        (most_rx, most_tx), (rx, tx) = self.sizes[argv[2]]
        return (
            f"Ring parameters for {argv[2]}:\nPre-set maximums:\nRX:\t\t{most_rx}\nRX Mini:\tn/a\nTX:\t\t{most_tx}\n"
            f"Current hardware settings:\nRX:\t\t{rx}\nRX Mini:\tn/a\nTX:\t\t{tx}\n"
        )


def test_only_rings_that_differ_are_set(tmp_path):
    node = Nics(tmp_path, p0=((8192, 8192), (1024, 4096)), p1=((8192, 8192), (4096, 4096)))
    done = rings.ensure(node, 4096)
    assert node.ran == [["ethtool", "-g", "p0"], ["ethtool", "-G", "p0", "rx", "4096"], ["ethtool", "-g", "p1"]]
    assert (done.before, done.after) == ({"p0 RX ring": 1024}, {"p0 RX ring": 4096})
    assert done.facts == {"rings": {"p0": {"RX": 4096, "TX": 4096}, "p1": {"RX": 4096, "TX": 4096}}}


def test_a_ring_without_a_size_is_left_out(tmp_path):
    node = Nics(tmp_path, p0=((8192, "n/a"), (1024, "n/a")), p1=(("n/a", 8192), ("n/a", "n/a")))
    done = rings.ensure(node, 4096)
    assert done.facts == {"rings": {"p0": {"RX": 4096}, "p1": {"TX": 4096}}}
    assert done.before == {"p0 RX ring": 1024, "p1 TX ring": None}


def test_no_ring_is_read_if_no_size_is_asked(tmp_path):
    node = Nics(tmp_path, p0=((8192, 8192), (1024, 1024)))
    assert rings.ensure(node, 0).facts == {}
    assert node.ran == []
    assert rings.ensure(node, 1).after == {"p0 RX ring": 1, "p0 TX ring": 1}


@pytest.mark.parametrize(("port", "sizes"), [("pf0vf1", {}), ("pf1", {}), ("p0", {"p0": {"RX": 1024, "TX": 1024}})])
def test_representors_are_left_out(tmp_path, port, sizes):
    node = Nics(tmp_path, p0=((8192, 8192), (1024, 1024)))
    node.write("/sys/class/net/p0/phys_port_name", port + "\n")
    assert rings.ensure(node, 1024).facts == {"rings": sizes}


def test_a_nic_whose_port_name_cannot_be_read_is_not_left_out(tmp_path):
    node = Nics(tmp_path, p0=((8192, 8192), (1024, 1024)))
    # Reading a directory fails, as reading this file of some drivers does.
    Path(node.path("/sys/class/net/p0/phys_port_name")).mkdir()
    assert rings.ensure(node, 1024).facts == {"rings": {"p0": {"RX": 1024, "TX": 1024}}}


@pytest.mark.parametrize("text", ["", "Ring parameters for p0:\nRX: 1\n", "x Current hardware settings:\nRX: 1\n"])
def test_an_answer_without_current_settings_is_refused(text):
    with raises(HostError, "ethtool -g p0", "ring sizes"):
        rings.read(text, "p0")


def test_sizes_after_the_first_head_are_the_current_ones():
    head = "Current hardware settings:\n"
    assert rings.read(f"RX: 2\n{head}RX: 1\n{head}TX: 1\n", "p0") == ({"RX": 2}, {"RX": 1, "TX": 1})
