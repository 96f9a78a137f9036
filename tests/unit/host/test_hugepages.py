# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import shutil

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host import hugepages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.hugepages import Count, Pool

BOTH = {"pages": [{"node": 0, "size_mib": 1024, "count": 1}, {"node": 1, "size_mib": 2, "count": 64}]}
POOL = "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB"


def test_pages_are_allocated_only_on_the_requested_nodes(server):
    outcome = hugepages.ensure(server, BOTH)
    assert outcome.before == {"node0 1024 MiB": 0, "node1 2 MiB": 0, "mount /dev/hugepages-1024M": None}
    assert outcome.after["node0 1024 MiB"] == 1
    seen = hugepages.observe(server)
    assert {str(pool): count.total for pool, count in seen.items()} == {
        "node0 2 MiB": 0,
        "node0 1024 MiB": 1,
        "node1 2 MiB": 64,
        "node1 1024 MiB": 0,
    }
    assert not hugepages.ensure(server, BOTH).changed


def test_check_mode_predicts_the_changes_and_writes_nothing(server):
    predicted = hugepages.ensure(server, BOTH, check=True)
    assert server.effects == []
    done = hugepages.ensure(server, BOTH)
    assert (predicted.before, predicted.after) == (done.before, done.after)


def test_pages_are_freed_before_more_are_allocated():
    seen = {
        Pool(0, 2): Count(1000, 1000),
        Pool(0, 1024): Count(0, 0),
        Pool(1, 1024): Count(0, 0),
        Pool(1, 2): Count(0, 0),
    }
    want = {Pool(0, 2): 10, Pool(0, 1024): 2, Pool(1, 2): 4, Pool(1, 1024): 1}
    writes = hugepages.plan(seen, {0: 3000, 1: 3000}, want)
    assert [pool for pool, _count in writes] == [Pool(0, 2), Pool(0, 1024), Pool(1, 1024), Pool(1, 2)]


def test_existing_pages_count_towards_the_memory_of_the_node():
    seen = {Pool(0, 2): Count(1000, 0), Pool(0, 1024): Count(0, 0)}
    with pytest.raises(HostError, match=r"node0.*3000.*MiB"):
        hugepages.plan({**seen, Pool(0, 2): Count(1000, 1000)}, {0: 3000}, {Pool(0, 1024): 1, Pool(0, 2): 1000})


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"node": 0, "size_mib": 1024, "count": 3}, Mentions("node0", "3000", "MiB", "3072")),
        ({"node": 2, "size_mib": 2, "count": 1}, Mentions("NUMA", "2")),
        ({"node": 0, "size_mib": 2}, Mentions("pages[1]")),
        (
            {"node": 0, "size_mib": 2, "count": -1},
            Mentions("count", "-1"),
        ),
        ({"node": 0, "size_mib": 2, "count": True}, Mentions("count")),
        ({"node": 0, "size_mib": 2, "count": 1 << 40}, Mentions("node0", "3000", "MiB")),
        (
            {"node": 0, "size_mib": 2, "count": (1 << 40) + 1},
            Mentions("count", "1099511627777", "1099511627776"),
        ),
        ({"node": 1023, "size_mib": 2, "count": 1}, Mentions("NUMA", "1023")),
        (
            {"node": 1024, "size_mib": 2, "count": 1},
            Mentions("node", "1024", "1023"),
        ),
        (
            {"node": 0, "size_mib": 2, "count": 1, "size": 4},
            Mentions("size", "settings", "count", "size_mib"),
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(server, page, message):
    with pytest.raises(HostError) as error:
        hugepages.ensure(server, {"pages": [{"node": 1, "size_mib": 2, "count": 8}, page]})
    assert str(error.value) == message
    assert server.effects == []


def test_a_pool_that_is_given_twice_is_refused(server):
    page = {"node": 0, "size_mib": 2, "count": 1}
    with raises(HostError, "pages[1]", "node0", "2", "twice"):
        hugepages.ensure(server, {"pages": [page, page]})


def test_pages_in_use_are_not_freed(server):
    directory = POOL.format(0, 2048)
    server.put(f"{directory}/nr_hugepages", "100")
    server.put(f"{directory}/free_hugepages", "40")
    with pytest.raises(HostError, match=r"60.*node0.*2"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 2, "count": 59}]})
    assert server.effects == []


def test_fragmentation_is_distinguished_from_lack_of_memory(server):
    server.pages_at_most[POOL.format(0, 1048576)] = 1
    with raises(HostError, "1", "2", "node0", "1024", "2800", "hugepages=0:2"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 1024, "count": 2}]})
    server.put("/proc/cmdline", "ro hugepagesz=1G hugepages=0:2 quiet\n")
    with pytest.raises(HostError, match="gave 1 of 2"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 1024, "count": 2}]})
    server.put("/proc/cmdline", "ro hugepagesz=2M hugepages=0:2 quiet\n")
    with pytest.raises(HostError, match="fragmentation"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 1024, "count": 2}]})
    server.put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 3072000 kB\nNode 0 MemFree: 512000 kB\n")
    with pytest.raises(HostError, match=r"500.*MiB.*1024"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 1024, "count": 2}]})


def test_memory_is_compacted_before_the_allocation_fails(server):
    server.pages_at_most[POOL.format(0, 2048)] = 3
    with pytest.raises(HostError, match=r"gave 3 of 4"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 2, "count": 4}]})
    assert "poke /proc/sys/vm/compact_memory" in server.effects


def test_libvirt_is_restarted_only_after_a_new_mount(server):
    server.put("/usr/lib/systemd/system/libvirtd.service", "")
    hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 2, "count": 4}]})
    assert server.commands == []
    hugepages.ensure(server, BOTH)
    assert server.commands[-1] == "systemctl --no-block try-restart libvirtd.service"


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ("rw,pagesize=2M", [1024]),
        ("rw,pagesize=2048K", [1024]),
        ("rw,pagesize=1024M", [2]),
        ("rw,pagesize=1G", [2]),
        ("rw,pagesize=1048576K", [2]),
        ("rw,relatime", [1024]),  # the default size in /proc/meminfo
    ],
)
def test_mounts_are_recognized_with_any_unit_of_the_page_size(server, options, missing):
    server.put("/proc/meminfo", "MemTotal: 8000000 kB\nHugepagesize:       2048 kB\n")
    server.put(
        "/proc/mounts", f"hugetlbfs /dev/hugepages hugetlbfs {options} 0 0\nproc /proc proc rw,pagesize=16M 0 0\n"
    )
    mounted = hugepages.ensure(server, BOTH, check=True).facts["hugetlbfs_mounted"]
    assert mounted == [f"/dev/hugepages-{size}M" for size in missing]


@pytest.mark.parametrize("word", ["1G", "1024M", "1048576K"])
def test_a_boot_reservation_is_recognized_with_any_unit(server, word):
    server.put("/proc/cmdline", f"ro hugepagesz={word} hugepages=0:2\n")
    assert hugepages.reserved_at_boot(server, 1024)
    assert not hugepages.reserved_at_boot(server, 2)


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(lambda server: None, lambda server: hugepages.ensure(server, BOTH)) == 4


@pytest.mark.parametrize("size_mib", [0, -2, 1, 4, 16, 512, 16384])
def test_sizes_that_x86_does_not_have_are_refused_before_anything_is_written(server, size_mib):
    pages = [{"node": 0, "size_mib": 2, "count": 1}, {"node": 0, "size_mib": size_mib, "count": 1}]
    with raises(RequestError, "hugepages.pages[1]", "size_mib", size_mib, "2", "1024"):
        hugepages.ensure(server, {"pages": pages})
    assert server.effects == []


def test_pages_of_1_gib_are_refused_if_the_processor_lacks_them(server):
    shutil.rmtree(server.path("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB"))
    with pytest.raises(HostError, match=r"node0.*1024.*MiB"):
        hugepages.ensure(server, {"pages": [{"node": 0, "size_mib": 1024, "count": 1}]})
    assert server.effects == []
