"""Inputs of a model, one batch at a time: arrays, folders of images, lines of text and columns of tables."""

from __future__ import annotations

import hashlib
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.activations._options import ExtractOptions
from congruence.arrays import Array, listing, to_numpy
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.files import ReadFile
from congruence.guards import PIXEL_BYTES, check_readable, first_sentence, is_file, open_archive, reading, suffix_of
from congruence.memory import check_fits
from congruence.tables import as_table, is_table, read_row_columns, read_table
from congruence.tables.access import map_npy, read_npz_arrays

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")  # the only ones that Pillow may try
PIXEL_OPTIONS = ("size", "mean", "std")
KINDS = {"array": "an array", "text": "text", "images": "images", "texts": "a list of texts"}


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows of input, read one batch at a time; only the ids are all in memory.

    `read(start, stop)` returns these rows: an array whose first axis is the rows, or a list of texts.
    """

    n: int
    ids: Array  # (n,)
    read: Callable[[int, int], Any]
    name: str  # identifies the inputs, so that an interrupted extraction resumes only with the same ones
    texts: bool = False
    id_name: str | None = None  # the column of the ids, which keeps its name
    files: tuple[ReadFile, ...] = ()

    @property
    def identity(self) -> str:
        """The name and the state of the files."""
        return f"{self.name} {_digest([repr(self.files).encode()])}"

    @property
    def repeated(self) -> str:
        """A note on ids that occur more than once; "" if none does."""
        ids = self.ids.astype(str) if self.ids.dtype == object else self.ids  # objects may have no order
        unique, counts = np.unique(ids, return_counts=True)
        repeated = unique[counts > 1]
        if not len(repeated):
            return ""
        return f"ids occur more than once ({listing(repeated)}); compare and layers refuse such tables"


def as_inputs(
    source: Any,
    options: ExtractOptions,
    images: Mapping[str, Any] | None = None,
    processor: Callable[[], Any] | None = None,
) -> Inputs:
    """Open an array, a table or frame, a list of texts or a path as `Inputs`.

    `processor` opens the image processor of the model. `images` holds its size, mean and std, which are used instead
    if options override any of them.
    """
    opened: Callable[[], Inputs]
    if isinstance(source, Inputs):
        return source
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None and is_table(source):
        table = as_table(source, id=options.id, key=options.key)
        return replace(array_inputs(table.values, ids=table.ids), id_name=table.id_name)
    kind, opened = "array", partial(array_inputs, source)
    if path is not None:
        folder = path.is_dir() and suffix_of(path) != ".zarr"
        text = options.column is not None or suffix_of(path) in (".txt", ".text", ".md")
        kind = options.kind or ("images" if folder else "text" if text else "array")
        wanted = {name: getattr(options, name) for name in PIXEL_OPTIONS if getattr(options, name) is not None}
        if kind == "images" and not wanted and processor is not None:
            return image_inputs(path, processor=processor())
        readers = {
            "array": partial(array_inputs, source, key=options.key),
            "images": partial(image_inputs, source, **(dict(images or {}) | wanted)),
            "text": partial(text_inputs, source, column=options.column, id=options.id),
        }
        opened = readers[check_choice("kind", kind, readers)]
    elif isinstance(source, list | tuple) and all(isinstance(text, str) for text in source):
        if not source:
            raise InputError("inputs is an empty list of texts")
        name = f"texts {_digest(text.encode() + bytes(1) for text in source)}"
        texts = list(source)
        listed = Inputs(len(texts), np.arange(len(texts)), lambda a, b: texts[a:b], name, texts=True)
        kind, opened = "texts", lambda: listed
    for name, of in {"key": "array", "column": "text", "id": "text", **dict.fromkeys(PIXEL_OPTIONS, "images")}.items():
        if getattr(options, name) is not None and (kind != of or path is None):
            raise InputError(f"{name} applies to the path of {KINDS[of]} only, but the inputs are {KINDS[kind]}")
    return opened()


def array_inputs(source: Any, *, key: str | None = None, ids: Sequence[Any] | Array | None = None) -> Inputs:
    """Rows of an array with any number of axes, or of a file that holds one.

    .npy files are memory-mapped; `key` names the array in a .npz file, by default the only one besides ``ids``. The
    rows of any other embedding table are its values. `ids`, one for each row, are by default those of the file, or row
    numbers.
    """
    if isinstance(source, str | Path):
        array, stored_ids, id_name, files = _read_array(Path(source), key)
        title, name = str(source), f"{source} {key}"
    else:
        array, stored_ids, id_name, files = source, None, None, ()
        plain = to_numpy(source)
        rows = (np.ascontiguousarray(row).tobytes() for row in (plain if plain.ndim else ()))
        title, name = "the array", f"array {_digest(rows)}"
    if getattr(array, "ndim", 0) < 2 or not len(array):
        raise InputError(f"{title} must have rows and at least one more axis, but has shape {np.shape(array)}")
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biufc":
        raise InputError(
            f"{title} must hold numbers, but has dtype {array.dtype}; store texts in a text file or a table"
        )
    chosen = _ids(ids if ids is not None else stored_ids, len(array), title)

    def read(start: int, stop: int) -> Any:
        some = array[start:stop]
        return np.array(some) if isinstance(some, np.ndarray) else some  # a memory map is read-only

    return Inputs(len(array), chosen, read, name, id_name=id_name, files=files)


def image_inputs(
    folder: str | Path,
    *,
    size: int | None = None,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    processor: Any = None,
) -> Inputs:
    """Images of a folder and its subfolders, in the order of their names, which are the ids.

    Batches are float32 of shape (rows, 3, height, width): pixels in [0, 1], minus `mean`, divided by `std`.
    `size` resizes the shorter side to it and crops the centre to a square; without it all images must have one size.
    `processor`, an image processor of transformers, does all of this instead: resize, crop, scale and normalise.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give one that holds images ({', '.join(IMAGES)})")
    if size is not None and size < 1:
        raise InputError(f"size must be at least 1; got {size}")
    try:  # they may come from the settings of a model folder
        shift, scale = (np.array(numbers, np.float32)[:, None, None] for numbers in (mean, std))
        right = shift.shape == scale.shape == (3, 1, 1) and np.isfinite([shift, scale]).all() and (scale > 0).all()
    except (TypeError, ValueError, IndexError):
        right = False
    if not right:
        raise InputError(f"mean and std must be three numbers each, std positive; got {mean} and {std}")
    paths = image_paths(folder)
    if not paths:
        raise InputError(f"{folder} holds no images ({', '.join(IMAGES)})")
    ids = np.array([path.relative_to(folder).as_posix() for path in paths])

    def read(start: int, stop: int) -> Array:
        if processor is not None:
            return read_images(paths[start:stop], process=processor)
        pixels: Array = (read_images(paths[start:stop], size).astype(np.float32) / 255 - shift) / scale
        return pixels

    how = f"{size} {list(mean)} {list(std)}" if processor is None else _digest([processor.to_json_string().encode()])
    return Inputs(len(paths), ids, read, f"{folder} {how}", files=tuple(map(ReadFile.now, paths)))


def image_paths(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGES and is_file(path))


def read_images(paths: Sequence[Path], size: int | None = None, process: Any = None) -> Array:
    """Read images as uint8 (n, 3, height, width); with `size`, as squares of that side cut from the middle.

    With `process`, an image processor of transformers, they are what that returns.
    """
    if not paths:
        raise InputError("there are no images to read")
    first = _read_image(size, process, paths[0])
    check_fits(paths[0].parent, 2 * len(paths) * first.nbytes, f"{len(paths)} images", "; give a smaller size")
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases the GIL
        images = [first, *pool.map(partial(_read_image, size, process), paths[1:])]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            here, there = (f"{i.shape[2]} x {i.shape[1]}" for i in (image, images[0]))
            raise InputError(f"{path} is {here} pixels, but {paths[0]} is {there}; give a size to make them equal")
    return np.stack(images)


def _read_image(size: int | None, process: Any, path: Path) -> Array:
    from PIL import Image

    with reading(path, "an image"), Image.open(path, formats=FORMATS) as file:
        check_fits(path, PIXEL_BYTES * max(file.size[0] * file.size[1], (size or 0) ** 2), "the image")
        image = _rgb(file)
        if size is not None:  # scale the shorter side to `size` and keep the middle of the longer one
            width, height = image.size
            left, top = max(0, width - height) / 2, max(0, height - width) / 2
            image = image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, width - left, height - top))
        if process is None:
            return np.asarray(np.asarray(image).transpose(2, 0, 1))
        try:
            pixels = np.asarray(process(images=image, return_tensors="np")["pixel_values"], dtype=np.float32)
        except Exception as error:  # settings that do not fit the processor raise anything
            reason = f"fails: {first_sentence(error)}"
            raise InputError(f"the image processor of the model {reason}; give size, mean and std") from error
        if pixels.ndim != 4 or len(pixels) != 1:
            shape = pixels.shape
            raise InputError(f"the image processor of the model returns {shape} for one image; give size, mean and std")
        return np.asarray(pixels[0])


def _rgb(file: Any) -> Any:
    """Convert to 8 bits per channel; Pillow would clip 16-bit values at 255 instead of scaling them."""
    from PIL import Image

    if file.mode.startswith("I;16") or (file.mode == "I" and file.format == "PNG"):  # at most 16 bits
        return Image.fromarray(np.round(np.asarray(file) / 257).astype(np.uint8)).convert("RGB")
    if file.mode in ("I", "F"):
        raise InputError(f"{file.filename} has 32-bit grey values of unknown range; save it with 8 or 16 bits")
    return file.convert("RGB")


def text_inputs(path: str | Path, *, column: str | None = None, id: str | None = None) -> Inputs:
    """Lines of a text file (without empty ones; ids are line numbers from 1), or a column of a table.

    For a text file only the offsets of lines are kept in memory, for a table the whole column.
    """
    path = Path(path)
    if suffix_of(path) in (".csv", ".csv.gz", ".parquet", ".arrow", ".feather"):
        return _column(path, column, id)
    if column is not None or id is not None:
        raise InputError(f"{path} is read as lines of text, which have no columns; leave out column and id")
    check_readable(path)
    files = (ReadFile.now(path),)
    starts, numbers = _lines(path)
    if not len(starts):
        raise InputError(f"{path} has no text: all lines are empty")
    return Inputs(len(starts), numbers, partial(_read_lines, path, starts), str(path), texts=True, files=files)


def _read_array(path: Path, key: str | None) -> tuple[Any, Any, str | None, tuple[ReadFile, ...]]:
    """Return the array of a file, the ids, the name of their column, and the files as they were read."""
    files = (ReadFile.now(path),)
    if suffix_of(path) == ".npy":
        check_readable(path)
        with reading(path):
            return map_npy(path), None, None, files
    if suffix_of(path) != ".npz":
        table = read_table(path, key=key)
        return table.values, table.ids, table.id_name, table.read
    check_readable(path)
    with open_archive(path) as archive:
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy") and name != "ids.npy"]
    if key is None and len(names) != 1:
        raise InputError(f"{path} holds several arrays ({listing(names, 10)}); choose one with key")
    if key is not None and key not in names:
        raise InputError(f"{path} holds no array {key!r}; it holds {listing(names, 10)}")
    arrays = read_npz_arrays(path, (chosen := key or names[0], "ids"))
    return arrays[chosen], arrays.get("ids"), None, files


def _ids(ids: Any, n: int, name: str) -> Array:
    if ids is None:
        return np.arange(n)
    array = np.asarray(ids)
    if array.shape != (n,):
        raise InputError(f"ids must be one for each of the {n} rows of {name}, but have shape {array.shape}")
    return array


def _column(path: Path, column: str | None, id: str | None) -> Inputs:
    files, table = (ReadFile.now(path),), read_row_columns(path, id=id)
    words = [name for name, values in table.columns.items() if values.dtype.kind in "OUT"]
    if column is None and not words:
        raise InputError(f"{path} has no column of text; it has {listing(list(table.columns), 10)}")
    if column is None and len(words) > 1:
        raise InputError(f"{path} has {len(words)} columns of text ({listing(words, 10)}); choose one with column")
    name = words[0] if column is None else column
    if name not in table.columns:
        raise InputError(f"{path} has no column {name!r}; it has {listing(list(table.columns), 10)}")
    texts = table.columns[name].tolist()
    missing = [row for row, text in enumerate(texts) if not isinstance(text, str)]
    if missing:
        raise InputError(f"column {name!r} of {path} has no text in {len(missing)} rows (row {listing(missing)})")
    ids = _ids(table.ids, table.n, str(path))
    return Inputs(table.n, ids, lambda a, b: texts[a:b], f"{path} {name}", True, table.id_name, files)


def _lines(path: Path) -> tuple[Array, Array]:
    """Byte offsets and numbers of the non-empty lines."""
    starts, numbers, place = [], [], 0
    with reading(path), path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            mark = len(BOM_UTF8) if number == 1 and line.startswith(BOM_UTF8) else 0  # not part of the text
            if line[mark:].strip():
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(f"{path} is not UTF-8 text in line {number}; save it as UTF-8") from error
                starts.append(place + mark)
                numbers.append(number)
            place += len(line)
    return np.array(starts, np.int64), np.array(numbers, np.int64)


def _read_lines(path: Path, starts: Array, start: int, stop: int) -> list[str]:
    texts = []
    with reading(path), path.open("rb") as handle:
        for place in starts[start:stop].tolist():
            handle.seek(place)
            texts.append(handle.readline().decode("utf-8").rstrip("\r\n"))
    return texts


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()[:16]
