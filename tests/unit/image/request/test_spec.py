# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for images, refusals, and the key of a layer.

One file because all refusals are of one request.
"""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import layer_key
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
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
        "network": True,
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
    assert (base.packages, site.packages) == (("linux-image-cloud-amd64", "systemd-sysv"), ())
    assert [(file.path, file.mode, file.owner, file.group) for file in gpu.files] == [
        ("/etc/limits", "0600", "root", "4"),
        ("/etc/motd", "0644", "root", "root"),
    ]
    assert gpu.sources() == {"/etc/limits": "/srv/limits"}
    assert gpu.services.enabled == ("a.timer", "ssh.service")
    assert gpu.users[0].groups == ("adm", "sudo")
    assert gpu.published_keys == ("/opt/tests", "/usr/share/x/test.key")
    assert [layer.network for layer in images["gpu-node"].layers] == [False, True, False]


def test_kernel_arguments_may_take_1536_bytes():
    """The longest command line of x86 and arm64 has 2048 bytes; the rest is for the arguments of the first stage."""
    layers = {"base": {key: value for key, value in LAYERS["base"].items() if key != "kernel_arguments"}}
    image = {"node": {"layer": "base", "kernel_arguments": ["panic=1", "a=" + 1526 * "x"]}}
    # The image's own panic= replaces the default.
    assert read_images(image, layers)["node"].kernel_arguments == tuple(image["node"]["kernel_arguments"])
    image["node"]["kernel_arguments"] = ["panic=1", "a=" + 1527 * "x"]
    with pytest.raises(ImageError, match="1537 bytes"):
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
        ({"architecture": "amd64"}, "amd64"),
        ({"archives": [{"url": "file:///srv/repo"}]}, "keyring"),
        ({"archives": [{"url": "file:///srv/repo", "keyring": "/k", "suites": ["9"]}]}, "suites"),
        ({"archives": [{"url": "file:///srv/repo", "release_sha256": {"9": "d" * 64}}]}, "repomd"),
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
    ("change", "subject", "fact"),
    [
        (at("base.distribution", "slackware"), "layers.base", "'slackware'"),
        (at("base.distribution", ["debian"]), "layers.base", "distribution: ['debian']"),
        (at("base.suite", 12), "layers.base", "suite: 12"),
        (at("base.suite", "../x"), "layers.base", "suite: '../x'"),
        (at("base.architecture", "x86_64"), "layers.base", "architecture: 'x86_64'"),
        (at("base.archives", []), "layers.base", "no archives"),
        (at("base.packages", None), "layers.base", "no packages"),
        (at("gpu.parent", "bases"), "layers.gpu", "parent: 'bases'"),
        (at("gpu.parent", ["base"]), "layers.gpu", "parent: ['base']"),
        (at("gpu.parent", None), "layers.gpu", "no distribution"),
        (at("base.parent", "site"), "layers.gpu", "base -> site -> gpu -> base"),
        (at("base.parent", "base"), "layers.base", "base -> base"),
        (at("gpu.suite", "bookworm"), "layers.gpu", "suite"),
        (at("gpu.colour", "red"), "layers.gpu", "'colour'"),
        (at("gpu", ["base"]), "layers.gpu", "dictionary"),
        (at("Base", {}), "layer 'Base'", "name"),
        (at("base.archives.0.url", "ftp://x"), "layers.base.archives[0]", "url: 'ftp://x'"),
        (at("base.archives.0.url", "http://me:secret@x/"), "layers.base.archives[0]", "password"),
        (at("base.archives.0.suites", []), "layers.base.archives[0]", "suites"),
        (at("base.archives.0.components", []), "layers.base.archives[0]", "components"),
        (at("gpu.archives.0.components", ["main"]), "layers.gpu.archives[0]", "'./'"),
        *[
            (at("base.archives.0.keyring", path), "layers.base.archives[0]", f"keyring: {path!r}")
            for path in ("key.gpg", "/a] http://b/", "/a\n[evil]")
        ],
        (at("base.archives.0.release_sha256", {"sid": "a" * 64}), "layers.base.archives[0].release_sha256", "'sid'"),
        (
            at("base.archives.0.release_sha256", {"bookworm": "sha256:1"}),
            "layers.base.archives[0].release_sha256",
            "bookworm: 'sha256:1'",
        ),
        *[
            # apt-get(8) would remove a package whose name ends with a hyphen.
            (at("gpu.packages", [name]), "layers.gpu", f"packages: element 0: {name!r}")
            for name in ("nano-", "nano=7.2-", "bash zsh", "--allow-unauthenticated", "bash,zsh")
        ],
        (at("gpu.packages", "bash"), "layers.gpu", "packages: 'bash' is not a list"),
        (at("gpu.packages", ["bash", "bash"]), "layers.gpu", "packages: bash is listed twice"),
        (at("gpu.network", "open"), "layers.gpu", "network: 'open'"),
        (at("gpu.published_keys", "/etc/a.key"), "layers.gpu", "published_keys: '/etc/a.key' is not a list"),
        *[
            (at("gpu.published_keys", [path]), "layers.gpu", f"published_keys: element 0: {path!r}")
            for path in ("a.key", "/", "/etc/../root")
        ],
        *[
            (at("gpu.published_keys", [path]), "layers.gpu", f"published_keys: {path}")
            for path in ("/etc", "/root", "/usr/share", "/etc/ssl/private", "/var/lib")
        ],
        *[
            (at("gpu.files.0.mode", mode), "layers.gpu.files[0]", f"mode: {mode!r}")
            for mode in ("rw-r--r--", 0o644, "0888")
        ],
        *[
            (at("gpu.files.0.path", path), "layers.gpu.files[0]", path)
            for path in (
                *("etc/motd", "/etc/../motd", "/run/motd", "/var/run/motd", "/etc/ssh/ssh_host_rsa_key"),
                *("/var/log/site/x", "/var/cache/x", "/root/.cache/deep/x", "/etc/munge/munge.key", "/vmlinuz"),
            )
        ],
        (at("gpu.files.0.path", "/etc/limits"), "layers.gpu.files[1]", "/etc/limits is given twice"),
        (at("gpu.files.0.path", "/etc/limits/motd"), "layers.gpu", "/etc/limits/motd"),
        (at("gpu.files.0.source", "/x"), "layers.gpu.files[0]", "both content and source"),
        (at("gpu.files.0.content", None), "layers.gpu.files[0]", "neither content nor source"),
        (at("gpu.files.0.content", {"a": 1}), "layers.gpu.files[0]", "not text"),
        (at("gpu.files.0.content", "\ud800"), "layers.gpu.files[0]", "UTF-8"),
        (at("gpu.files.1.source", "limits"), "layers.gpu.files[1]", "'limits'"),
        (at("gpu.files.0.owner", "Bad User"), "layers.gpu.files[0]", "owner: 'Bad User'"),
        *[
            (at("gpu.users.0.name", name), "layers.gpu.users[0]", f"name: {name!r}")
            for name in ("Admin", "-rf", "a" * 33)
        ],
        (at("gpu.users.0.groups", ["su do"]), "layers.gpu.users[0]", "groups: element 0: 'su do'"),
        (at("gpu.users.0.shell", "bash"), "layers.gpu.users[0]", "shell: 'bash'"),
        (at("gpu.users.0.authorized_keys", KEY), "layers.gpu.users[0]", "not a list"),
        *[
            (at("gpu.users.0.authorized_keys", [key]), "layers.gpu.users[0]", "authorized_keys: element 0: ")
            for key in ("-----BEGIN OPENSSH PRIVATE KEY-----", f"{KEY}\n{KEY}")
        ],
        (at("gpu.users", [{"name": "a"}, {"name": "a"}]), "layers.gpu.users[1]", "twice"),
        *[
            (at("gpu.services.enabled", [unit]), "layers.gpu.services", f"enabled: element 0: {unit!r}")
            for unit in ("ssh me", "@a.service", ".service", "a" * 248)
        ],
        (at("gpu.services.masked", ["apt-daily.timers"]), "layers.gpu.services", "type timers"),
        (at("gpu.services.masked", ["ssh.service"]), "layers.gpu.services", "both enabled and masked"),
        (at("gpu.services.started", []), "layers.gpu.services", "'started'"),
        (at("gpu.roles.0.name", "../gpu_host"), "layers.gpu.roles[0]", "'../gpu_host'"),
        (at("gpu.roles.0.vars", ["x"]), "layers.gpu.roles[0]", "vars: "),
        (at("gpu.roles.0.vars", {"x": {1, 2}}), "layers.gpu.roles[0]", "plain data"),
        (at("gpu.roles.0.vars", {"x": float("nan")}), "layers.gpu.roles[0]", "plain data"),
        (at("gpu.kernel_arguments", "quiet"), "layers.gpu", "kernel_arguments: 'quiet' is not a list"),
        *[
            (at("gpu.kernel_arguments", [argument]), "layers.gpu", f"kernel_arguments: element 0: {argument!r}")
            for argument in (
                "console=ttyS0 quiet",
                "a\nb",
                "x=${net0/mac}",
                "&&",
                'x="1"',
                "sailloft.image=1",
                "rdinit=/bin/sh",
            )
        ],
        (image("layer", "sites"), "images.plain", "layer: 'sites'"),
        (image("layer", None), "images.plain", "layer: None"),
        *[
            (image("writable_mib", size), "images.plain", f"writable_mib: {size!r}")
            for size in (0, True, "1024", 10**15)
        ],
        (image("kernel_arguments", ["a b"]), "images.plain", "kernel_arguments: element 0: 'a b'"),
        (image("kernel_arguments", ["a=" + 8 * "x"] * 141), "images.plain", "1573 bytes"),
        (image("size", 1), "images.plain", "'size'"),
        (lambda images, layers: images.update({"../x": {"layer": "base"}}), "image '../x'", "name"),
    ],
)
def test_invalid_images_and_layers_are_refused(change, subject, fact):
    images, layers = copy.deepcopy(IMAGES), copy.deepcopy(LAYERS)
    change(images, layers)
    with pytest.raises(ImageError) as caught:
        read_images(images, layers)
    assert caught.value.subject.replace("node_image_", "") == subject
    assert fact in caught.value.cause
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("images", "layers", "what"),
    [(IMAGES, [LAYERS], "node_image_layers"), ([], LAYERS, "node_image_images"), ([], [], "node_image_layers")],
)
def test_images_and_layers_must_be_dictionaries(images, layers, what):
    with pytest.raises(ImageError, match=f"^{what}: "):
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
    with pytest.raises(ImageError, match="layer gpu: "):
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
