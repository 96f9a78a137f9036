# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits, messages and commands of huge pages."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host import hugepages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.hugepages import Count, Pool

NODE = "/sys/devices/system/node/node0"
SMALL, LARGE = f"{NODE}/hugepages/hugepages-2048kB", f"{NODE}/hugepages/hugepages-1048576kB"


def pages(*rows):
    return {"pages": [dict(zip(("node", "size_mib", "count"), row)) for row in rows]}


def refused(server, *rows):
    with pytest.raises(HostError) as error:
        hugepages.ensure(server, pages(*rows))
    return str(error.value)


def memory(server, total_mib, free_mib):
    server.put(f"{NODE}/meminfo", f"Node 0 MemTotal: {total_mib * 1024} kB\nNode 0 MemFree: {free_mib * 1024} kB\n")


def test_a_pool_has_the_kernels_name():
    assert Pool(3, 1024).directory == "/sys/devices/system/node/node3/hugepages/hugepages-1048576kB"
    assert str(Pool(3, 2)) == "node3 2 MiB"
    assert sorted([Pool(1, 2), Pool(0, 1024), Pool(0, 2)]) == [Pool(0, 2), Pool(0, 1024), Pool(1, 2)]


def test_pools_of_1_mib_and_more_are_read_and_other_names_are_passed_over(server):
    for size, total, free in ((64, 9, 9), (1023, 9, 9), (1024, 5, 4), (2048, 7, 3)):
        for name, number in (("nr_hugepages", total), ("free_hugepages", free)):
            server.put(f"{NODE}/hugepages/hugepages-{size}kB/{name}", f"{number}\n")
    server.put(f"{NODE}/hugepages/other/nr_hugepages", "1\n")
    server.put("/sys/devices/system/node/has_cpu", "0\n")
    assert hugepages.observe(server) == {
        Pool(0, 1): Count(5, 4),
        Pool(0, 2): Count(7, 3),
        Pool(0, 1024): Count(0, 0),
        Pool(1, 2): Count(0, 0),
        Pool(1, 1024): Count(0, 0),
    }


@pytest.mark.parametrize(
    ("want", "memory_mib", "writes"),
    [
        ({Pool(0, 2): 4}, 8, [(Pool(0, 2), 4)]),  # all of the node's memory
        ({Pool(0, 2): 2}, 4, []),  # nothing changes
        ({Pool(0, 2): 1}, 2, [(Pool(0, 2), 1)]),  # as many as are in use
        ({Pool(0, 2): 3}, 6, [(Pool(0, 2), 3)]),
    ],
)
def test_pages_may_fill_the_memory_and_be_reduced_to_those_in_use(want, memory_mib, writes):
    assert hugepages.plan({Pool(0, 2): Count(2, 1)}, {0: memory_mib}, want) == writes


@pytest.mark.parametrize(
    ("want", "message"),
    [
        (
            {Pool(0, 2): 5},
            Mentions("hugepages", "node0", "9", "MiB", "10"),
        ),
        (
            {Pool(0, 2): 0},
            Mentions("hugepages", "1", "node0", "2", "MiB", "0"),
        ),
        (
            {Pool(0, 4): 1},
            Mentions("hugepages", "node0", "4", "MiB"),
        ),
        ({Pool(2, 2): 1}, Mentions("hugepages", "NUMA", "2")),
    ],
)
def test_a_plan_that_the_host_cannot_have_is_refused(want, message):
    seen = {Pool(0, 2): Count(2, 1), Pool(1, 1024): Count(0, 0)}
    with pytest.raises(HostError) as error:
        hugepages.plan(seen, {0: 9, 1: 9}, want)
    assert str(error.value) == message


def test_a_node_that_is_not_named_may_have_any_number_of_pages():
    seen = {Pool(0, 2): Count(0, 0), Pool(1, 2): Count(100, 100)}
    assert hugepages.plan(seen, {0: 9, 1: 9}, {Pool(0, 2): 1}) == [(Pool(0, 2), 1)]


def test_writes_are_ordered_by_size_and_then_by_node():
    seen = {Pool(node, size): Count(1, 1) for node in (0, 1) for size in (2, 1024)}
    want = {Pool(1, 2): 2, Pool(0, 2): 0, Pool(1, 1024): 0, Pool(0, 1024): 2}
    assert hugepages.plan(seen, {0: 9999, 1: 9999}, want) == [
        (Pool(1, 1024), 0),
        (Pool(0, 2), 0),
        (Pool(0, 1024), 2),
        (Pool(1, 2), 2),
    ]


def test_pages_are_allocated_before_their_file_system_is_mounted(server):
    outcome = hugepages.ensure(server, pages((0, 1024, 2), (0, 2, 3), (1, 1024, 0)))
    assert server.effects == [
        f"poke {LARGE}/nr_hugepages",
        f"poke {SMALL}/nr_hugepages",
        "mkdir -p /dev/hugepages-1024M",
        "mount -t hugetlbfs -o pagesize=1024M hugetlbfs /dev/hugepages-1024M",
    ]
    assert outcome.before == {"node0 1024 MiB": 0, "node0 2 MiB": 0, "mount /dev/hugepages-1024M": None}
    assert outcome.after["mount /dev/hugepages-1024M"] == "hugetlbfs pagesize=1024M"
    assert outcome.facts == {
        "hugepages": [
            {"node": 0, "size_mib": 2, "wanted": 3, "total": 3, "free": 3},
            {"node": 0, "size_mib": 1024, "wanted": 2, "total": 2, "free": 2},
            {"node": 1, "size_mib": 1024, "wanted": 0, "total": 0, "free": 0},
        ],
        "hugetlbfs_mounted": ["/dev/hugepages-1024M"],
    }


def test_a_size_without_pages_is_not_mounted(server):
    outcome = hugepages.ensure(server, pages((0, 1024, 0)))
    assert (outcome.changed, outcome.facts["hugetlbfs_mounted"], server.effects) == (False, [], [])


@pytest.mark.parametrize(
    ("units", "restarted"),
    [
        ([], []),
        (["libvirtd.service"], ["systemctl --no-block try-restart libvirtd.service"]),
        (
            ["libvirtd.service", "virtqemud.service"],
            ["systemctl --no-block try-restart libvirtd.service virtqemud.service"],
        ),
    ],
)
def test_the_installed_services_of_libvirt_are_restarted_after_a_mount(server, units, restarted):
    for unit in units:
        server.put(f"/usr/lib/systemd/system/{unit}", "")
    hugepages.ensure(server, pages((0, 1024, 1)))
    assert server.commands[2:] == restarted


def test_memory_is_compacted_once_before_a_second_attempt(server):
    server.pages_at_most[SMALL] = 3
    refused(server, (0, 2, 4))
    poke = f"poke {SMALL}/nr_hugepages"
    assert server.effects == [poke, "poke /proc/sys/vm/compact_memory", poke]
    assert server.read("/proc/sys/vm/compact_memory") == "1"
    server.effects.clear()
    hugepages.ensure(server, pages((0, 2, 2)))
    assert server.effects == [poke]


@pytest.mark.parametrize("size_mib", [2, 1024])
def test_pages_that_do_not_fit_into_the_free_memory_are_refused(server, size_mib):
    server.pages_at_most[f"{NODE}/hugepages/hugepages-{size_mib * 1024}kB"] = 1
    memory(server, 9000, size_mib - 1)
    assert refused(server, (0, size_mib, 2)) == (Mentions("hugepages", "1", "2", "node0", size_mib, "MiB"))


def test_fragmented_memory_is_named_if_enough_is_free(server):
    server.pages_at_most[LARGE] = 1
    memory(server, 9000, 1024)
    assert refused(server, (0, 1024, 2)) == (Mentions("hugepages", "1", "2", "node0", "1024", "MiB"))


def test_a_reservation_at_boot_that_was_made_on_another_node_is_named(server):
    server.pages_at_most[LARGE] = 1
    memory(server, 9000, 1024)
    server.put("/proc/cmdline", "ro hugepagesz=1G hugepages=0:2\n")
    assert refused(server, (0, 1024, 2)) == (Mentions("hugepages", "1", "2", "node0", "1024", "MiB"))


@pytest.mark.parametrize(
    ("word", "size_mib", "reserved"),
    [
        ("hugepagesz=2048K", 2, True),
        ("hugepagesz=2M", 2, True),
        ("hugepagesz=2G", 2048, True),
        ("hugepagesz=2M", 3, False),
        ("default_hugepagesz=2M", 2, False),
        ("", 2, False),
    ],
)
def test_a_boot_reservation_is_recognized_by_its_size(server, word, size_mib, reserved):
    server.put("/proc/cmdline", f"ro {word}\n")
    assert hugepages.reserved_at_boot(server, size_mib) is reserved


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (f"{NODE}/meminfo", "Node 0 MemFree: 1 kB\n", f"{NODE}/meminfo has no MemTotal"),
        (f"{SMALL}/free_hugepages", None, f"{SMALL} cannot be read"),
        (f"{SMALL}/nr_hugepages", None, f"{SMALL} cannot be read"),
    ],
)
def test_an_incomplete_sys_is_named(server, path, text, message):
    if text is None:
        server.remove(path)
    else:
        server.put(path, text)
    assert refused(server, (0, 2, 1)) == Mentions("hugepages", message)


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("hugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0", []),
        ("hugetlbfs /dev/hugepages hugetlbfs rw", []),  # without the last two fields; the default size
        ("hugetlbfs /dev/hugepages hugetlbfs", ["/dev/hugepages-2M"]),
        ("hugetlbfs /dev/hugepages tmpfs rw,pagesize=2M 0 0", ["/dev/hugepages-2M"]),
        ("", ["/dev/hugepages-2M"]),
    ],
)
def test_a_mount_is_recognized_by_its_type_and_size(server, line, missing):
    server.put("/proc/mounts", f"{line}\n")
    pages = [{"node": 0, "size_mib": 2, "count": 1}]
    assert hugepages.ensure(server, {"pages": pages}, check=True).facts["hugetlbfs_mounted"] == missing


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, Mentions("hugepages")),
        ({"pages": [], "page": []}, Mentions("hugepages", "page")),
        (pages((0, 2, 1), (0, 2, 2)), Mentions("hugepages.pages[1]", "node0", "2", "MiB")),
        (pages((-1, 2, 1)), Mentions("hugepages.pages[0]", "-1", "hugepages", "1023")),
        ({"pages": [{"size_mib": 2, "count": 1}]}, Mentions("hugepages.pages[0]", "hugepages")),
    ],
)
def test_a_wrong_setting_is_refused(data, message):
    with pytest.raises(HostError) as error:
        hugepages.wanted(data)
    assert str(error.value) == message


def test_counts_are_read_by_pool():
    assert hugepages.wanted(pages((0, 2, 0), (1023, 1024, 1 << 40))) == {Pool(0, 2): 0, Pool(1023, 1024): 1 << 40}
