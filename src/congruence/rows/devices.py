"""Where a training runs, in what precision, and whether it gives the same bits again."""

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
from congruence.errors import MissingDependencyError
from congruence.rows.threads import one_thread

GENERATORS = threading.RLock()  # torch's are the process's: threads that set and restore them take turns
AMPERE = (8, 0)  # the first GPUs that multiply bfloat16


def load_torch(what: str = "training") -> Any:
    """Import torch, or say what needs it and how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(f"{what} needs torch: pip install 'congruence[torch]'") from error
    return torch


def training_device(device: str) -> str:
    """Turn "auto" into a GPU where torch sees one, and refuse what cannot be had."""
    if device == "auto":
        return "cuda" if load_torch().cuda.is_available() else "cpu"
    return resolve_device(device)


def training_precision(precision: str, device: str) -> str:
    """Turn "auto" into bfloat16 on a GPU that is fast with it, and into float32 elsewhere."""
    if precision != "auto":
        return precision
    able = device.startswith("cuda") and load_torch().cuda.get_device_capability(device) >= AMPERE
    return "bfloat16" if able else "float32"


def can_compile() -> bool:
    """Whether kernels can be made for a GPU: that takes triton, a compiler of C for it to call, and Python.h."""
    return (
        importlib.util.find_spec("triton") is not None
        and any(map(shutil.which, ("cc", "gcc", "clang")))
        and (os.name != "posix" or any((Path(folder) / "Python.h").exists() for folder in _header_folders()))
    )


def _header_folders() -> list[str]:
    """Where the headers of this Python may be; many systems leave them to a package of their own (python3-dev)."""
    known = (sysconfig.get_path("include"), sysconfig.get_path("include", "posix_prefix"))
    return [*known, sysconfig.get_config_var("INCLUDEPY") or ""]


@contextlib.contextmanager
def kernels(device: str, *, deterministic: bool) -> Iterator[None]:
    """Choose how torch computes inside the block: the fastest way it finds, or one that gives the same bits again.

    Deterministic on a CPU also means one thread: sums are cut into as many parts as there are threads. A GPU is torch's
    current one inside the block, since that is where kernels of triton and CUDA graphs go.
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
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it torch refuses products on a GPU
            torch.use_deterministic_algorithms(True)
            filled.fill_uninitialized_memory = False  # that is for finding mistakes, and takes time
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
    """Let convolutions and products on a GPU take float32 as it is, so that codes are those that a CPU gives."""
    import torch

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextlib.contextmanager
def short_products() -> Iterator[None]:
    """Let products of float32 on a GPU take factors of 10 bits (TF32), as trainings can; sums are still float32."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
