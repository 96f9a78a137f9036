# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage's functions in BusyBox's own shell, on this machine, against servers that misbehave."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests

INIT = Path(__file__).parents[3] / "roles" / "node_image" / "files" / "first-stage" / "init"
CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()
# Bytes at a time, seconds between, bytes in all. "steady" is 400 KiB/s, above the least rate.
DRIPS = {
    "drips": (1000, 1, len(CONTENT)),
    "drips single bytes": (1, 3, len(CONTENT)),
    "steady": (41000, 0.1, len(CONTENT)),
    "steady and cut": (41000, 0.1, 820_000),
    "steady wrong": (41000, 0.1, len(CONTENT)),
}

pytestmark = pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")


class Behaviour:
    """A server's answers to each request in turn, the last for ever, and the requests that it got."""

    def __init__(self, *turns: str, ranges: bool = True) -> None:
        self.turns = list(turns)
        self.ranges = ranges
        self.asked: list[tuple[str, int]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, behaviour: Behaviour, *rest) -> None:
        self.behaviour = behaviour
        super().__init__(*rest)

    def do_GET(self) -> None:
        behaviour = self.behaviour
        offset = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        behaviour.asked.append((self.path, offset))
        turn = behaviour.turns.pop(0) if len(behaviour.turns) > 1 else behaviour.turns[0]
        if turn == "silent":
            self.server.over.wait()
            return
        if turn == "missing":
            self.send_error(404)
            return
        content = CONTENT[:-1] + b"x" if turn in ("wrong", "steady wrong") else CONTENT
        offset = offset if behaviour.ranges else 0
        if offset >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if offset else 200)
        if offset:
            self.send_header("Content-Range", f"bytes {offset}-{len(content) - 1}/{len(content)}")
        if turn not in ("endless", "lingers"):
            self.send_header("Content-Length", str(len(content) - offset))
        self.end_headers()
        try:
            if turn == "cut":
                self.wfile.write(content[offset : offset + 300_000])
            elif turn == "stalls":
                self.wfile.write(content[offset : offset + 100_000])
                self.wfile.flush()
                self.server.over.wait()
            elif turn in DRIPS:
                self.drip(content[offset:], *DRIPS[turn])
            elif turn in ("endless", "lingers"):
                self.wfile.write(content + (b"more" if turn == "endless" else b""))
                self.wfile.flush()
                self.server.over.wait()
            else:
                self.wfile.write(content[offset:])
        except OSError:
            pass  # the client has gone

    def drip(self, content: bytes, step: int, pause_s: float, most: int) -> None:
        """``step`` bytes, and a pause, and so on, ``most`` bytes in all."""
        for at in range(0, min(len(content), most), step):
            self.wfile.write(content[at : min(at + step, most)])
            self.wfile.flush()
            if self.server.over.wait(pause_s):
                return

    def log_message(self, *_args) -> None:
        """Nothing on the tests' screen."""


@pytest.fixture
def serve():
    """A server with this behaviour: its URL."""
    started = []

    def start(behaviour: Behaviour) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, behaviour))
        server.daemon_threads = True
        server.over = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.over.set()
        server.shutdown()
        server.server_close()


def shell(tmp_path: Path, script: str, arguments: str = "", seconds: float = 30) -> str:
    """Return the output of the script, run with the first stage's functions and settings. It must end well."""
    whole = f"""
        . {INIT}
        folder={tmp_path}/run
        mkdir -p $folder
        arguments='sailloft.node=n1 sailloft.image={DIGEST} sailloft.reboot_after_s=9999999999 {arguments}'
        settings
        # Waiting is tested by itself.
        sleep() {{ [ "$1" = 0.1 ] && busybox sleep 0.1 || echo "slept $1"; }}
        {script}
    """
    found = subprocess.run(
        ["busybox", "sh", "-c", whole, "test"], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stderr == ""
    return found.stdout


def fetched(tmp_path: Path, servers: list[str], settings: str = "", more: str = "") -> str:
    """Fetch the file from these servers, in this order; it is good in the end."""
    script = f"""
        servers='{" ".join(servers)}'
        {settings}
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
        echo "good from $server"
    """
    said = shell(tmp_path, script, more)
    assert (tmp_path / "file").read_bytes() == CONTENT
    return said


def test_a_good_server_is_asked_once(tmp_path, serve):
    behaviour = Behaviour("good")
    url = serve(behaviour)
    assert fetched(tmp_path, [url]) == f"good from {url}\n"
    assert behaviour.asked == [("/blobs/x", 0)]


def test_a_cut_transfer_goes_on_at_another_server(tmp_path, serve):
    first, second = Behaviour("cut"), Behaviour("good")
    urls = [serve(first), serve(second)]
    assert f"good from {urls[1]}" in fetched(tmp_path, urls)
    assert second.asked == [("/blobs/x", 300_000)]


def test_a_cut_transfer_goes_on_at_the_same_server_after_a_pause(tmp_path, serve):
    behaviour = Behaviour("cut", "cut", "good")
    said = fetched(tmp_path, [serve(behaviour)])
    assert [offset for _path, offset in behaviour.asked] == [0, 300_000, 600_000]
    assert said.count("slept") == 2


def test_a_server_without_ranges_begins_anew(tmp_path, serve):
    behaviour = Behaviour("cut", "good", ranges=False)
    fetched(tmp_path, [serve(behaviour)])
    assert [offset for _path, offset in behaviour.asked] == [0, 300_000]


def test_a_stalled_transfer_is_left_for_another_server(tmp_path, serve):
    first, second = Behaviour("stalls"), Behaviour("good")
    urls = [serve(first), serve(second)]
    said = fetched(tmp_path, urls, "window_s=4 progress_s=1")
    assert "sailloft: 0 of 1 MiB, " in said
    assert "too slow, " in said
    assert " bytes in 4 s where 1048576 are asked; 100000 bytes are here" in said
    assert second.asked == [("/blobs/x", 100_000)]


def test_the_times_are_those_that_the_docs_state(tmp_path):
    said = shell(tmp_path, "echo $window_s $least_bytes_s $patience_s")
    assert said == "20 262144 60\n"
    text = " ".join((INIT.parents[4] / "docs/image-boot.md").read_text().split())
    assert "brings less than 256 KiB/s over 20 s" in text
    assert "the rest of the file in 60 s" in text


@pytest.mark.parametrize("turn", ["silent", "stalls", "drips", "drips single bytes"])
def test_a_server_below_the_least_rate_is_left_within_a_window_even_past_the_deadline(tmp_path, serve, turn):
    """A slow server first, a good one next: the node neither waits nor reboots."""
    first, second = Behaviour(turn), Behaviour("good")
    urls = [serve(first), serve(second)]
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        servers='{" ".join(urls)}' window_s=3 deadline_s=0
        begun_at=$(whole_uptime_s)
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
        echo "took $(($(whole_uptime_s) - begun_at)) s"
    """
    said = shell(tmp_path, script)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert "rebooting" not in said
    assert said.count("too slow, ") == 1
    assert int(re.search(r"took (\d+) s", said).group(1)) in (3, 4, 5)
    assert len(first.asked) == len(second.asked) == 1


@pytest.mark.parametrize("turn", ["silent", "drips"])
def test_with_slow_servers_only_the_node_reboots_after_one_round(tmp_path, serve, turn):
    urls = [serve(Behaviour(turn)), serve(Behaviour(turn))]
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        servers='{" ".join(urls)}' window_s=2 deadline_s=0
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
    """
    said = shell(tmp_path, script)
    assert said.count("too slow, ") == 2
    assert re.search(r"rebooting: no image after [01] s\n$", said)


@pytest.mark.parametrize(("turn", "reboots"), [("steady and cut", False), ("steady wrong", True)])
def test_the_time_of_a_transfer_that_keeps_the_least_rate_does_not_count(tmp_path, serve, turn, reboots):
    """Unless what it brought was refused."""
    urls = [serve(Behaviour(turn, "good"))]
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        servers='{urls[0]}' deadline_s=$(($(whole_uptime_s) + 1))
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
        echo good
    """
    said = shell(tmp_path, script)
    assert ("rebooting: no image after" in said) == reboots
    assert said.endswith("good\n") != reboots


def test_a_server_that_would_take_long_is_left_for_another_that_may_be_faster(tmp_path, serve):
    first, second = Behaviour("steady"), Behaviour("good")
    urls = [serve(first), serve(second)]
    said = fetched(tmp_path, urls, "window_s=2 patience_s=1")
    assert f"good from {urls[1]}" in said
    assert "too slow, " in said
    assert "bytes in 2 s where 2097152 are asked" in said
    # Where it is the only one, it is held to the least rate.
    assert "too slow" not in fetched(tmp_path, [serve(Behaviour("steady"))], "window_s=2 patience_s=1")


def test_each_round_asks_half_as_much_down_to_the_least_rate(tmp_path):
    several = "servers='http://a http://b'; for round in 0 1 2 3 9 40; do asked_bytes_s $round 600000000; done"
    assert shell(tmp_path, several).split() == ["10000000", "5000000", "2500000", "1250000", "262144", "262144"]
    assert shell(tmp_path, "servers='http://a'; asked_bytes_s 0 600000000") == "262144\n"
    assert shell(tmp_path, "servers='http://a http://b'; asked_bytes_s 0 60") == "262144\n"


def test_a_dead_server_and_one_that_has_no_such_file_are_passed_over(tmp_path, serve):
    urls = ["http://127.0.0.1:9", serve(Behaviour("missing")), serve(Behaviour("good"))]
    said = fetched(tmp_path, urls)
    assert "Connection refused" in said
    assert "404" in said
    assert "slept" not in said


def test_the_server_that_was_good_is_asked_first_from_then_on(tmp_path, serve):
    urls = ["http://127.0.0.1:9", serve(Behaviour("good"))]
    again = f"fetch blobs/y {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}"
    said = shell(tmp_path, f"servers='{' '.join(urls)}'; {again}; {again}; echo $servers")
    assert said.count("Connection refused") == 1
    assert said.splitlines()[-1] == f"{urls[1]} {urls[0]}"


def test_wrong_bytes_are_refused_named_and_reported(tmp_path, serve):
    sink = Behaviour("missing")
    bad, good = serve(Behaviour("wrong")), serve(Behaviour("good"))
    said = fetched(tmp_path, [bad, good], more=f"sailloft.report={serve(sink)}/report")
    seen = hashlib.sha256(CONTENT[:-1] + b"x").hexdigest()
    assert f"REFUSED: node n1: blobs/x from {bad}: sha256 wanted {DIGEST}, seen {seen}" in said
    path = sink.asked[0][0]
    assert path.startswith(f"/report?event=refused&node=n1&image={DIGEST}&uptime_s=")
    assert f"&file=blobs/x&wanted={DIGEST}&seen={seen}&server={bad}&reason=sha256%20wanted%20" in path


def test_bytes_of_two_servers_that_do_not_fit_name_both(tmp_path, serve):
    first, second = Behaviour("cut", "good"), Behaviour("wrong")
    urls = [serve(first), serve(second)]
    said = fetched(tmp_path, urls)
    assert f"REFUSED: node n1: blobs/x from {urls[0]} {urls[1]}: " in said
    # What was put together wrongly is not built upon.
    assert [offset for _path, offset in first.asked] == [0, 0]


def test_more_bytes_than_a_file_may_have_are_not_taken(tmp_path, serve):
    urls = [serve(Behaviour("endless")), serve(Behaviour("good"))]
    said = fetched(tmp_path, urls)
    assert f"good from {urls[1]}" in said
    assert f"{urls[0]}: more than the {len(CONTENT)} bytes that it may have" in said


# As of a manifest: its size is not known before it is here.
LONGER_LIMIT = f"fetch blobs/x {{folder}}/file {2 * len(CONTENT)} check_digest {DIGEST}; echo good from $server"


def test_a_file_that_is_whole_though_its_transfer_broke_is_taken(tmp_path, serve):
    first, second = Behaviour("lingers"), Behaviour("good")
    urls = [serve(first), serve(second)]
    said = shell(tmp_path, f"servers='{' '.join(urls)}'; window_s=4; {LONGER_LIMIT.format(folder=tmp_path)}")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert f"too slow, 0 bytes in 4 s where 1048576 are asked; {len(CONTENT)} bytes are here" in said
    assert said.endswith(f"good from {urls[1]}\n")
    assert second.asked == [("/blobs/x", len(CONTENT))]
    assert "REFUSED" not in said


def test_a_file_that_is_longer_than_it_should_be_is_begun_anew(tmp_path, serve):
    first, second = Behaviour("endless", "missing"), Behaviour("good")
    urls = [serve(first), serve(second)]
    said = shell(tmp_path, f"servers='{' '.join(urls)}'; window_s=4; {LONGER_LIMIT.format(folder=tmp_path)}")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert f"REFUSED: node n1: blobs/x from {urls[0]} {urls[1]}: sha256 wanted {DIGEST}" in said
    assert second.asked == [("/blobs/x", len(CONTENT) + len(b"more")), ("/blobs/x", 0)]


def test_pauses_double_with_a_jitter_of_their_half(tmp_path):
    said = shell(tmp_path, "for round in 0 1 2 3 6 40; do pause_ms $round; pause_ms $round; done").split()
    times = list(map(int, said))
    for at, mean_ms in enumerate((1000, 2000, 4000, 8000, 64000, 64000)):
        pair = times[2 * at : 2 * at + 2]
        assert all(mean_ms / 2 <= time_ms < mean_ms * 1.5 for time_ms in pair)
        assert pair[0] != pair[1]


def test_after_the_stated_time_it_reboots(tmp_path):
    script = "restart() { echo rebooting: $1; exit; }; deadline_s=0; pause 0"
    assert re.fullmatch(r"rebooting: no image after [01] s\n", shell(tmp_path, script))


def test_servers_are_shuffled(tmp_path):
    said = shell(tmp_path, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $(shuffled http://a/,http://b,http://c); done")
    orders = set(said.splitlines())
    assert len(orders) > 1
    assert all(sorted(order.split()) == ["http://a", "http://b", "http://c"] for order in orders)


def test_arguments_are_those_given_first(tmp_path):
    said = shell(tmp_path, 'echo "$mac $node"; argument absent', "BOOTIF=01-AA-BB-cc-00-11-22 sailloft.node=other *")
    assert said == "aa:bb:cc:00:11:22 n1\n"


def test_a_signature_holds_or_does_not(tmp_path):
    for name in ("key", "other"):
        pair = ["-p", tmp_path / f"{name}.pub", "-s", tmp_path / f"{name}.sec"]
        subprocess.run(["minisign", "-G", "-W", *pair], check=True, stdout=subprocess.DEVNULL)
    signed = tmp_path / "manifest"
    signed.write_text("{}\n")
    for name in ("key", "other"):
        command = ["minisign", "-S", "-W", "-s", tmp_path / f"{name}.sec", "-m", signed, "-x", tmp_path / f"{name}.sig"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    script = f"""
        public_key={tmp_path}/key.pub
        for each in key other; do
            check_signature {signed} {tmp_path}/$each.sig && echo holds || echo $reason
        done
    """
    holds, refused = shell(tmp_path, script).splitlines()
    assert holds == "holds"
    assert re.match("the signature does not hold: .+", refused)


@pytest.mark.parametrize(("turn", "reason"), [("missing", "404"), ("good", "the signature does not hold: ")])
def test_a_manifest_without_its_signature_is_never_used(tmp_path, serve, turn, reason):
    """There is none on any server, or what is there is none: nothing is read of the manifest, and the node reboots."""
    subprocess.run(
        ["minisign", "-G", "-W", "-p", tmp_path / "key.pub", "-s", tmp_path / "key.sec"],
        check=True,
        capture_output=True,
    )
    behaviour = Behaviour("good", turn)
    url = serve(behaviour)
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        manifest_value() {{ echo "the manifest is read"; }}
        servers='{url}' deadline_s=0 public_key={tmp_path}/key.pub signature_limit_bytes={len(CONTENT)}
        fetch_manifest
        echo "went on"
    """
    said = shell(tmp_path, script)
    assert f"images/{DIGEST}/manifest.json.minisig from {url}: " in said
    assert reason in said
    # 1 s where the clock's second changes meanwhile.
    assert re.search(r"\nrebooting: no image after [01] s\n$", said)
    assert "went on" not in said
    assert "the manifest is read" not in said
    assert [path for path, _offset in behaviour.asked] == [
        f"/images/{DIGEST}/manifest.json",
        f"/images/{DIGEST}/manifest.json.minisig",
    ]


def a_manifest() -> manifests.Manifest:
    inputs = {
        "sha256": "f" * 64,
        "name": "x",
        "verity": {"data_bytes": 1, "salt": "00"},
        "list": [{"name": "x"}],
        "text": "]",
    }
    layers = tuple(
        manifests.ManifestLayer(
            name, "0" * 64, digit * 64, 8192, "9" * 64, manifests.Verity(4096, "7" * 64, salt), inputs
        )
        for name, digit, salt in (("base", "1", "aabb"), ("top", "2", ""))
    )
    return manifests.Manifest(
        name="gpu-node",
        distribution="debian",
        suite="bookworm",
        architecture="amd64",
        kernel=manifests.Kernel("6.1.0-31", "3" * 64, 1),
        first_stage=manifests.FirstStage("4" * 64, 1),
        kernel_arguments=('name="x"', "a"),
        writable_mib=512,
        layers=layers,
        packages=(manifests.Package("version", "1", "amd64", "base"),),
        sbom_sha256="5" * 64,
    )


def test_the_manifest_is_read_as_it_is_written(tmp_path):
    file = tmp_path / "manifest.json"
    file.write_bytes(manifests.dump(a_manifest()))
    script = f"""
        manifest_layers {file}
        for each in format name writable_mib; do manifest_value {file} $each ''; done
        manifest_value {file} version kernel
    """
    assert shell(tmp_path, script).splitlines() == [
        f"base {'1' * 64} 8192 4096 {'7' * 64} aabb",
        f"top {'2' * 64} 8192 4096 {'7' * 64} -",
        "sailloft-image/1",
        "gpu-node",
        "512",
        "6.1.0-31",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("good", ""),
        ("ends with an error", ""),
        ("no loader", "/sbin/init of the image cannot be started: "),
        ("no interpreter", "/sbin/init of the image cannot be started: "),
        ("not executable", "/sbin/init of the image cannot be started: "),
        ("link to nothing", "/sbin/init of the image cannot be started: "),
        ("folder", "/sbin/init of the image cannot be started: "),
        ("none", "the image has no /sbin/init; put systemd-sysv into a layer"),
    ],
)
def test_an_init_that_cannot_be_started_is_a_failure_before_there_is_no_way_back(tmp_path, kind, said):
    (tmp_path / "root/sbin").mkdir(parents=True)
    init = tmp_path / "root/sbin/init"
    if kind in ("good", "ends with an error"):
        shutil.copy(shutil.which("busybox"), init.with_name("busybox"))
        # What busybox calls itself decides what it is.
        script = f"#!/sbin/busybox sh\nexit {'0' if kind == 'good' else '1'}\n"
        init.write_text(script)
    elif kind == "no loader":
        shutil.copy(shutil.which("true"), init)
    elif kind == "link to nothing":
        init.symlink_to("/lib/systemd/systemd")
    elif kind == "folder":
        init.mkdir()
    elif kind != "none":
        init.write_text("#!/bin/absent\n")
    if kind not in ("none", "link to nothing"):
        init.chmod(0o644 if kind == "not executable" else 0o755)
    script = f'fail() {{ echo "FAILED: $1"; exit; }}; new_root={tmp_path}/root; require_init; echo started'
    told = shell(tmp_path, script)
    assert told.startswith(f"FAILED: {said}") if said else told == "started\n"


def test_the_report_is_read_as_it_is_written(tmp_path):
    script = """
        begin one; begin two; begin ''
        image_name=i writable_mib=2 layer_server=http://a
        layers_json='{"name": "base", "sha256": "%s", "verity": false}'
        warn 'said "so"' >$folder/out; warn 'a \\ b' >$folder/out
        write_report
    """.replace("%s", DIGEST)
    said = shell(tmp_path, script, 'x="y\\z"')
    report = boot_report.load(said, "n1")
    assert report.arguments.endswith('x="y\\z"')
    assert report.warnings == ('said "so"', "a \\ b")
    assert [phase.name for phase in report.phases] == ["one", "two"]
    assert (report.writable_bytes, report.layers[0].verity) == (2 << 20, False)
    assert json.loads(said)["kernel"] == report.kernel
