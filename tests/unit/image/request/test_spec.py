# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for images, refusals, and the key of a layer."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import layer_key
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import DISTRIBUTIONS
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Zk0 admin@site"
LAYERS = {
    "base": {
        "distribution": "debian",
        "suite": "bookworm",
        "architecture": "amd64",
        "archives": [
            {
                "url": "http://deb.debian.org/debian/",
                "suites": ["bookworm", "bookworm-updates"],
                "components": ["main"],
                "keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
                "release_sha256": {"bookworm": "a" * 64},
            }
        ],
        "packages": ["systemd-sysv", "linux-image-cloud-amd64"],
        "kernel_arguments": ["console=ttyS0"],
    },
    "gpu": {
        "parent": "base",
        "archives": [{"url": "https://cuda.example/debian12/x86_64", "suites": ["./"]}],
        "packages": ["pciutils", "bash=5.2-1"],
        "files": [
            {"path": "/etc/motd", "content": "hello\n"},
            {"path": "/etc/limits", "source": "/srv/limits", "mode": "600", "owner": "root", "group": 4},
        ],
        "users": [{"name": "admin", "groups": ["sudo", "adm"], "authorized_keys": [KEY, f'from="10.0.0.0/8" {KEY}']}],
        "services": {"enabled": ["ssh", "a.timer"], "masked": ["apt-daily.timer"], "disabled": None},
        "roles": [{"name": "sailloft.fleet.gpu_host", "vars": {"gpu_host_iommu": "passthrough"}}],
        "kernel_arguments": ["iommu=pt", "memmap=4G$0x100000000"],
        "published_keys": ["/usr/share/x/test.key", "/opt/tests"],
    },
    "site": {"parent": "gpu"},
}
IMAGES = {
    "gpu-node": {"layer": "site", "writable_mib": 2048, "kernel_arguments": ["quiet"]},
    "plain": {"layer": "base"},
}
CONTENTS = {"/etc/limits": "b" * 64, "sailloft.fleet.gpu_host": "c" * 64}


def test_an_image_lists_its_layers_from_the_lowest():
    images = read_images(IMAGES, LAYERS)
    assert list(images) == ["gpu-node", "plain"]
    image = images["gpu-node"]
    assert [layer.name for layer in image.layers] == ["base", "gpu", "site"]
    assert image.kernel_arguments == ("panic=30", "console=ttyS0", "iommu=pt", "memmap=4G$0x100000000", "quiet")
    assert image.writable_mib == 2048
    assert images["plain"].writable_mib == 1024
    base, gpu, site = image.layers
    assert images["plain"].layers == (base,)
    assert (site.distribution, site.suite, site.architecture) == ("debian", "bookworm", "amd64")
    # A layer may install from its own archives and those of its parent.
    assert [archive.url for archive in base.archives] == ["http://deb.debian.org/debian"]
    assert site.archives == gpu.archives == (*base.archives, gpu.archives[1])
    assert base.packages == ("linux-image-cloud-amd64", "systemd-sysv")
    assert site.packages == ()
    assert [(file.path, file.mode, file.owner, file.group) for file in gpu.files] == [
        ("/etc/limits", "0600", "root", "4"),
        ("/etc/motd", "0644", "root", "root"),
    ]
    assert gpu.sources() == {"/etc/limits": "/srv/limits"}
    assert gpu.services.enabled == ("a.timer", "ssh.service")
    assert gpu.users[0].groups == ("adm", "sudo")
    assert gpu.published_keys == ("/opt/tests", "/usr/share/x/test.key")


def test_kernel_arguments_may_take_1536_bytes():
    """The longest command line of x86 and arm64 has 2048 bytes; the rest is for the arguments of the first stage."""
    layers = {"base": {key: value for key, value in LAYERS["base"].items() if key != "kernel_arguments"}}
    image = {"node": {"layer": "base", "kernel_arguments": ["panic=1", "a=" + 1526 * "x"]}}
    # The image's own panic= replaces the default.
    assert read_images(image, layers)["node"].kernel_arguments == tuple(image["node"]["kernel_arguments"])
    image["node"]["kernel_arguments"] = ["panic=1", "a=" + 1527 * "x"]
    with pytest.raises(ImageError, match="its kernel arguments take 1537 bytes; remove some, the maximum is 1536 byt"):
        read_images(image, layers)


def test_layers_of_rpm_distributions_are_read_or_refused():
    rpm = {
        "distribution": "rocky",
        "suite": "9",
        "architecture": "x86_64",
        "archives": [{"url": "file:///srv/repo", "release_sha256": {"repomd": "d" * 64}}],
        "packages": ["@core", "kernel-core", "bash-5.1.8-9.el9", "python3*"],
    }
    layer = read_images({"node": {"layer": "base"}}, {"base": rpm})["node"].layers[0]
    assert layer.distribution == "rocky"
    for change, words in (
        ({"architecture": "amd64"}, "valid values: x86_64, aarch64"),
        ({"archives": [{"url": "file:///srv/repo"}]}, "nothing verifies its packages"),
        ({"archives": [{"url": "file:///srv/repo", "keyring": "/k", "suites": ["9"]}]}, "has no suites"),
        ({"archives": [{"url": "file:///srv/repo", "release_sha256": {"9": "d" * 64}}]}, "valid keys: repomd"),
    ):
        with pytest.raises(ImageError, match=words):
            read_images({}, {"base": {**rpm, **change}})


def at(path, value):
    """Return a function that changes one value of the layers, such as "gpu.files.0.mode"."""

    def change(images, layers):
        *way, last = path.split(".")
        place = layers
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        place[int(last) if isinstance(place, list) else last] = value

    return change


def image(setting, value):
    return lambda images, layers: images["plain"].update({setting: value})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            at("base.distribution", "slackware"),
            f"layer base: distribution 'slackware' is unknown; valid values: {', '.join(sorted(DISTRIBUTIONS))}",
        ),
        (at("base.distribution", ["debian"]), "layer base: distribution ['debian'] is not text"),
        (at("base.suite", 12), "layer base: suite 12 is not text; give text, in quotes"),
        (at("base.suite", "../x"), "suite '../x' is not a valid name"),
        (
            at("base.architecture", "x86_64"),
            "layer base: architecture 'x86_64' is unknown to debian; valid values: amd64",
        ),
        (at("base.archives", []), "layer base: it has no parent and no archives"),
        (at("base.packages", None), "layer base: it has no parent and no packages"),
        (at("gpu.parent", "bases"), "layer gpu: its parent 'bases' is not defined; define it in node_image_layers"),
        (at("gpu.parent", ["base"]), "layer gpu: its parent ['base'] is not defined"),
        (at("gpu.parent", None), "layer gpu: it has no parent and no distribution"),
        (at("base.parent", "site"), "is on top of itself: base -> site -> gpu -> base"),
        (at("base.parent", "base"), "layer base: is on top of itself: base -> base"),
        (at("gpu.suite", "bookworm"), "layer gpu: it sets suite, which a layer has from its parent base"),
        (at("gpu.colour", "red"), "layer gpu: unknown setting 'colour'; valid settings: architecture, archives"),
        (at("gpu", ["base"]), "layer gpu: not a dictionary"),
        (at("Base", {}), "layer 'Base': not a valid name"),
        (at("base.archives.0.url", "ftp://x"), "layer base: archives[0]: url 'ftp://x' is not an http"),
        (at("base.archives.0.url", "http://me:secret@x/"), "without user and password"),
        (at("base.archives.0.suites", []), "archives[0]: it has no suites"),
        (at("base.archives.0.components", []), "archives[0]: it has no components"),
        (at("gpu.archives.0.components", ["main"]), "suite './' is a flat archive"),
        (at("base.archives.0.keyring", "key.gpg"), "keyring 'key.gpg' is not an absolute path"),
        (at("base.archives.0.keyring", "/a] http://b/"), "is not an absolute path without spaces and brackets"),
        (at("base.archives.0.keyring", "/a\n[evil]"), "is not an absolute path without spaces and brackets"),
        # apt-get(8) would remove a package whose name ends with a hyphen.
        (at("gpu.packages", ["nano-"]), "packages: 'nano-' is not a valid name"),
        (at("gpu.packages", ["nano=7.2-"]), "packages: 'nano=7.2-' is not a valid name"),
        (at("base.archives.0.release_sha256", {"sid": "a" * 64}), "release_sha256 has the unknown key 'sid'"),
        (at("base.archives.0.release_sha256", {"bookworm": "sha256:1"}), "release_sha256 of bookworm is 'sha256:1'"),
        (at("gpu.packages", "bash"), "layer gpu: packages is not a list"),
        (at("gpu.published_keys", "/etc/a.key"), "layer gpu: published_keys is not a list"),
        (at("gpu.published_keys", ["a.key"]), "published_keys: 'a.key' is not a valid name"),
        (at("gpu.published_keys", ["/"]), "published_keys: '/' is not a valid name"),
        (at("gpu.published_keys", ["/etc/../root"]), "published_keys: '/etc/../root' is not a valid name"),
        (at("gpu.packages", ["bash zsh"]), "layer gpu: packages: 'bash zsh' is not a valid name"),
        (at("gpu.packages", ["--allow-unauthenticated"]), "'--allow-unauthenticated' is not a valid name"),
        (at("gpu.packages", ["bash,zsh"]), "'bash,zsh' is not a valid name"),
        (at("gpu.packages", ["bash", "bash"]), "packages: bash is listed twice"),
        (at("gpu.files.0.mode", "rw-r--r--"), "layer gpu: files[0]: mode 'rw-r--r--' is not a string of octal digits"),
        (at("gpu.files.0.mode", 0o644), 'mode 420 is not a string of octal digits; quote it: "0644"'),
        (at("gpu.files.0.mode", "0888"), "mode '0888' is not"),
        (at("gpu.files.0.path", "etc/motd"), "path 'etc/motd' is not an absolute path"),
        (at("gpu.files.0.path", "/etc/../motd"), "is not an absolute path"),
        (at("gpu.files.0.path", "/run/motd"), "/run/motd would be hidden"),
        (at("gpu.files.0.path", "/var/run/motd"), "/var/run/motd would be hidden"),
        (at("gpu.files.0.path", "/etc/ssh/ssh_host_rsa_key"), "would be the same on every node"),
        *[
            (at("gpu.files.0.path", path), f"{path} would be removed from the image again")
            for path in ("/var/log/site/x", "/var/cache/x", "/root/.cache/deep/x", "/etc/munge/munge.key", "/vmlinuz")
        ],
        (at("gpu.files.0.path", "/etc/limits"), "files[1]: /etc/limits is given twice"),
        (
            at("gpu.files.0.path", "/etc/limits/motd"),
            "/etc/limits is both a file and a parent directory of /etc/limits/motd",
        ),
        (at("gpu.files.0.source", "/x"), "/etc/motd has both content and source"),
        (at("gpu.files.0.content", None), "/etc/motd has neither content nor source"),
        (at("gpu.files.0.content", {"a": 1}), "the content or source of /etc/motd is not text"),
        (at("gpu.files.0.content", "\ud800"), "the content of /etc/motd is not UTF-8"),
        (at("gpu.files.1.source", "limits"), "source 'limits' is not an absolute path"),
        (at("gpu.files.0.owner", "Bad User"), "owner 'Bad User' is not a valid name"),
        (at("gpu.users.0.name", "Admin"), "layer gpu: users[0]: user name 'Admin' is not valid"),
        (at("gpu.users.0.name", "-rf"), "user name '-rf' is not valid"),
        (at("gpu.users.0.name", "a" * 33), "is not valid"),
        (at("gpu.users.0.groups", ["su do"]), "groups: 'su do' is not a valid name"),
        (at("gpu.users.0.shell", "bash"), "shell 'bash' of user admin is not an absolute path"),
        (at("gpu.users.0.authorized_keys", KEY), "authorized_keys of user admin is not a list"),
        (
            at("gpu.users.0.authorized_keys", ["-----BEGIN OPENSSH PRIVATE KEY-----"]),
            "keys[0] of user admin",
        ),
        (at("gpu.users.0.authorized_keys", [f"{KEY}\n{KEY}"]), "is not a public key on one line"),
        (at("gpu.users", [{"name": "a"}, {"name": "a"}]), "user a is given twice"),
        (at("gpu.services.enabled", ["ssh me"]), "layer gpu: services: enabled: 'ssh me' is not a valid name"),
        (at("gpu.services.masked", ["ssh.service"]), "services: ssh.service is both enabled and masked"),
        (at("gpu.services.started", []), "services: unknown setting 'started'"),
        (at("gpu.roles.0.name", "../gpu_host"), "roles[0]: role '../gpu_host' is not a valid name"),
        (at("gpu.roles.0.vars", ["x"]), "vars is not a dictionary"),
        (at("gpu.roles.0.vars", {"x": {1, 2}}), "vars of role sailloft.fleet.gpu_host are not plain data"),
        (at("gpu.roles.0.vars", {"x": float("nan")}), "vars of role sailloft.fleet.gpu_host are not plain data"),
        (at("gpu.kernel_arguments", ["console=ttyS0 quiet"]), "kernel argument 'console=ttyS0 quiet' has white space"),
        (at("gpu.kernel_arguments", ["a\nb"]), "has white space"),
        (at("gpu.kernel_arguments", "quiet"), "kernel_arguments is not a list"),
        (at("gpu.kernel_arguments", ["x=${net0/mac}"]), "cannot be passed on by iPXE"),
        (at("gpu.kernel_arguments", ["&&"]), "cannot be passed on by iPXE"),
        (at("gpu.kernel_arguments", ['x="1"']), "cannot be passed on by iPXE"),
        (at("gpu.kernel_arguments", ["sailloft.image=1"]), "'sailloft.image=1' is set at boot"),
        (image("layer", "sites"), "image plain: its layer 'sites' is not defined; define it in node_image_layers"),
        (image("layer", None), "image plain: its layer None is not defined"),
        (image("writable_mib", 0), "image plain: writable_mib 0 is not a whole number of at least 16"),
        (image("writable_mib", True), "writable_mib True is not a whole number"),
        (image("writable_mib", "1024"), "writable_mib '1024' is not a whole number"),
        (image("kernel_arguments", ["a b"]), "image plain: kernel argument 'a b' has white space"),
        (
            image("kernel_arguments", ["a=" + 8 * "x"] * 141),
            "image plain: its kernel arguments take 1573 bytes; remove",
        ),
        (image("size", 1), "image plain: unknown setting 'size'"),
        (lambda images, layers: images.update({"../x": {"layer": "base"}}), "image '../x': not a valid name"),
    ],
)
def test_invalid_images_and_layers_are_refused(change, told):
    images, layers = copy.deepcopy(IMAGES), copy.deepcopy(LAYERS)
    change(images, layers)
    with pytest.raises(ImageError) as caught:
        read_images(images, layers)
    assert told in str(caught.value)
    assert caught.value.subject
    assert caught.value.cause
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("images", "layers", "what"),
    [(IMAGES, [LAYERS], "node_image_layers"), ([], LAYERS, "node_image_images"), ([], [], "node_image_layers")],
)
def test_images_and_layers_must_be_dictionaries(images, layers, what):
    with pytest.raises(ImageError, match=f"^{what}: not a dictionary; write each by its name"):
        read_images(images, layers)


def test_a_private_key_is_not_shown():
    layers = copy.deepcopy(LAYERS)
    layers["gpu"]["users"][0]["authorized_keys"] = ["-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0"]
    with pytest.raises(ImageError) as caught:
        read_images(IMAGES, layers)
    assert "c2VjcmV0" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    (name, *way)
    for name in LAYERS
    for way in [
        *[(setting,) for setting in LAYERS["base"] | LAYERS["gpu"]],
        *[(kind, 0) for kind in ("archives", "files", "users", "roles")],
        *[("files", 0, setting) for setting in ("path", "content", "source", "mode", "owner", "group")],
        *[("users", 0, setting) for setting in ("name", "groups", "shell", "authorized_keys")],
        *[("archives", 0, setting) for setting in ("url", "suites", "components", "keyring", "release_sha256")],
        *[("services", fate) for fate in ("enabled", "disabled", "masked")],
        *[("roles", 0, setting) for setting in ("name", "vars")],
    ]
]


@given(st.sampled_from(PLACES), JSON)
def test_any_input_is_read_or_refused(place, value):
    layers = copy.deepcopy(LAYERS)
    spot = layers
    for step in place[:-1]:
        if (isinstance(spot, dict) and step not in spot) or (isinstance(spot, list) and not spot):
            return
        spot = spot[step]
    spot[place[-1]] = value
    try:
        images = read_images(IMAGES, layers)
    except ImageError:
        return
    for layer in images["gpu-node"].layers:
        contents = dict.fromkeys([*layer.sources(), *(role.name for role in layer.roles)], "b" * 64)
        assert len(layer_key(layer, None, {}, contents)) == 64


def key(change=None, parent="p" * 64, releases=None, contents=None):
    contents = CONTENTS if contents is None else contents
    layers = copy.deepcopy(LAYERS)
    if change:
        change({}, layers)
    return layer_key(read_images(IMAGES, layers)["gpu-node"].layers[1], parent, releases or {}, contents)


@pytest.mark.parametrize(
    "change",
    [
        at("gpu.packages", ["bash=5.2-1", "pciutils"]),
        at("gpu.files", LAYERS["gpu"]["files"][::-1]),
        # The path of a source on the build host is not part of the image.
        at("gpu.files.1.source", "/home/other/limits"),
        at("gpu.files.1.mode", "0600"),
        at("gpu.services.enabled", ["a.timer", "ssh.service"]),
        at("gpu.services.disabled", []),
        # The parent's own settings are part of the parent's key.
        at("base.packages", ["bash"]),
        at("site.packages", ["bash"]),
    ],
)
def test_changes_without_effect_on_the_layer_do_not_change_its_key(change):
    assert key(change) == key()


@pytest.mark.parametrize(
    "other",
    [
        key(at("gpu.packages", ["pciutils"])),
        key(at("gpu.files.0.content", "hello")),
        key(at("gpu.files.0.mode", "0600")),
        key(at("gpu.files.0.owner", "admin")),
        key(at("gpu.users.0.shell", "/bin/sh")),
        key(at("gpu.users.0.authorized_keys", [])),
        key(at("gpu.services.masked", [])),
        key(at("gpu.roles.0.vars", {})),
        key(at("gpu.archives", [])),
        # The keyring's path is part of the image's sources.list.
        key(at("base.archives.0.keyring", "/other.gpg")),
        key(at("gpu.kernel_arguments", [])),
        key(at("base.suite", "stable")),
        key(parent="q" * 64),
        key(releases={"bookworm": "1" * 64}),
        key(contents={**CONTENTS, "/etc/limits": "e" * 64}),
        key(contents={**CONTENTS, "sailloft.fleet.gpu_host": "e" * 64}),
    ],
)
def test_changes_of_the_layer_change_its_key(other):
    assert other != key()


def test_content_and_source_of_a_file_give_the_same_key():
    digest = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"  # echo hello | sha256sum
    given_source = at("gpu.files.0", {"path": "/etc/motd", "source": "/srv/motd"})
    assert key(given_source, contents={**CONTENTS, "/etc/motd": digest}) == key()


@pytest.mark.parametrize("contents", [{}, {"/etc/limits": "b" * 64}, {**CONTENTS, "/etc/motd": "b" * 64}])
def test_missing_or_superfluous_digests_are_refused(contents):
    with pytest.raises(ImageError, match="layer gpu: digests of its files and roles are missing or superfluous"):
        key(contents=contents)


def test_inputs_are_plain_data():
    layer = read_images(IMAGES, LAYERS)["gpu-node"].layers[1]
    inputs = layer_inputs(layer, CONTENTS)
    assert json.loads(json.dumps(inputs)) == inputs
    assert inputs["files"][1]["sha256"] == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"


def test_inputs_contain_no_values_of_files_and_roles():
    layer = read_images(IMAGES, LAYERS)["gpu-node"].layers[1]
    told = json.dumps(layer_inputs(layer, CONTENTS))
    assert "gpu_host_iommu" not in told
    assert "passthrough" not in told
    assert "hello" not in told


@pytest.mark.parametrize("path", ["/var/cache/debconf/x", "/srv/etc/munge/munge.key", "/var/logs", "/boot/config"])
def test_file_paths_that_are_not_forbidden_are_accepted(path):
    assert key(at("gpu.files.0.path", path)) != key()
