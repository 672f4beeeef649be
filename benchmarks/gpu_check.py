"""Everything of the GPU engine that only a GPU can show, in one command: `python benchmarks/gpu_check.py`.

It takes less than six minutes and needs neither network nor model files (seeded weights in the shapes of Qwen3-0.6B).
It is made for torch 2.9 to 2.14 with the Triton that each brings; Python packages besides: numpy, msgspec, and
sqlite-utils for the section `recorder`. kvscope itself need not be installed: it is found beside this folder. How
packages are carried to a machine without network: docs/KERNELS.md.

Each section runs in a process of its own with a time limit, because an error on a GPU spoils the process in which it
happened: a section that fails or hangs costs the others nothing. What has been found is in the JSON after each section.

`--cpu-dry-run` takes the same way without a GPU: Triton's interpreter, toy shapes, few repeats. Its times mean nothing,
so goals for speed are not looked at.

Exit codes: 0 all is well, 1 something is wrong or a section did not come to its end, 2 there is nothing to run on,
3 nothing is wrong, but a goal for speed was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu.rows import Row, Rows, has_missed, has_wrong, read_rows  # noqa: E402

if TYPE_CHECKING:
    from benchmarks.gpu.setup import Setup

TOTAL_S = 350.0
"""All sections together; what is left of it bounds each."""
TIME_LIMITS_S = {
    "machine": 40.0,
    "kernels": 120.0,
    "rates": 90.0,
    "tokens": 90.0,
    "graphs": 90.0,
    "throughput": 60.0,
    "recorder": 60.0,
}
KILL_S = 5.0
"""So long is waited for a section that was killed."""
PACKAGES = ("numpy", "msgspec", "sqlite_utils")


class NothingToRunOn(Exception):
    """There is no GPU, or none that the kernels run on."""


@dataclass(frozen=True, slots=True)
class SectionResult:
    """How a section ended."""

    name: str
    state: str
    """done, failed (it raised), timeout, crashed (its process died), or no time left."""
    seconds: float
    rows: list[Row] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        return self.state == "done" and not has_wrong(self.rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the sections that are asked for, prints tables, and returns the exit code."""
    options = _parse(arguments)
    if options.section is not None:
        return _run_section(options.section, options.cpu_dry_run, options.rows)
    # The recorder's process looks there too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    names = options.only or list(TIME_LIMITS_S)
    results = []
    began = time.monotonic()
    for name in names:
        left = TOTAL_S - (time.monotonic() - began)
        if left < 1:
            results.append(SectionResult(name, "no time left", 0.0))
            continue
        print(f"\n{name}", flush=True)
        limit = min(TIME_LIMITS_S[name], left)
        if options.in_process:
            results.append(_in_process(name, options.cpu_dry_run))
        else:
            results.append(run_apart(name, _command(name, options.cpu_dry_run), limit))
        print(f"  {results[-1].state} after {results[-1].seconds:.1f} s", flush=True)
        _keep(results, options.json, time.monotonic() - began)
        if name == "machine" and not options.cpu_dry_run and results[-1].state == "failed":
            break
    _keep(results, options.json, time.monotonic() - began)
    return _report(results, time.monotonic() - began)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cpu-dry-run", action="store_true", help="without a GPU: interpreter, toy shapes")
    parser.add_argument("--only", nargs="+", choices=list(TIME_LIMITS_S), metavar="SECTION", help="these sections")
    parser.add_argument("--json", type=Path, help="write all rows here")
    parser.add_argument("--in-process", action="store_true", help="no process for each section, and no time limits")
    parser.add_argument("--section", choices=list(TIME_LIMITS_S), help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _command(name: str, is_dry: bool) -> list[str]:
    dry = ["--cpu-dry-run"] if is_dry else []
    return [sys.executable, str(Path(__file__).resolve()), "--section", name, *dry, "--rows"]


def run_apart(name: str, command: list[str], limit_s: float) -> SectionResult:
    """Runs a section in a process, which gets as its last argument the file to leave its rows in."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        # A group of its own, so that compilers which it started end with it.
        process = subprocess.Popen([*command, str(path)], start_new_session=True)
        state = "timeout"
        try:
            state = {0: "done", 1: "failed"}.get(process.wait(limit_s), "crashed")
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                # A process that hangs in a driver may not even end so: the others have their turn all the same.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(KILL_S)
        return SectionResult(name, state, time.monotonic() - began, read_rows(path))


def _in_process(name: str, is_dry: bool) -> SectionResult:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        state = "done" if _run_section(name, is_dry, path) == 0 else "failed"
        return SectionResult(name, state, time.monotonic() - began, read_rows(path))


def _run_section(name: str, is_dry: bool, path: Path | None) -> int:
    """Runs one section here; returns 0, or 1 where it raised."""
    try:
        if is_dry:
            os.environ["TRITON_INTERPRET"] = "1"
        rows = Rows(path, has_goals=not is_dry)
        if name == "machine":
            _describe_machine(rows, is_dry)
            return 0
        import torch

        from benchmarks.gpu.setup import Setup

        setup = Setup(torch.device("cpu" if is_dry else "cuda:0"), is_dry)
        with torch.inference_mode():
            _section(name)(setup, rows)
    except NothingToRunOn as error:
        print(f"  {error}", flush=True)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _section(name: str) -> Callable[[Setup, Rows], None]:
    """Returns a section. Imports no more than it needs: a package that one lacks costs the others nothing."""
    if name == "kernels":
        from benchmarks.gpu.kernel_checks import check_kernels

        return check_kernels
    if name == "rates":
        from benchmarks.gpu.rates import measure_rates

        return measure_rates
    if name == "tokens":
        from benchmarks.gpu.tokens_check import check_tokens

        return check_tokens
    from benchmarks.gpu import engine_speed

    return {
        "graphs": engine_speed.measure_graphs,
        "throughput": engine_speed.measure_throughput,
        "recorder": engine_speed.measure_recorder,
    }[name]


def _describe_machine(rows: Rows, is_dry: bool) -> None:
    """Says what everything runs on. Raises `NothingToRunOn`."""
    import torch

    from kvscope.engine.kernels import python_header, unavailable_reason

    rows.add("python", platform.python_version())
    rows.add("torch", torch.__version__)
    with contextlib.suppress(ImportError):
        rows.add("numpy", importlib.import_module("numpy").__version__)
    try:
        import triton

        rows.add("triton", triton.__version__)
    except ImportError:
        rows.add("triton", "not installed")
    missing = [name.replace("_", "-") for name in PACKAGES if importlib.util.find_spec(name) is None]
    rows.add("packages missing", ", ".join(missing) or "none")
    # Triton compiles its launchers in C once: without a compiler or Python's headers no kernel starts.
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "clang", "cc")), "none")
    rows.add("C compiler", compiler)
    rows.add("Python's C header", "there" if python_header().is_file() else f"no {python_header()}")
    rows.add("platform", f"{platform.system()} {platform.release()}, {os.cpu_count()} cores")
    rows.add("runs on", "CPU, Triton's interpreter" if is_dry else "GPU")
    if is_dry:
        return
    if (reason := unavailable_reason(torch.device("cuda:0"))) is not None:
        raise NothingToRunOn(f"{reason}; --cpu-dry-run tries the check itself")
    properties = torch.cuda.get_device_properties(0)
    rows.add("GPU", properties.name)
    rows.add("compute capability", f"{properties.major}.{properties.minor}")
    rows.add("multiprocessors", properties.multi_processor_count)
    rows.add("memory", properties.total_memory / (1 << 30), "GiB")
    rows.add("CUDA", str(torch.version.cuda))
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False).stdout
        rows.add("driver, clock now and at most", (answer.splitlines() or ["unknown"])[0])


def _keep(results: list[SectionResult], path: Path | None, seconds: float) -> None:
    """Writes the JSON of what was found until now."""
    if path is not None:
        sections = {result.name: {**asdict(result), "is_well": result.is_well} for result in results}
        path.write_text(json.dumps({"seconds": seconds, "sections": sections}, indent=1) + "\n")


def _report(results: list[SectionResult], seconds: float) -> int:
    """Prints what is wrong and what was missed, and returns the exit code."""
    print(f"\n{seconds:.0f} s in all")
    for result in results:
        if result.state != "done":
            print(f"{result.name}: {result.state}")
        for row in result.rows:
            if row.is_ok is False:
                print(f"{result.name}:{row.line()[1:]}")
    if len(results) == 1 and results[0].name == "machine" and results[0].state == "failed":
        return 2
    if not all(result.is_well for result in results):
        return 1
    return 3 if any(has_missed(result.rows) for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
