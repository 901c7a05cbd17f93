"""Write a `Translator` for programs without congruence: ONNX, sentence-transformers or numpy alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_choice, require
from congruence.errors import InputError
from congruence.files import alone, check_writable, replacing, write_text
from congruence.tables.write import save_npz
from congruence.translation._options import FORMATS
from congruence.translation.translator import Translator, fits_float32

OPSET, IR_VERSION = 18, 8  # of ONNX; onnxruntime reads both from version 1.14 on

NUMPY = '''"""Translate rows of {d_new} numbers into the old space of {d_old}: translate(x), x of shape (n, {d_new})."""
from pathlib import Path
import numpy as np
with np.load(Path(__file__).with_suffix(".npz")) as arrays:
    MEAN, MATRIX, SHIFT, UNIT = (arrays[name] for name in ("mean", "matrix", "shift", "unit"))
def unit(x):
    x = x / np.maximum(np.abs(x).max(1, keepdims=True), np.finfo(np.float32).tiny)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)
def translate(x):
    x = ((unit(x) if UNIT else np.asarray(x)) - MEAN) @ MATRIX + SHIFT
    return unit(x) if UNIT else x
'''


def export_translator(translator: Translator, path: str | Path, to: str) -> list[Path]:
    """Write a translator in another format, in float32, and return the files.

    Parameters
    ----------
    translator : Translator
        From `translate` or `load_translator`.
    path : str or Path
        The file (.onnx or .py, with an .npz file of the same name), or a folder for sentence-transformers.
    to : {"onnx", "sentence-transformers", "numpy"}
        "onnx": a model with the input ``new``, float32 (n, d_new), and the output ``old``, float32 (n, d_old).
        "sentence-transformers": a folder with a `Dense` module and, for cosine similarity, `Normalize` before and
        after it, listed in modules.json. "numpy": a module with a function `translate` that needs numpy alone.
    """
    check_choice("to", to, FORMATS)
    if not fits_float32(translator.map.matrix):
        raise InputError("this translator cannot be exported: its numbers are beyond the range of float32")
    path = Path(path)
    with alone(path), alone(_numpy_arrays(path)) if to == "numpy" else contextlib.nullcontext():
        return _WRITERS[to](translator, path)


def _arrays(translator: Translator) -> tuple[Array, ...]:
    """Mean, matrix and shift in float32."""
    return tuple(part.astype(np.float32) for part in translator.linear(single=True))


def _check_suffix(path: Path, suffix: str) -> None:
    if path.suffix != suffix:
        raise InputError(f"{path} must end in {suffix}")
    check_writable(path)


def _write_onnx(translator: Translator, path: Path) -> list[Path]:
    _check_suffix(path, ".onnx")
    onnx = require("onnx", "export to ONNX", "onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    mean, matrix, shift = _arrays(translator)
    constants = {"mean": mean, "matrix": matrix, "shift": shift}
    if translator.normalize:
        constants |= {"tiny": np.array(np.finfo(np.float32).tiny, np.float32), "columns": np.array([1], np.int64)}
    nodes: list[Any] = []

    def add(kind: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(kind, inputs, [output]))
        return output

    def unit(x: str, name: str) -> str:
        """Unit length; first divided by the largest value, so that no square overflows. Rows of zeros stay."""
        for kind, reduce in (("largest", "ReduceMax"), ("length", "ReduceL2")):
            size = add("Abs", [x], f"{name}_{kind}_abs")
            size = add(reduce, [size, "columns"], f"{name}_{kind}_reduced")
            x = add("Div", [x, add("Max", [size, "tiny"], f"{name}_{kind}")], f"{name}_{kind}_scaled")
        return x

    x = unit("new", "before") if translator.normalize else "new"
    x = add("Add", [add("MatMul", [add("Sub", [x, "mean"], "centred"), "matrix"], "product"), "shift"], "mapped")
    add("Identity", [unit(x, "after") if translator.normalize else x], "old")
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "translator",
        [helper.make_tensor_value_info("new", floats, ["rows", translator.d_new])],
        [helper.make_tensor_value_info("old", floats, ["rows", translator.d_old])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="congruence"
    )
    onnx.checker.check_model(model, full_check=True)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return [path]


def _numpy_arrays(path: Path) -> Path:
    """The file of the arrays that the module at `path` reads."""
    return path.parent / f"{path.stem}.npz"


def _write_numpy(translator: Translator, path: Path) -> list[Path]:
    _check_suffix(path, ".py")
    arrays = _numpy_arrays(path)
    mean, matrix, shift = _arrays(translator)
    unit = np.array(bool(translator.normalize))
    with replacing(arrays) as temporary:
        save_npz(temporary, {"mean": mean, "matrix": matrix, "shift": shift, "unit": unit})
    write_text(path, NUMPY.format(d_new=translator.d_new, d_old=translator.d_old))
    return [path, arrays]


def _write_dense(translator: Translator, path: Path) -> list[Path]:
    from safetensors.numpy import save_file

    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"cannot write to {path}: it exists; give the name of a new folder")
    check_writable(path.parent / path.name / "modules.json" if path.is_dir() else path)
    mean, matrix, shift = translator.linear()
    steps = ["Normalize", "Dense", "Normalize"] if translator.normalize else ["Dense"]
    names = [f"{place}_{kind}" for place, kind in enumerate(steps)]
    with replacing(path, folder=True) as folder:
        for name in names:
            (folder / name).mkdir(parents=True)
        dense = folder / names[steps.index("Dense")]
        weights = {"linear.weight": matrix.T, "linear.bias": shift - mean @ matrix}
        with replacing(dense / "model.safetensors") as temporary:
            save_file({name: np.ascontiguousarray(part, np.float32) for name, part in weights.items()}, temporary)
        config: dict[str, Any] = {"in_features": translator.d_new, "out_features": translator.d_old, "bias": True}
        config |= {"activation_function": "torch.nn.modules.linear.Identity"}
        config |= {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
        write_text(dense / "config.json", json.dumps(config, indent=2))
        for name, kind in zip(names, steps, strict=True):
            if kind == "Normalize":
                write_text(
                    folder / name / "config.json", json.dumps({"module_input_name": "sentence_embedding"}, indent=2)
                )
        modules = [
            {"idx": place, "name": str(place), "path": name, "type": f"sentence_transformers.models.{kind}"}
            for place, (name, kind) in enumerate(zip(names, steps, strict=True))
        ]
        write_text(folder / "modules.json", json.dumps(modules, indent=2))
    return [path]


_WRITERS: dict[str, Callable[[Translator, Path], list[Path]]] = {
    "onnx": _write_onnx,
    "sentence-transformers": _write_dense,
    "numpy": _write_numpy,
}
