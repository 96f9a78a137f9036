# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gpu_acceptance_run with tools that are scripts."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.modules import gpu_acceptance_run

GPU = "0000:1b:00.0"
BY_GPU = [f"--use_cuda_bus_id={GPU}"]


@pytest.fixture
def tools(tool, tmp_path):
    """The directory of the tools, which print their arguments; the device mlx5_0 has a port of 400 Gbit/s."""
    tool("nvbandwidth", 'echo "$*"')
    tool("all_reduce_perf", 'echo "$*"')
    return str(tmp_path / "bin")


@pytest.fixture
def rdma(tool, tmp_path, monkeypatch):
    """Return a function that installs ib_write_bw with options in its help, beside a port of 400 Gbit/s."""
    (tmp_path / "rdma/mlx5_0/ports/1").mkdir(parents=True)
    (tmp_path / "rdma/mlx5_0/ports/1/rate").write_text("400 Gb/sec (4X NDR)\n")
    monkeypatch.setattr(gpu_acceptance_run, "RDMA", str(tmp_path / "rdma"))

    def install(*options):
        tool("ib_write_bw", f'[ "$1" = --help ] && echo "{" ".join(options)}" || echo "$*"')
        return {"tool": "ib_write_bw", "paths": [str(tmp_path / "bin")], "device": "mlx5_0"}

    return install


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("tool", ["nvbandwidth", "all_reduce_perf"])
def test_a_missing_tool_is_not_measured(call, tool, check_mode):
    assert call(gpu_acceptance_run, {"tool": tool, "paths": ["/nowhere"]}, check_mode) == {
        "changed": False,
        "tool": tool,
        "status": "not measured",
        "reason": f"{tool} is not installed",
        "argv": [],
        "output": "",
        "seconds": 0,
    }


def test_a_tool_runs_behind_its_launcher(call, tools):
    given = {"tool": "all_reduce_perf", "paths": [tools], "launcher": ["env", "A=1"], "arguments": ["-b", "1G"]}
    result = call(gpu_acceptance_run, given)
    assert result.pop("seconds") < 10
    assert result == {
        "changed": False,
        "tool": "all_reduce_perf",
        "status": "measured",
        "reason": "",
        "argv": ["env", "A=1", f"{tools}/all_reduce_perf", "-b", "1G"],
        "output": "-b 1G\n",
    }


def test_nothing_is_run_in_check_mode(call, tools):
    assert call(gpu_acceptance_run, {"tool": "nvbandwidth", "paths": [tools], "arguments": ["-t", "0"]}, True) == {
        "changed": False,
        "tool": "nvbandwidth",
        "status": "not measured",
        "reason": "check mode",
        "argv": [f"{tools}/nvbandwidth", "-t", "0"],
        "output": "",
        "seconds": 0,
    }


@pytest.mark.parametrize(
    ("options", "gpu", "more", "gpu_memory"),
    [
        (["--use_cuda_bus_id=<id>", "--use_cuda_dmabuf"], GPU, [*BY_GPU, "--use_cuda_dmabuf"], True),
        (["--use_cuda_bus_id=<id>"], GPU, BY_GPU, True),
        (["--use_rocm=<id>"], GPU, [], False),
        (["--use_cuda_bus_id=<id>", "--use_cuda_dmabuf"], None, [], False),
    ],
)
def test_a_rail_uses_gpu_memory_if_the_tool_can(call, rdma, tmp_path, options, gpu, more, gpu_memory):
    given = {**rdma(*options), "gpu": gpu, "arguments": ["-p", "18515"], "server": "10.0.0.1"}
    result = call(gpu_acceptance_run, given)
    assert result["argv"] == [f"{tmp_path}/bin/ib_write_bw", "-p", "18515", "-d", "mlx5_0", *more, "10.0.0.1"]
    assert result["output"].split() == result["argv"][1:]
    assert (result["status"], result["port_gbit_s"], result["gpu_memory"]) == ("measured", 400.0, gpu_memory)


@pytest.mark.parametrize(("text", "rate"), [("25.78 Gb/sec (1X EDR)\n", 25.78), ("unknown\n", None), (None, None)])
def test_the_rate_of_a_port_is_read(call, rdma, tmp_path, text, rate):
    given = rdma()
    place = tmp_path / "rdma/mlx5_0/ports/1/rate"
    place.write_text(text) if text else place.unlink()
    result = call(gpu_acceptance_run, given, check_mode=True)
    assert (result["port_gbit_s"], result["gpu_memory"]) == (rate, False)


@pytest.mark.parametrize(("server", "retry_s"), [("10.0.0.1", 20), (None, 0)])
def test_only_a_client_is_started_again_until_its_server_listens(call, rdma, monkeypatch, server, retry_s):
    seen, run = [], gpu_acceptance_run.run.run
    monkeypatch.setattr(gpu_acceptance_run.run, "run", lambda *given: seen.append(given[2:]) or run(*given))
    call(gpu_acceptance_run, {**rdma(), "server": server})
    assert seen == [(300, retry_s)]
