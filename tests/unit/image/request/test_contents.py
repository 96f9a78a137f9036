# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contents of a requested layer: the longest valid names, refusals and default values."""

from __future__ import annotations

import pytest
from image_samples import refusal, refused

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import File, Role, Services, User
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import contents, kernel_arguments

KEY = "ssh-ed25519 AAAAC3Nz"


def layer(**data):
    return Settings(ImageError, "layer", data)


def test_settings_of_a_layer_have_defaults():
    assert contents.read_files(layer(files=[{"path": "/a", "content": ""}])) == (File("/a", "", None),)
    assert contents.read_users(layer(users=[{"name": "a"}])) == (User("a"),)
    assert contents.read_roles(layer(roles=[{"name": "a"}])) == (Role("a"),)
    assert contents.read_services(layer()) == Services()
    empty = layer()
    assert (contents.read_files(empty), contents.read_users(empty), contents.read_roles(empty)) == ((), (), ())
    assert kernel_arguments.read_kernel_arguments(empty) == ()


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
    ("change", "fact"),
    [
        *(({"path": path}, repr(path)) for path in ("/", "//a", "a", "/a/", "/a/../b")),
        *(
            ({"path": path}, path)
            for path in ("/dev", "/dev/x", "/proc/x", "/run/x", "/sys/x", "/tmp/x", "/var/lock/x", "/var/run")
        ),
        *(({"path": path}, path) for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/ssh/ssh_host_x")),
        ({"content": None}, "source"),
        ({"source": "/x"}, "source"),
        ({"content": None, "source": 7}, "not text"),
        ({"content": 7}, "not text"),
        ({"content": "\udfff"}, "UTF-8"),
        ({"content": None, "source": "x"}, "'x'"),
        *(({"mode": mode}, f"mode: {mode!r}") for mode in ("64", "00644", "0648", 644)),
        *(
            ({name: value}, f"{name}: {value!r}")
            for name in ("owner", "group")
            for value in ("a" * 33, "A", "-1", -1, True, 1.5, "1" * 11, [], 4294967295, "9999999999")
        ),
        # Such a file would be removed from the image again.
        ({"path": "/var/log/x"}, "/var/log/x"),
    ],
)
def test_an_invalid_file_is_refused(change, fact):
    file = {"path": "/etc/motd", "content": "x", **change}
    error = refusal(contents.read_files, layer(files=[file]))
    assert error.subject == "layer.files[0]"
    assert fact in error.cause


def test_a_name_longer_than_any_file_may_have_is_refused():
    assert "255 bytes" in refused(contents.read_files, layer(files=[{"path": f"/etc/{'é' * 128}", "content": ""}]))
    assert contents.read_files(layer(files=[{"path": f"/etc/{'a' * 255}", "content": ""}]))
    assert "2048 in all" in refused(contents.read_files, layer(files=[{"path": f"/{'a' * 200}" * 11, "content": ""}]))
    long = "a" * 300
    assert long in refused(contents.read_users, layer(users=[{"name": "ops", "shell": f"/bin/{long}"}]))
    assert long in refused(contents.read_roles, layer(roles=[{"name": long}]))


def test_paths_beside_mounts_are_accepted():
    files = [{"path": path, "content": ""} for path in ("/device", "/etc/machine-id2", "/var/locks", "/etc/ssh/x")]
    assert len(contents.read_files(layer(files=files))) == 4


def test_files_that_exclude_each_other_are_refused():
    one, below = {"path": "/a", "content": ""}, {"path": "/a/b/c", "content": ""}
    assert refusal(contents.read_files, layer(files=[one, one])).subject == "layer.files[1]"
    assert "/a/b/c" in refusal(contents.read_files, layer(files=[below, one])).cause


def test_users_keep_their_order_and_their_groups_are_sorted():
    options = f'from="10.0.0.0/8" {KEY}== a comment'
    users = [{"name": "z", "groups": ["b", "a"], "shell": "/bin/sh", "authorized_keys": [KEY, options]}, {"name": "_a"}]
    assert contents.read_users(layer(users=users)) == (User("z", ("a", "b"), "/bin/sh", (KEY, options)), User("_a"))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        *(({"name": name}, f"name: {name!r}") for name in ("a" * 33, "1a", "a b")),
        *(({"shell": shell}, f"shell: {shell!r}") for shell in ("sh", "/bin/", "/bin/a b", 7)),
        ({"home": "/srv"}, "'home'"),
        ({"authorized_keys": KEY}, "authorized_keys: "),
        *(
            ({"authorized_keys": [KEY, key]}, "authorized_keys: element 1: ")
            for key in (7, "ssh-ed25519", f"{KEY}\n", f"x{KEY}", f"{KEY}=x")
        ),
    ],
)
def test_an_invalid_user_is_refused(change, fact):
    error = refusal(contents.read_users, layer(users=[{"name": "admin", **change}]))
    assert error.subject == "layer.users[0]"
    assert fact in error.cause


def test_units_get_their_type_and_are_sorted():
    units = {"enabled": ["ssh", "a.timer", "x.y"], "disabled": ["b.socket"], "masked": ["c@d.service"]}
    assert contents.read_services(layer(services=units)) == Services(
        ("a.timer", "ssh.service", "x.y.service"), ("b.socket",), ("c@d.service",)
    )
    error = refusal(contents.read_services, layer(services={"enabled": ["ssh"], "masked": ["ssh.service"]}))
    assert error.subject == "layer.services"
    assert "ssh.service" in error.cause


@pytest.mark.parametrize(
    ("role", "fact"),
    [
        *(({"name": name}, f"name: {name!r}") for name in ("a.b.c.d", "a.b-c", 7, "")),
        ({"name": "a", "vars": {1: "secret"}}, "vars: "),
        ({"name": "a", "vars": {"x": float("inf")}}, "vars of role a"),
    ],
)
def test_an_invalid_role_is_refused(role, fact):
    error = refusal(contents.read_roles, layer(roles=[role]))
    assert error.subject == "layer.roles[0]"
    assert fact in error.cause
    assert "secret" not in str(error)


def test_the_variables_of_a_role_are_copied():
    variables = {"x": [1, (2, 3)]}
    (role,) = contents.read_roles(layer(roles=[{"name": "a-b.c_d", "vars": variables}]))
    variables["x"].append(4)
    assert role == Role("a-b.c_d", {"x": [1, [2, 3]]})
    twice = [{"name": "a"}, {"name": "a"}]
    assert refusal(contents.read_roles, layer(roles=twice)).subject == "layer.roles[1]"


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("quiet", "'quiet'"),
        *(
            (["a", word], f"element 1: {word!r}")
            for word in ("b c", "", 7, "-a", "a'b", 'a"b', "a\\b", "a${b}", "é", "a\x7f", "sailloft.x", "BOOTIF=01")
        ),
    ],
)
def test_an_invalid_kernel_argument_is_refused(value, fact):
    error = refusal(kernel_arguments.read_kernel_arguments, layer(kernel_arguments=value))
    assert error.subject == "layer"
    assert f"kernel_arguments: {fact}" in error.cause


@pytest.mark.parametrize("argument", ["rdinit=/bin/sh", "init=/bin/sh", "root=/dev/sda1"])
def test_an_argument_that_would_end_or_not_change_the_boot_is_refused(argument):
    assert argument in refused(kernel_arguments.read_kernel_arguments, layer(kernel_arguments=[argument]))


def test_kernel_arguments_keep_their_order():
    words = ("b=1", "_a", "0x$[]!#~&(", "a")
    assert kernel_arguments.read_kernel_arguments(layer(kernel_arguments=words)) == words
