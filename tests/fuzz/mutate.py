"""Damage bytes in the ways that disks, networks and attackers do; the same generator damages them the same way."""

import gzip
import io
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.random import Generator

EXTREMES = [0, 1, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 10**12, 2**40, 2**62, 2**63 - 1, 2**64 - 1]
EDGE = 64  # bytes at both ends of a file, where most formats keep what describes the rest


def _place(data: bytes, rng: Generator) -> int:
    """Choose a position, half of the time near one of the ends."""
    if rng.random() < 0.5 or len(data) <= EDGE:
        return int(rng.integers(len(data)))
    near = int(rng.integers(EDGE))
    return near if rng.random() < 0.5 else len(data) - 1 - near


def _block(data: bytes, rng: Generator) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + int(2 ** rng.uniform(0, 10)))


def flip_bits(data: bytes, rng: Generator) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        damaged[_place(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def set_bytes(data: bytes, rng: Generator) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        damaged[_place(data, rng)] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)]))
    return bytes(damaged)


def truncate(data: bytes, rng: Generator) -> bytes:
    return data[: max(1, _place(data, rng))]


def insert(data: bytes, rng: Generator) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.bytes(int(2 ** rng.uniform(0, 8))) + data[at:]


def repeat_block(data: bytes, rng: Generator) -> bytes:
    start, stop = _block(data, rng)
    return data[:stop] + data[start:stop] * int(rng.integers(1, 4)) + data[stop:]


def drop_block(data: bytes, rng: Generator) -> bytes:
    start, stop = _block(data, rng)
    return data[:start] + data[stop:] or b"\0"


def zero_block(data: bytes, rng: Generator) -> bytes:
    start, stop = _block(data, rng)
    return data[:start] + bytes(stop - start) + data[stop:]


def swap_blocks(data: bytes, rng: Generator) -> bytes:
    (a, b), (c, d) = sorted([_block(data, rng), _block(data, rng)])
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def extreme_integer(data: bytes, rng: Generator) -> bytes:
    width = int(rng.choice([2, 4, 8]))
    at = _place(data, rng) // width * width
    number = EXTREMES[rng.integers(len(EXTREMES))] & (1 << 8 * width) - 1
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def extreme_digits(data: bytes, rng: Generator) -> bytes:
    """Write an absurd number in place of one that stands in text: a shape in a header, a cell of a csv."""
    found = list(re.finditer(rb"-?\d+", data))
    if not found:
        return extreme_integer(data, rng)
    at = found[rng.integers(len(found))]
    number = str(EXTREMES[rng.integers(len(EXTREMES))] * int(rng.choice([1, -1]))).encode()
    return data[: at.start()] + number + data[at.end() :]


def append_itself(data: bytes, rng: Generator) -> bytes:
    return data + data if rng.random() < 0.5 else data + data[: _place(data, rng)]


MUTATIONS: list[Callable[[bytes, Generator], bytes]] = [
    flip_bits, set_bytes, truncate, insert, repeat_block, drop_block,
    zero_block, swap_blocks, extreme_integer, extreme_digits, append_itself,
]  # fmt: skip


def mutate(data: bytes, rng: Generator) -> tuple[str, bytes]:
    """Damage the bytes once or twice; return what was done, and the damaged bytes."""
    done = []
    for _ in range(rng.integers(1, 3)):
        mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
        done.append(mutation.__name__)
        data = mutation(data, rng) or b"\0"
    return "+".join(done), data


NODES = [None, True, -1, 0, 2**31, 10**30, 1.5, 1e308, float("nan"), "", "x", "../x", "\0", [], {}, [[]], {"a": 1}]


def mutate_json(text: bytes, rng: Generator) -> tuple[str, bytes]:
    """Replace, remove or repeat a value of a JSON document, or of one line of several."""
    lines = text.splitlines() if b"\n{" in text else [text]
    at = int(rng.integers(len(lines)))
    content = [json.loads(lines[at])]
    holder: Any = content
    key: Any = 0
    while isinstance(holder[key], list | dict) and len(holder[key]) and rng.random() < 0.8:
        holder = holder[key]
        key = list(holder)[rng.integers(len(holder))] if isinstance(holder, dict) else int(rng.integers(len(holder)))
    chance = rng.random()
    if chance < 0.15 and holder is not content:
        done = f"{key!r} removed"
        del holder[key]
    elif chance < 0.25:
        done, holder[key] = f"{key!r} twice", [holder[key], holder[key]]
    elif chance < 0.3:
        depth = int(10 ** rng.uniform(1, 4))
        lines[at] = b"[" * depth + b"]" * depth
        return f"nested {depth}", b"\n".join(lines) + b"\n" * (len(lines) > 1)
    else:
        new = NODES[rng.integers(len(NODES))]
        done, holder[key] = f"{key!r} is {new!r}", new
    lines[at] = json.dumps(content[0]).encode()
    return done, b"\n".join(lines) + b"\n" * (len(lines) > 1)


def mutate_tensors(data: bytes, rng: Generator) -> tuple[str, bytes]:
    """Damage the header or the numbers of a safetensors file below its checksum, as version 0.1.0 had none."""
    size = int.from_bytes(data[:8], "little")
    header, numbers = json.loads(data[8 : 8 + size]), data[8 + size :]
    texts = header.get("__metadata__", {})
    own = json.loads(texts.get("congruence", "{}"))
    own.pop("sha256", None)
    texts["congruence"] = json.dumps(own)
    chance = rng.random()
    if chance < 0.5:
        done, text = mutate_json(texts["congruence"].encode(), rng)
        texts["congruence"] = text.decode()
    elif chance < 0.75 and numbers:
        done, damaged = (zero_block if rng.random() < 0.3 else set_bytes).__name__, set_bytes(numbers, rng)
        numbers = damaged
    else:
        name = list(header)[rng.integers(len(header))]
        if name != "__metadata__":
            header[name]["dtype"] = str(rng.choice(["F16", "BF16", "F8_E4M3", "I64", "F32", "BOOL", "U8"]))
        done = f"dtype of {name}"
    if texts:
        header["__metadata__"] = texts
    text = json.dumps(header).encode()
    return done, len(text).to_bytes(8, "little") + text + numbers


def mutate_content(path: Path, data: bytes, rng: Generator) -> tuple[str, bytes]:
    """Damage the content of a file by what it holds."""
    try:
        if path.suffix in (".json", ".jsonl"):
            return mutate_json(data, rng)
        if path.suffix == ".safetensors":
            return mutate_tensors(data, rng)
    except ValueError:  # it was damaged before
        pass
    return mutate(data or b"\0", rng)


def mutate_file(path: Path, rng: Generator) -> str:
    """Damage a file in place; half of the time below its checksums, where it has them."""
    data = path.read_bytes()
    inside = rng.random() < 0.5
    if inside and path.name.endswith(".gz"):
        done, text = mutate(gzip.decompress(data), rng)
        data = gzip.compress(text, mtime=0)
    elif inside and zipfile.is_zipfile(path):
        done, data = _mutate_member(data, rng)
    elif inside and path.suffix in (".json", ".jsonl", ".safetensors"):
        done, data = mutate_content(path, data, rng)
    else:
        inside = False
        done, data = mutate(data, rng)
    path.write_bytes(data)
    return f"{done} inside" if inside else done


def _mutate_member(data: bytes, rng: Generator) -> tuple[str, bytes]:
    """Damage one member of an archive, and write the archive anew, so that its checksums hold."""
    done, written = "", io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(written, "w") as new:
        victim = rng.integers(len(old.infolist()))
        for at, member in enumerate(old.infolist()):
            content = old.read(member)
            if at == victim:
                done, content = mutate(content or b"\0", rng)
            new.writestr(member, content)
    return done, written.getvalue()


def mutate_folder(path: Path, rng: Generator) -> str:
    """Damage, lose or exchange files of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    victim, other = (files[rng.integers(len(files))] for _ in range(2))
    where = victim.relative_to(path)
    chance = rng.random()
    if chance < 0.1:
        victim.unlink()
        return f"{where} lost"
    if chance < 0.2:
        victim.write_bytes(other.read_bytes())
        return f"{where} is {other.relative_to(path)}"
    if chance < 0.25:
        victim.unlink()
        os.mkfifo(victim) if chance < 0.22 else victim.symlink_to("/etc/hostname" if chance < 0.24 else victim)
        return f"{where} is a pipe or a link"
    if not victim.stat().st_size:
        victim.write_bytes(b"\0")
    return f"{where} {mutate_file(victim, rng)}"
