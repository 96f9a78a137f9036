# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tools of the builder: their environment and failures, and paths that links do not lead out of an image."""

from __future__ import annotations

import subprocess

import pytest
from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import process, tools

ALWAYS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


@pytest.fixture
def ran(monkeypatch):
    """Replace ``process.run``: each command prints two lines. Returns the calls: (command, environment, fault)."""
    for name in tools.PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/opt/bin")
    calls = []

    def run(argv, env, show, fault):
        calls.append((argv, env, fault))
        for line in ("Get:1 bash", "done"):
            show(line)
        return subprocess.CompletedProcess(argv, 0, "Get:1 bash\ndone\n")

    monkeypatch.setattr(process, "run", run)
    return calls


def test_the_first_missing_tool_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda tool, path: None if tool.startswith("un") else f"/bin/{tool}")
    tools.require()
    tools.require("sh", "mksquashfs")
    assert refused(lambda: tools.require("sh", "unsquashfs", "unshare")) == Mentions(
        "unsquashfs", "squashfs-tools", "packages_install"
    )
    assert refused(lambda: tools.require("unknown")) == Mentions("tool unknown", "install unknown")


def test_tools_are_searched_in_the_directories_of_the_administrator_too(monkeypatch):
    monkeypatch.setenv("PATH", "/opt/bin")
    assert tools.search_path() == f"/opt/bin:{ALWAYS}"
    monkeypatch.delenv("PATH")
    assert tools.search_path() == f":{ALWAYS}"


def test_a_tool_gets_only_the_proxies_and_given_variables(ran, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "lab")
    monkeypatch.setenv("DEBFULLNAME", "the builder's user")
    shown = []
    run = tools.Run("layer base", shown.append, {"SOURCE_DATE_EPOCH": "17", "A": "1"})
    fault = object()
    assert run(["sh", "-c", "x"], {"A": "2"}, fault=fault) == "Get:1 bash\ndone\n"
    assert shown == []
    assert ran == [
        (
            ["sh", "-c", "x"],
            {
                "https_proxy": "http://proxy:3128",
                "NO_PROXY": "lab",
                "PATH": f"/opt/bin:{ALWAYS}",
                "LC_ALL": "C.UTF-8",
                "HOME": "/root",
                "SOURCE_DATE_EPOCH": "17",
                "A": "2",
            },
            fault,
        )
    ]


def test_a_tool_that_is_missing_is_not_run(ran):
    message = refused(lambda: tools.Run("layer base", print)(["no-such-tool"]))
    assert message.startswith("tool no-such-tool: not found on the build host")
    assert ran == []


def test_the_group_of_matching_lines_is_progress(ran, tmp_path):
    shown = []
    tools.Run("layer base", shown.append)(["sh", tmp_path], show=r"Get:\d+ (\w+)")
    assert shown == ["layer base: bash"]
    assert ran[0][0] == ["sh", str(tmp_path)]
    lines = []
    tools.Run("layer base", shown.append).process(["sh"], show=lines.append)
    assert lines == ["Get:1 bash", "done"]


def test_a_failed_tool_is_reported_with_its_last_six_lines():
    run = tools.Run("layer base", print)
    with pytest.raises(tools.ToolError) as caught:
        run(["sh", "-c", "seq 1 8; echo; exit 3", "a", "b"])
    assert caught.value.output == "1\n2\n3\n4\n5\n6\n7\n8\n\n"
    assert str(caught.value) == Mentions("layer base", "sh -c seq 1 8; echo; exit 3 a failed: 3 / 4 / 5 / 6 / 7 / 8")
    assert " failed: no output; " in refused(lambda: run(["false"]))
    assert run.process(["false"]).returncode == 1


def test_a_full_disk_is_reported_with_its_own_remedy():
    assert str(tools.ToolError(["dpkg", "-i"], "a\ntar: x: No space left on device\nb\n", subject="layer base")) == (
        "layer base: no space is left on the device (dpkg); free some space where node_image_cache_dir is"
    )


@pytest.fixture
def root(tmp_path):
    """An image with links between its directories; ``run`` links to the machine's root."""
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/libc.so").write_text("the image's")
    (root / "lib").symlink_to("usr/lib")
    (root / "lib64").symlink_to("/lib")
    (root / "up").symlink_to("../../../../lib")
    (root / "usr/here").symlink_to("./lib/")
    (root / "usr/lib/latest").symlink_to("libc.so")
    (root / "dangling").symlink_to("/nowhere/x")
    (root / "circle").symlink_to("circle")
    return root


@pytest.mark.parametrize(
    ("path", "place", "followed"),
    [
        ("/usr/lib/libc.so", "usr/lib/libc.so", "usr/lib/libc.so"),
        ("lib/libc.so", "usr/lib/libc.so", "usr/lib/libc.so"),
        ("/lib64/./libc.so", "usr/lib/libc.so", "usr/lib/libc.so"),
        ("up//libc.so", "usr/lib/libc.so", "usr/lib/libc.so"),
        ("usr/here/libc.so", "usr/lib/libc.so", "usr/lib/libc.so"),
        ("../../etc/passwd", "etc/passwd", "etc/passwd"),
        ("usr/lib/../new", "usr/new", "usr/new"),
        ("lib", "lib", "usr/lib"),
        ("lib/latest", "usr/lib/latest", "usr/lib/libc.so"),
        ("dangling", "dangling", "nowhere/x"),
        ("/", "", ""),
    ],
)
def test_links_are_followed_within_the_image(root, path, place, followed):
    assert tools.inside(root, path) == root / place
    assert tools.inside(root, path, follow=True) == root / followed


def test_a_loop_of_links_is_refused(root):
    assert refused(lambda: tools.inside(root, "circle", follow=True)) == Mentions("circle", "loop")
    assert tools.inside(root, "circle") == root / "circle"
    assert tools.file_inside(root, "circle") is None


def test_at_most_40_links_are_followed(root):
    (root / "link0").write_text("end")
    for at in range(1, 42):
        (root / f"link{at}").symlink_to(f"link{at - 1}")
    assert tools.inside(root, "link40", follow=True) == root / "link0"
    assert "form a loop" in refused(lambda: tools.inside(root, "link41", follow=True))


def test_only_files_of_the_image_are_found(root):
    assert tools.file_inside(root, "lib64/latest") == root / "usr/lib/libc.so"
    for path in ("lib", "dangling", "usr/none"):
        assert tools.file_inside(root, path) is None
