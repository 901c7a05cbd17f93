"""Devices, precision, determinism and threads of torch."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from congruence.arrays import resolve_device
from congruence.checks import require

GENERATORS = threading.RLock()  # held while torch's random generators, which the whole process shares, are replaced
AMPERE = (8, 0)  # the first GPUs that multiply bfloat16


def load_torch(what: str = "training") -> Any:
    """Import torch, or raise an error that says what needs it and how to install it."""
    return require("torch", what, "torch")


def training_device(device: str) -> str:
    """Return the device to train on: "auto" is a GPU where torch finds one."""
    if device == "auto":
        return "cuda" if load_torch().cuda.is_available() else "cpu"
    return resolve_device(device)


def training_precision(precision: str, device: str) -> str:
    """Return the precision to train in: "auto" is bfloat16 on a GPU that multiplies it, else float32."""
    if precision != "auto":
        return precision
    able = device.startswith("cuda") and load_torch().cuda.get_device_capability(device) >= AMPERE
    return "bfloat16" if able else "float32"


def can_compile() -> bool:
    """Whether GPU kernels can be compiled, which needs triton, a C compiler and Python.h."""
    return (
        importlib.util.find_spec("triton") is not None
        and any(map(shutil.which, ("cc", "gcc", "clang")))
        and (os.name != "posix" or any((Path(folder) / "Python.h").exists() for folder in _header_folders()))
    )


def _header_folders() -> list[str]:
    """Where the headers of this Python may be; many systems ship them separately (python3-dev)."""
    known = (sysconfig.get_path("include"), sysconfig.get_path("include", "posix_prefix"))
    return [*known, sysconfig.get_config_var("INCLUDEPY") or ""]


@contextlib.contextmanager
def kernels(device: str, *, deterministic: bool) -> Iterator[None]:
    """Choose torch's kernels inside the block: the fastest it finds, or deterministic ones.

    Deterministic on a CPU also means one thread, since sums are split by the number of threads. A GPU is torch's
    current device inside the block, which triton kernels and CUDA graphs need.
    """
    import torch

    if device == "cpu" and not deterministic:
        yield
        return
    cudnn, filled = torch.backends.cudnn, torch.utils.deterministic
    before = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    flags = (cudnn.deterministic, cudnn.benchmark, filled.fill_uninitialized_memory)
    try:
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch refuses products on a GPU without it
            torch.use_deterministic_algorithms(True)
            filled.fill_uninitialized_memory = False  # a debugging aid that takes time
        cudnn.deterministic, cudnn.benchmark = deterministic, not deterministic
        with one_thread() if device == "cpu" else _on_gpu(device):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.deterministic, cudnn.benchmark, filled.fill_uninitialized_memory = flags


@contextlib.contextmanager
def _on_gpu(device: str) -> Iterator[None]:
    import torch

    with torch.cuda.device(device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # the few float32 products stay exact
        yield


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 convolutions and products on a GPU in float32, so that codes are those of a CPU."""
    import torch

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextlib.contextmanager
def short_products() -> Iterator[None]:
    """Multiply float32 matrices on a GPU as TF32 (factors of 10 bits, sums in float32) inside the block."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Run torch on one thread inside the block; with small layers, two on a busy machine were up to 50 times slower."""
    return torch_threads(1)


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run torch on some threads inside the block; None leaves their number unchanged."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
