# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage fetches files from servers that misbehave."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from first_stage import CONTENT, DIGEST, INIT, Behaviour, shell
from patience import scaled_s

pytestmark = pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")


def fetched(tmp_path: Path, servers: list[str], settings: str = "", more: str = "") -> str:
    """Fetch the file from these servers, in this order, check its content, and return the output."""
    script = f"""
        servers='{" ".join(servers)}'
        {settings}
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
        echo "good from $server"
    """
    output = shell(tmp_path, script, more)
    assert (tmp_path / "file").read_bytes() == CONTENT
    return output


def test_a_good_server_gets_only_one_request(tmp_path, serve):
    behaviour = Behaviour("good")
    url = serve(behaviour)
    assert fetched(tmp_path, [url]) == f"good from {url}\n"
    assert behaviour.asked == [("/blobs/x", 0)]


def test_an_interrupted_transfer_is_resumed_at_another_server(tmp_path, serve):
    first, second = Behaviour("cut"), Behaviour("good")
    urls = [serve(first), serve(second)]
    assert f"good from {urls[1]}" in fetched(tmp_path, urls)
    assert second.asked == [("/blobs/x", 300_000)]


def test_an_interrupted_transfer_is_resumed_at_the_same_server_after_a_pause(tmp_path, serve):
    behaviour = Behaviour("cut", "cut", "good")
    output = fetched(tmp_path, [serve(behaviour)])
    assert [offset for _path, offset in behaviour.asked] == [0, 300_000, 600_000]
    assert output.count("slept") == 2


def test_a_transfer_from_a_server_without_ranges_restarts_from_the_beginning(tmp_path, serve):
    behaviour = Behaviour("cut", "good", ranges=False)
    fetched(tmp_path, [serve(behaviour)])
    assert [offset for _path, offset in behaviour.asked] == [0, 300_000]


def test_a_stalled_transfer_is_resumed_at_another_server(tmp_path, serve):
    first, second = Behaviour("stalls"), Behaviour("good")
    urls = [serve(first), serve(second)]
    output = fetched(tmp_path, urls, "window_s=4 progress_s=1")
    assert "sailloft: 0 of 1 MiB, " in output
    assert "too slow, " in output
    assert " bytes in 4 s where 1048576 are asked; 100000 bytes are here" in output
    assert second.asked == [("/blobs/x", 100_000)]


def test_the_limits_are_those_that_the_documentation_states(tmp_path):
    output = shell(tmp_path, "echo $window_s $least_bytes_s $patience_s")
    assert output == "20 262144 60\n"
    text = " ".join((INIT.parents[4] / "docs/background/images.md").read_text().split())
    assert "brings less than 256 KiB/s over 20 s" in text
    assert "the rest of the file in 60 s" in text


@pytest.mark.parametrize("turn", ["silent", "stalls", "drips", "drips single bytes"])
def test_a_too_slow_server_is_left_within_one_window_even_after_the_deadline(tmp_path, serve, turn):
    """A good server follows a slow one: the node neither waits nor reboots."""
    first, second = Behaviour(turn), Behaviour("good")
    urls = [serve(first), serve(second)]
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        servers='{" ".join(urls)}' window_s=3 deadline_s=0
        begun_at=$(whole_uptime_s)
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
        echo "took $(($(whole_uptime_s) - begun_at)) s"
    """
    output = shell(tmp_path, script)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert "rebooting" not in output
    assert output.count("too slow, ") == 1
    assert 3 <= int(re.search(r"took (\d+) s", output).group(1)) <= scaled_s(5)
    assert len(first.asked) == len(second.asked) == 1


@pytest.mark.parametrize("turn", ["silent", "drips"])
def test_the_node_reboots_after_one_round_if_all_servers_are_too_slow(tmp_path, serve, turn):
    urls = [serve(Behaviour(turn)), serve(Behaviour(turn))]
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        servers='{" ".join(urls)}' window_s=2 deadline_s=0
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
    """
    output = shell(tmp_path, script)
    assert output.count("too slow, ") == 2
    assert re.search(r"rebooting: no image after \d+ s\n$", output)


@pytest.mark.parametrize(("turn", "reboots"), [("steady and cut", False), ("steady wrong", True)])
def test_transfer_time_at_the_minimum_rate_counts_only_if_the_file_is_refused(tmp_path, serve, turn, reboots):
    """The time counts only if the received file was refused.

    The clock advances by a second with each 400,000 bytes of the file, so that a loaded machine has no effect.
    """
    urls = [serve(Behaviour(turn, "good"))]
    script = f"""
        restart() {{ echo "rebooting: $1"; exit; }}
        whole_uptime_s() {{
            now_s=$(($(stat -c %s {tmp_path}/file 2>/dev/null || echo 0) / 400000))
            [ "$now_s" -lt "$(cat {tmp_path}/clock)" ] || echo "$now_s" >{tmp_path}/clock
            cat {tmp_path}/clock
        }}
        echo 0 >{tmp_path}/clock
        servers='{urls[0]}' deadline_s=1
        fetch blobs/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
        echo good
    """
    output = shell(tmp_path, script)
    assert ("rebooting: no image after" in output) == reboots
    assert output.endswith("good\n") != reboots


def test_a_slow_server_is_left_only_if_another_server_may_be_faster(tmp_path, serve):
    first, second = Behaviour("steady"), Behaviour("good")
    urls = [serve(first), serve(second)]
    output = fetched(tmp_path, urls, "window_s=2 patience_s=1")
    assert f"good from {urls[1]}" in output
    assert "too slow, " in output
    assert "bytes in 2 s where 2097152 are asked" in output
    # A server that is the only one must keep only the minimum rate.
    assert "too slow" not in fetched(tmp_path, [serve(Behaviour("steady"))], "window_s=2 patience_s=1")


def test_each_round_halves_the_required_rate_down_to_the_minimum(tmp_path):
    several = "servers='http://a http://b'; for round in 0 1 2 3 9 40; do asked_bytes_s $round 600000000; done"
    assert shell(tmp_path, several).split() == ["10000000", "5000000", "2500000", "1250000", "262144", "262144"]
    assert shell(tmp_path, "servers='http://a'; asked_bytes_s 0 600000000") == "262144\n"
    assert shell(tmp_path, "servers='http://a http://b'; asked_bytes_s 0 60") == "262144\n"


def test_an_unreachable_server_and_one_without_the_file_are_skipped(tmp_path, serve):
    urls = ["http://127.0.0.1:9", serve(Behaviour("missing")), serve(Behaviour("good"))]
    output = fetched(tmp_path, urls)
    assert "Connection refused" in output
    assert "404" in output
    assert "slept" not in output


def test_the_last_good_server_is_tried_first(tmp_path, serve):
    urls = ["http://127.0.0.1:9", serve(Behaviour("good"))]
    again = f"fetch blobs/y {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}"
    output = shell(tmp_path, f"servers='{' '.join(urls)}'; {again}; {again}; echo $servers")
    assert output.count("Connection refused") == 1
    assert output.splitlines()[-1] == f"{urls[1]} {urls[0]}"


def test_wrong_bytes_are_refused_named_and_reported(tmp_path, serve):
    sink = Behaviour("missing")
    bad, good = serve(Behaviour("wrong")), serve(Behaviour("good"))
    output = fetched(tmp_path, [bad, good], more=f"sailloft.report={serve(sink)}/report")
    seen = hashlib.sha256(CONTENT[:-1] + b"x").hexdigest()
    assert f"REFUSED: node n1: blobs/x from {bad}: sha256 wanted {DIGEST}, seen {seen}" in output
    path = sink.asked[0][0]
    assert path.startswith(f"/report?event=refused&node=n1&image={DIGEST}&uptime_s=")
    assert f"&file=blobs/x&wanted={DIGEST}&seen={seen}&server={bad}&reason=sha256%20wanted%20" in path


def test_wrong_bytes_from_two_servers_name_both_and_are_discarded(tmp_path, serve):
    first, second = Behaviour("cut", "good"), Behaviour("wrong")
    urls = [serve(first), serve(second)]
    output = fetched(tmp_path, urls)
    assert f"REFUSED: node n1: blobs/x from {urls[0]} {urls[1]}: " in output
    # A wrong combination of bytes is discarded and not resumed.
    assert [offset for _path, offset in first.asked] == [0, 0]


def test_a_cache_is_asked_before_the_servers_and_stays_no_server(tmp_path, serve):
    cache, server = Behaviour("good"), Behaviour("good")
    urls = [serve(cache), serve(server)]
    output = fetched(tmp_path, urls[1:], f"caches='{urls[0]}'", "")
    assert output == f"good from {urls[0]}\n"
    assert (len(cache.asked), server.asked) == (1, [])


def test_only_blobs_are_fetched_from_a_cache(tmp_path, serve):
    cache, server = Behaviour("good"), Behaviour("good")
    urls = [serve(cache), serve(server)]
    script = f"fetch images/x {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}; echo good from $server"
    assert shell(tmp_path, f"caches={urls[0]} servers={urls[1]}; {script}") == f"good from {urls[1]}\n"
    assert cache.asked == []


@pytest.mark.parametrize("turn", ["wrong", "missing", "cut", "silent", "steady", "endless", "down"])
def test_a_cache_that_lies_or_fails_is_asked_once_in_a_boot(tmp_path, serve, turn):
    """The file and all later ones then come from the server, and only a lie is a warning of the boot."""
    cache, server = Behaviour(turn), Behaviour("good")
    urls = ["http://127.0.0.1:9" if turn == "down" else serve(cache), serve(server)]
    script = f"""
        caches='{urls[0]}' servers='{urls[1]}' window_s=2 patience_s=1
        for number in 1 2; do
            fetch blobs/$number {tmp_path}/file {len(CONTENT)} check_digest {DIGEST}
            echo "good from $server"
        done
        echo "servers $servers, caches $caches."
        echo "WARNED $warnings"
    """
    output = shell(tmp_path, script)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert output.count(f"good from {urls[1]}\n") == 2
    assert f"servers {urls[1]}, caches .\n" in output
    assert urls[0] in output
    assert len(cache.asked) == (turn != "down")
    lied = f"WARNED passed over: {urls[0]} sent a wrong blobs/1: sha256 wanted {DIGEST}, seen "
    assert (lied in output) == (turn == "wrong")
    # What an interrupted transfer brought is not fetched again.
    assert server.asked[0] == ("/blobs/1", 300_000) or turn != "cut"


def test_another_cache_follows_one_that_lies(tmp_path, serve):
    liar, cache, server = Behaviour("wrong"), Behaviour("good"), Behaviour("good")
    urls = [serve(liar), serve(cache), serve(server)]
    output = fetched(tmp_path, urls[2:], f"caches='{urls[0]} {urls[1]}'")
    assert output.endswith(f"good from {urls[1]}\n")
    assert server.asked == []


def test_a_transfer_that_exceeds_the_size_of_its_file_is_refused(tmp_path, serve):
    urls = [serve(Behaviour("endless")), serve(Behaviour("good"))]
    output = fetched(tmp_path, urls)
    assert f"good from {urls[1]}" in output
    assert f"{urls[0]}: more than the {len(CONTENT)} bytes that it may have" in output


# The limit is larger than the file, as for a manifest, whose size is not known in advance.
LONGER_LIMIT = f"fetch blobs/x {{folder}}/file {2 * len(CONTENT)} check_digest {DIGEST}; echo good from $server"


def test_a_complete_file_is_accepted_though_its_transfer_was_interrupted(tmp_path, serve):
    first, second = Behaviour("lingers"), Behaviour("good")
    urls = [serve(first), serve(second)]
    output = shell(tmp_path, f"servers='{' '.join(urls)}'; window_s=4; {LONGER_LIMIT.format(folder=tmp_path)}")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert f"too slow, 0 bytes in 4 s where 1048576 are asked; {len(CONTENT)} bytes are here" in output
    assert output.endswith(f"good from {urls[1]}\n")
    assert second.asked == [("/blobs/x", len(CONTENT))]
    assert "REFUSED" not in output


def test_a_file_that_is_too_long_is_fetched_again(tmp_path, serve):
    first, second = Behaviour("endless", "missing"), Behaviour("good")
    urls = [serve(first), serve(second)]
    output = shell(tmp_path, f"servers='{' '.join(urls)}'; window_s=4; {LONGER_LIMIT.format(folder=tmp_path)}")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert f"REFUSED: node n1: blobs/x from {urls[0]} {urls[1]}: sha256 wanted {DIGEST}" in output
    assert second.asked == [("/blobs/x", len(CONTENT) + len(b"more")), ("/blobs/x", 0)]
