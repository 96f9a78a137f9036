# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The uses of files by requests and domains with their roles, and whole findings; no file is read."""

from __future__ import annotations

from typing import Any

import pytest
from machines import hypervisor

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.disk_files import ImageFile
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor, ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import disk_use
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.disk_use import Use
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

MAKING = "the file that a disk is made in"
LOG = "/var/log/libvirt/qemu/a-console.log"


def spec(name: str = "a", **more: Any) -> Any:
    return parse_specs([{"name": name, **more}])[0]


def test_each_file_of_a_request_has_its_role():
    disks = [{"path": "/own"}, {"path": "/ro", "read_only": True}, {"path": "/over", "base": "/base"}]
    made = spec(disks=disks, boot={"kernel": "/k", "initrd": "/i"}, console_log="/log")
    assert list(disk_use.uses(made)) == [
        Use("a", "/own", "disk", True),
        Use("a", "/ro", "disk", False),
        Use("a", "/over", "disk", True),
        Use("a", "/base", "the base image", False),
        Use("a", "/over.part", MAKING, True),
        Use("a", "/log", "console_log", True),
        Use("a", "/k", "the kernel", False),
        Use("a", "/i", "the initrd", False),
    ]
    assert list(disk_use.uses(spec(boot={"kernel": "/k"}, console_log="/dev/null"))) == [
        Use("a", "/k", "the kernel", False)
    ]
    assert list(disk_use.uses(spec())) == [Use("a", LOG, "console_log", True)]


XML = """<domain><os><kernel>/k</kernel><initrd>/i</initrd></os><devices>
<serial><log file='/log'/></serial><disk><source file='/f'/></disk><disk><source dev='/dev/x'/><readonly/></disk>
<disk><source pool='p' volume='v'/></disk><disk/></devices></domain>"""
OF_DOMAIN = [
    Use("b", "/log", "the console's log", True),
    Use("b", "/k", "the kernel", False),
    Use("b", "/i", "the initrd", False),
    Use("b", "/f", "disk", True),
    Use("b", "/dev/x", "disk", False),
]


def test_each_file_of_a_domain_has_its_role():
    assert list(disk_use.uses_of_domain("b", XML)) == OF_DOMAIN
    assert list(disk_use.uses_of_domain("b", None, XML, XML)) == OF_DOMAIN
    assert list(disk_use.uses_of_domain("b", "<domain/>", None)) == []
    # One file may have several uses.
    two = "<domain><devices><disk><source file='/f'/><readonly/></disk></devices></domain>"
    assert list(disk_use.uses_of_domain("b", XML, two)) == [*OF_DOMAIN, Use("b", "/f", "disk", False)]


def domain(name: str, *paths: str, live: tuple[str, ...] | None = None) -> ObservedDomain:
    def xml(files: tuple[str, ...]) -> str:
        disks = "".join(f"<disk><source file='{path}'/></disk>" for path in files)
        return f"<domain><devices>{disks}</devices></domain>"

    return ObservedDomain(name, "u", xml(paths), None if live is None else xml(live))


def host(*domains: ObservedDomain, **files: ImageFile) -> Hypervisor:
    made = hypervisor(domains={one.name: one for one in domains})
    made.files = {f"/{name}": file for name, file in files.items()}
    return made


def image(name: str, base: str | None = None, exists: bool = True, own: bool = True) -> ImageFile:
    return ImageFile(f"file {name}", exists, own, base)


def test_the_paths_to_observe_are_those_of_requests_and_domains():
    there = host(domain("b", "/x", live=("/x", "/y")))
    assert disk_use.paths([spec(disks=[{"path": "/own"}])], there) == ["/own", LOG, "/x", "/y"]


def test_a_file_has_the_identity_that_was_observed():
    assert disk_use.identity(host(a=image("1")), "/a") == "file 1"
    assert disk_use.identity(host(), "/a") == "path /a"


SEPARATE = "use a separate file for each"


def found(*specs: Any, there: Hypervisor | None = None, stopping: set[str] | None = None) -> list[Finding]:
    return disk_use.conflicts_on_host(list(specs), there or host(), stopping or set())


def conflict(name: str, what: str, why: str) -> Finding:
    return Finding(name, what, why, SEPARATE, REFUSE)


DAMAGED = "every disk created from a base is damaged when the base is written to"
TWICE = "two writers of one file destroy its contents"
READ = "one would overwrite what the other reads"


@pytest.mark.parametrize(
    ("one", "other", "what", "why"),
    [
        ({"disks": [{"path": "/x"}]}, {"disks": [{"path": "/x"}]}, "disk /x is also virtual machine a's disk", TWICE),
        (
            {"disks": [{"path": "/x"}]},
            {"disks": [{"path": "/x", "read_only": True}]},
            "disk /x is also virtual machine a's disk",
            READ,
        ),
        (
            {"disks": [{"path": "/x", "base": "/y"}]},
            {"disks": [{"path": "/y"}]},
            "disk /y is also virtual machine a's base image",
            DAMAGED,
        ),
        (
            {"disks": [{"path": "/x"}]},
            {"disks": [{"path": "/z", "base": "/x"}]},
            "the base image /x is also virtual machine a's disk",
            DAMAGED,
        ),
        (
            {"boot": {"kernel": "/k"}},
            {"console_log": "/k"},
            "console_log /k is also virtual machine a's kernel",
            READ,
        ),
        (
            {"boot": {"kernel": "/k", "initrd": "/i"}},
            {"console_log": "/i"},
            "console_log /i is also virtual machine a's initrd",
            READ,
        ),
        ({"console_log": "/l"}, {"console_log": "/l"}, "console_log /l is also virtual machine a's console_log", TWICE),
        ({"boot": {"kernel": "/k"}}, {"boot": {"kernel": "/k", "initrd": "/k"}}, None, None),
    ],
)
def test_uses_that_collide_are_refused_with_the_reason(one, other, what, why):
    expected = [conflict("b", what, why)] if what else []
    assert found(spec("a", **one), spec("b", **other)) == expected


def test_uses_of_one_machine_collide_with_its_own():
    assert found(spec(disks=[{"path": "/x"}], console_log="/x")) == [
        conflict("a", "console_log /x is also its own disk", TWICE)
    ]
    assert found(spec(disks=[{"path": "/x"}, {"path": "/x"}])) == [conflict("a", "disk /x is listed twice", TWICE)]
    assert found(spec(disks=[{"path": "/x", "base": "/b"}, {"path": "/y", "base": "/b"}])) == []


def test_another_spelling_of_a_file_is_named():
    there = host(x=image("1"), y=image("1"))
    assert found(spec("a", disks=[{"path": "/x"}]), spec("b", disks=[{"path": "/y"}]), there=there) == [
        conflict("b", "disk /y is also virtual machine a's disk (/x)", TWICE)
    ]


def test_bases_of_bases_are_used_by_disks_and_bases_only():
    chain = {"x": image("1", "/m"), "m": image("2", "/g"), "g": image("3", "/x")}
    of_base = [conflict("b", "disk /g is also virtual machine a's base image", DAMAGED)]
    golden = spec("b", disks=[{"path": "/g", "format": "raw"}])
    without_loop = {**chain, "g": image("3")}
    assert found(spec("a", disks=[{"path": "/x"}]), golden, there=host(**without_loop)) == of_base
    assert found(spec("a", disks=[{"path": "/n", "base": "/m"}]), golden, there=host(**without_loop)) == of_base
    # A kernel that happens to be an image has no base.
    assert found(spec("a", boot={"kernel": "/x"}), golden, there=host(**without_loop)) == []
    # A loop ends.
    assert [item.domain for item in found(spec("a", disks=[{"path": "/x"}]), there=host(**chain))] == []


def test_files_of_unlisted_domains_are_in_the_way_running_or_not():
    asked = spec(disks=[{"path": "/x"}])
    taken = [conflict("a", "disk /x is also virtual machine b's disk", TWICE)]
    assert found(asked, there=host(domain("b", "/x"))) == taken
    assert found(asked, there=host(domain("b", live=("/x",)))) == taken
    assert found(asked, there=host(domain("a", "/x", live=("/x",)))) == []


def test_a_disk_that_a_listed_machine_still_has_open_is_refused():
    asked = [spec("a", disks=[{"path": "/x"}]), spec("b")]
    still = Finding(
        "a",
        "disk /x is still in the running virtual machine b",
        "its definition no longer has the disk, but its QEMU does",
        "restart or stop that virtual machine first",
        REFUSE,
    )
    open_disk = host(domain("b", live=("/x",)))
    assert found(*asked, there=open_disk) == [still]
    assert found(*asked, there=open_disk, stopping={"b"}) == []
    assert found(*asked, there=host(domain("b", "/x"))) == []
    # Only disks are asked for: a log of that name is another's finding.
    logging = [spec("a", console_log="/x"), spec("b")]
    assert found(*logging, there=open_disk) == []
    # Two that only read do not collide.
    reading = spec("a", disks=[{"path": "/x", "read_only": True}])
    read = domain("b", live=("/x",))
    read.live_xml = read.live_xml.replace("</disk>", "<readonly/></disk>")
    assert found(reading, spec("b"), there=host(read)) == []


@pytest.mark.parametrize(
    ("file", "dangles"),
    [
        (image("t", exists=False, own=False), True),
        (image("t", exists=False), False),
        (image("t", own=False), False),
        (None, False),
    ],
)
def test_a_link_to_nowhere_is_refused_for_a_disk_with_a_base(file, dangles):
    if file:
        file.identity = "path /target"
    there = host(**({"x": file} if file else {}))
    told = Finding(
        "a",
        "disk /x is a symbolic link to /target, which does not exist",
        "a disk created in its place would not be at the link's target",
        "mount the link's target, or remove the link",
        REFUSE,
    )
    assert found(spec(disks=[{"path": "/x", "base": "/b"}]), there=there) == ([told] if dangles else [])
    assert found(spec(disks=[{"path": "/x"}]), there=there) == []


def removable(*specs: Any, there: Hypervisor) -> tuple[list[str], list[Finding]]:
    return disk_use.removable(specs[0], list(specs), there)


def kept(why: str) -> tuple[list[str], list[Finding]]:
    return [], [Finding("a", "disk /x is kept", why, "remove it manually if it is not needed", WARN)]


def test_an_overlay_of_its_base_without_another_user_is_removed():
    asked = spec(disks=[{"path": "/x", "base": "/b"}])
    files = {"x": image("1", "/b"), "b": image("2")}
    assert removable(asked, there=host(**files)) == (["/x"], [])
    assert removable(asked, there=host(domain("a", "/x"), **files)) == (["/x"], [])
    assert removable(asked, there=host(b=image("2"))) == ([], [])
    assert removable(asked, there=host(x=image("1", "/b", exists=False))) == ([], [])
    assert removable(spec(disks=[{"path": "/x"}]), there=host(x=image("1"))) == ([], [])
    other = "it is not an overlay of /b, so it was not created here"
    assert removable(asked, there=host(x=image("1"))) == kept(other)
    assert removable(asked, there=host(x=image("1", "/c"))) == kept(other)
    link = "it is a symbolic link, so it was not created here"
    assert removable(asked, there=host(x=image("1", "/b", own=False))) == kept(link)
    assert removable(asked, there=host(domain("z", "/x"), **files)) == kept("it is disk of virtual machine z")
    assert removable(asked, there=host(domain("z", live=("/x",)), **files)) == kept("it is disk of virtual machine z")
    second = spec("z", disks=[{"path": "/x", "read_only": True}])
    assert removable(asked, second, there=host(**files)) == kept("it is disk of virtual machine z")
    own_log = spec(disks=[{"path": "/x", "base": "/b"}], console_log="/x")
    assert removable(own_log, there=host(**files)) == kept("it is console_log of virtual machine a")
