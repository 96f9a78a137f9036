# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contents of a requested layer: the longest valid names, all refusals as whole messages, and default values."""

from __future__ import annotations

import re

import pytest
from image_samples import refused

from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import archive, contents, kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.model import File, Role, Services, User
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.record import Record

KEY = "ssh-ed25519 AAAAC3Nz"


def layer(**data):
    return Record("layer base", data)


def test_settings_of_a_layer_have_defaults():
    assert contents.read_files(layer(files=[{"path": "/a", "content": ""}])) == (File("/a", "", None),)
    assert contents.read_users(layer(users=[{"name": "a"}])) == (User("a"),)
    assert contents.read_roles(layer(roles=[{"name": "a"}])) == (Role("a"),)
    assert contents.read_services(layer()) == Services()
    empty = layer()
    assert (contents.read_files(empty), contents.read_users(empty), contents.read_roles(empty)) == ((), (), ())
    assert kernel_arguments.read_kernel_arguments(empty) == ()
    assert archive.read_keyring(empty) is None
    assert archive.read_pins(empty, ["x"]) == {}


def test_files_are_sorted_by_path_and_modes_have_four_digits():
    given = [
        {"path": "/b", "source": "/srv/b", "mode": "755", "owner": 0, "group": "4294967294"},
        {"path": "/a/c", "content": "x", "mode": "1777", "owner": "a" * 32},
        {"path": "/a/b", "content": "x", "mode": "0000"},
    ]
    assert contents.read_files(layer(files=given)) == (
        File("/a/b", "x", None, "0000"),
        File("/a/c", "x", None, "1777", "a" * 32),
        File("/b", None, "/srv/b", "0755", "0", "4294967294"),
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *(
            ({"path": path}, f"path {path!r} is not an absolute path; write it like /etc/motd, without '..' or '//'")
            for path in ("/", "//a", "a", "/a/", "/a/../b", "/a\n")
        ),
        *(
            ({"path": path}, f"{path} would be hidden by a mount at boot; use another directory, or tmpfiles.d")
            for path in ("/dev", "/dev/x", "/proc/x", "/run/x", "/sys/x", "/tmp/x", "/var/lock/x", "/var/run")
        ),
        *(
            ({"path": path}, f"{path} would be the same on every node; leave it out; a node gets its own")
            for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/ssh/ssh_host_x")
        ),
        (
            {"content": None},
            "/etc/motd has neither content nor source; give one of them",
        ),
        ({"source": "/x"}, "/etc/motd has both content and source; give one of them"),
        ({"content": None, "source": 7}, "the content or source of /etc/motd is not text; quote it"),
        ({"content": 7}, "the content or source of /etc/motd is not text; quote it"),
        ({"content": "\udfff"}, "the content of /etc/motd is not UTF-8; give it as a file, with source"),
        (
            {"content": None, "source": "x"},
            "source 'x' is not an absolute path; give the file on the build host",
        ),
        *(
            ({"mode": mode}, f'mode {mode!r} is not a string of octal digits; quote it: "0644"')
            for mode in ("64", "00644", "0648", 644)
        ),
        *(
            ({name: value}, f"{name} {value!r} is not a valid name or number; write it like root or 1000")
            for name in ("owner", "group")
            for value in ("a" * 33, "A", "-1", -1, True, 1.5, "1" * 11, [], 4294967295, "9999999999")
        ),
    ],
)
def test_an_invalid_file_is_refused(change, told):
    file = {"path": "/etc/motd", "content": "x", **change}
    assert refused(contents.read_files, layer(files=[file])) == f"layer base: files[0]: {told}"


def test_a_name_longer_than_any_file_may_have_is_refused():
    assert "255 bytes" in refused(contents.read_files, layer(files=[{"path": f"/etc/{'é' * 128}", "content": ""}]))
    assert contents.read_files(layer(files=[{"path": f"/etc/{'a' * 255}", "content": ""}]))


def test_paths_beside_mounts_are_accepted():
    files = [{"path": path, "content": ""} for path in ("/device", "/etc/machine-id2", "/var/locks", "/etc/ssh/x")]
    assert len(contents.read_files(layer(files=files))) == 4


def test_a_file_that_would_be_removed_again_is_refused():
    assert refused(contents.read_files, layer(files=[{"path": "/var/log/x", "content": ""}])) == (
        "layer base: files[0]: /var/log/x would be removed from the image again, like all logs, caches, keys and data "
        "of one machine; use another directory; a node gets its secrets through node_identity"
    )


def test_files_that_exclude_each_other_are_refused():
    one, below = {"path": "/a", "content": ""}, {"path": "/a/b/c", "content": ""}
    assert refused(contents.read_files, layer(files=[one, one])) == (
        "layer base: files[1]: /a is given twice; give it once in a layer; a layer above may replace it"
    )
    assert refused(contents.read_files, layer(files=[below, one])) == (
        "layer base: /a is both a file and a parent directory of /a/b/c; remove one of them"
    )


def test_users_keep_their_order_and_their_groups_are_sorted():
    options = f'from="10.0.0.0/8" {KEY}== a comment'
    users = [{"name": "z", "groups": ["b", "a"], "shell": "/bin/sh", "authorized_keys": [KEY, options]}, {"name": "_a"}]
    assert contents.read_users(layer(users=users)) == (User("z", ("a", "b"), "/bin/sh", (KEY, options)), User("_a"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *(
            (
                {"name": name},
                f"user name {name!r} is not valid; "
                "use at most 32 lower-case letters, digits, '_' and '-', starting with a letter or '_'",
            )
            for name in ("a" * 33, "1a", "a b")
        ),
        *(
            ({"shell": shell}, f"shell {shell!r} of user admin is not an absolute path; write it like /bin/bash")
            for shell in ("sh", "/bin/", "/bin/a b", 7)
        ),
        ({"home": "/srv"}, "unknown setting 'home'; valid settings: authorized_keys, groups, name, shell"),
        (
            {"authorized_keys": KEY},
            "authorized_keys of user admin is not a list; write it as [ssh-ed25519 AAAA...]",
        ),
        *(
            (
                {"authorized_keys": [KEY, key]},
                "authorized_keys[1] of user admin is not a public key on one line; "
                "give what ssh-keygen wrote to the file that ends in .pub",
            )
            for key in (7, "ssh-ed25519", f"{KEY}\n", f"x{KEY}", f"{KEY}=x")
        ),
    ],
)
def test_an_invalid_user_is_refused(change, told):
    assert refused(contents.read_users, layer(users=[{"name": "admin", **change}])) == f"layer base: users[0]: {told}"


def test_units_get_their_type_and_are_sorted():
    units = {"enabled": ["ssh", "a.timer", "x.y"], "disabled": ["b.socket"], "masked": ["c@d.service"]}
    assert contents.read_services(layer(services=units)) == Services(
        ("a.timer", "ssh.service", "x.y.service"), ("b.socket",), ("c@d.service",)
    )
    told = refused(contents.read_services, layer(services={"enabled": ["ssh"], "masked": ["ssh.service"]}))
    assert told == "layer base: services: ssh.service is both enabled and masked; list it once"


@pytest.mark.parametrize(
    ("role", "told"),
    [
        ({"name": "a.b.c.d"}, "role 'a.b.c.d' is not a valid name; write it like sailloft.fleet.gpu_host"),
        ({"name": "a.b-c"}, "role 'a.b-c' is not a valid name; write it like sailloft.fleet.gpu_host"),
        ({"name": 7}, "name 7 is not text; give text, in quotes if it looks like a number"),
        ({"name": ""}, "name '' is not text; give text, in quotes if it looks like a number"),
        ({"name": "a", "vars": {1: 2}}, "vars is not a dictionary; write it as values by name"),
        (
            {"name": "a", "vars": {"x": float("inf")}},
            "vars of role a are not plain data: Out of range float values are not JSON compliant",
        ),
    ],
)
def test_an_invalid_role_is_refused(role, told):
    assert refused(contents.read_roles, layer(roles=[role])).startswith(f"layer base: roles[0]: {told}")


def test_the_variables_of_a_role_are_copied():
    variables = {"x": [1, (2, 3)]}
    (role,) = contents.read_roles(layer(roles=[{"name": "a-b.c_d", "vars": variables}]))
    variables["x"].append(4)
    assert role == Role("a-b.c_d", {"x": [1, [2, 3]]})
    twice = [{"name": "a"}, {"name": "a"}]
    assert refused(contents.read_roles, layer(roles=twice)) == (
        "layer base: roles[1]: role a is given twice; apply it once in a layer"
    )


FORM = re.compile("[a-z]+")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("a", "packages is not a list; write it as packages: [one, another]"),
        (["a", "B"], "packages: 'B' is not a valid name; look for a typing error or a missing quote"),
        (["a", 7], "packages: 7 is not a valid name; look for a typing error or a missing quote"),
        (["a", "b", "a"], "packages: a is listed twice; list it once"),
    ],
)
def test_an_invalid_list_of_names_is_refused(value, told):
    assert refused(layer(packages=value).texts, "packages", FORM) == f"layer base: {told}"
    assert layer(packages=("b", "a")).texts("packages", FORM) == ("b", "a")


def test_records_are_named_by_their_place():
    (one, two) = layer(users=({"a": 1}, {"b": None})).records("users")
    assert [(each.subject, each.data) for each in (one, two)] == [
        ("layer base: users[0]", {"a": 1}),
        ("layer base: users[1]", {}),
    ]
    assert refused(layer(users={}).records, "users") == "layer base: users is not a list; write it as users: [{...}]"


ODD = "use printable ASCII without quotes, backslashes and ${, starting with a letter, digit or '_'"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("quiet", "kernel_arguments is not a list; write it as [console=ttyS0, quiet]"),
        (["a", "b c"], "kernel argument 'b c' has white space; give each argument separately"),
        *(
            ([word], f"kernel argument {word!r} cannot be passed on by iPXE; {ODD}")
            for word in ("", 7, "-a", "a'b", 'a"b', "a\\b", "a${b}", "é", "a\x7f")
        ),
        *(([word], f"kernel argument {word!r} is set at boot; leave it out") for word in ("sailloft.x", "BOOTIF=01")),
    ],
)
def test_an_invalid_kernel_argument_is_refused(value, told):
    read = kernel_arguments.read_kernel_arguments
    assert refused(read, layer(kernel_arguments=value)) == f"layer base: {told}"


def test_memory_for_a_crash_kernel_that_cannot_load_is_refused():
    read = kernel_arguments.read_kernel_arguments
    assert "crashkernel=256M" in refused(read, layer(kernel_arguments=["crashkernel=256M"]))


def test_kernel_arguments_keep_their_order():
    words = ("b=1", "_a", "0x$[]!#~&(", "a")
    assert kernel_arguments.read_kernel_arguments(layer(kernel_arguments=words)) == words


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://a", "http://a"),
        ("https://a:8080/b//", "https://a:8080/b"),
        ("file:///srv/a/", "file:///srv/a"),
    ],
)
def test_the_url_of_an_archive_is_read_without_slashes_at_its_end(url, read):
    assert archive.read_url(layer(url=url)) == read


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a/?b", "http://a b", "file://a/b"])
def test_an_invalid_url_of_an_archive_is_refused(url):
    assert refused(archive.read_url, layer(url=url)) == (
        f"layer base: url {url!r} is not an http, https or file URL without user and password; "
        "write it like https://deb.debian.org/debian"
    )


@pytest.mark.parametrize("secret", ["a-token", "me:s3cret", "me:s3@cr:et"])
def test_a_password_in_a_url_is_refused_and_not_shown(secret):
    message = refused(archive.read_url, layer(url=f"https://{secret}@a.example/debian"))
    assert "without user and password" in message
    assert "a.example/debian" in message
    assert not [word for word in secret.replace("@", ":").split(":") if f"{word}@" in message or f":{word}" in message]


def test_the_keyring_of_an_archive_is_an_absolute_path():
    assert archive.read_keyring(layer(keyring="/a/b.gpg")) == "/a/b.gpg"
    for keyring in ("a", "/", "/a b", "/a[b", "/a]b", 7):
        assert refused(archive.read_keyring, layer(keyring=keyring)) == (
            f"layer base: keyring {keyring!r} is not an absolute path without spaces and brackets; "
            "give the file on the build host"
        )


def test_pinned_digests_are_read_by_place():
    pins = {"a": "0" * 64, "b": "f" * 64}
    assert archive.read_pins(layer(release_sha256=pins), ["b", "a", "c"]) == pins
    assert refused(archive.read_pins, layer(release_sha256={"d": "0" * 64}), ["b", "a"]) == (
        "layer base: release_sha256 has the unknown key 'd'; valid keys: b, a"
    )
    for pin in ("0" * 63, "F" * 64, 7):
        assert refused(archive.read_pins, layer(release_sha256={"a": pin}), ["a"]) == (
            f"layer base: release_sha256 of a is {pin!r}, not a sha256; give 64 hexadecimal digits, lower case"
        )
