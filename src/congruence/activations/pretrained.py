"""Transformers models from a folder or a hub; none of their code is run, and nothing is unpickled."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from congruence.activations import hub as hubs
from congruence.activations.hub import PIXELS, TOKENIZER, HubModel, check_weights
from congruence.arrays import listing
from congruence.checks import require
from congruence.errors import CongruenceWarning, InputError, one_sentence, warn_caller
from congruence.guards import (
    IMAGE_BYTES,
    TEXT_GROWTH,
    TOKENIZER_BYTES,
    check_folder,
    first_sentence,
    is_file,
    read_json,
    read_object,
    within_weights,
)
from congruence.memory import check_fits

SIDE = re.compile(r".*(size|height|width|edge)|\d+")  # settings of an image processor in pixels
Pieces = Sequence[Sequence[Mapping[str, str]]]  # of each text and token: the columns "token" and "context"


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Turns texts into token ids with their mask, and says which piece of a text a token is."""

    tokenizer: Any  # of transformers
    longest: int  # tokens of a text
    prompt: str = ""  # before each text
    lower: bool = False

    def __call__(self, texts: list[str], **more: Any) -> dict[str, Any]:
        """Token ids and mask, (texts, tokens)."""
        limit = {"truncation": self.longest < 10**9, "max_length": self.longest}
        batch = self.tokenizer(self._given(texts), padding=True, **limit, return_tensors="pt", **more)
        return {name: batch[name] for name in ("input_ids", "attention_mask", *(["offset_mapping"] if more else []))}

    def pieces(self, texts: list[str], around: int) -> Pieces | None:
        """For each token of each text its piece of the text, and `around` characters to both sides of it.

        None for tokenizers that do not know the place of a token (those written in Python).
        """
        if not getattr(self.tokenizer, "is_fast", False):
            return None

        def piece(text: str, a: int, b: int) -> dict[str, str]:
            context = {"context": f"{text[max(0, a - around) : a]}[{text[a:b]}]{text[b : b + around]}"}
            return {"token": text[a:b], **(context if around else {})}

        spans = self(texts, return_offsets_mapping=True)["offset_mapping"].tolist()
        return [[piece(text, a, b) for a, b in row] for text, row in zip(self._given(texts), spans, strict=True)]

    def _given(self, texts: list[str]) -> list[str]:
        whole = [self.prompt + text for text in texts] if self.prompt else texts
        return [text.lower() for text in whole] if self.lower else whole

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt, with a special token before it and without one after it."""
        if not self.prompt:
            return 0
        tokens = self.tokenizer(self._given([""])[0])["input_ids"]
        return len(tokens) - (tokens[-1] in self.tokenizer.all_special_ids)


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and the functions that prepare its inputs."""

    model: Any
    prepare: Callable[[Any], Any] | None  # for arrays: pixels, or token ids
    tokenize: Callable[[list[str]], Any] | None  # for texts; None without tokenizer.json
    images: dict[str, Any] = field(default_factory=dict)  # size, mean and std for `image_inputs`, if known
    processor: Callable[[], Any] | None = None  # opens the image processor of transformers
    default_layer: str | None = None  # the one that is the output of the model
    hub: HubModel | None = None  # name and commit, if it is from a hub
    name: str = "the model"

    @property
    def without_tokenizer(self) -> str:
        """How to add a missing tokenizer."""
        if self.hub is not None:
            fetch = f"'hf download {self.hub.name} tokenizer.json --revision {self.hub.commit}'"
            return f"{self.name} has no tokenizer.json; if the hub has one, run {fetch}"
        if self.name != "the model":
            return f"{self.name} has no tokenizer.json; save the tokenizer next to the model"
        return "the model has no tokenizer; give prepare, or (model, tokenize) as the model"


def as_pretrained(model: Any, revision: str | None = None) -> Pretrained:
    """Open a module, a pair (module, prepare), or the path or name of a transformers model."""
    if isinstance(model, str | Path):
        pretrained = load_pretrained(model, revision)
        if pretrained.hub is not None and revision is None:
            note = f"using the only commit of {model} in the cache: revision {pretrained.hub.commit}"
            warn_caller(note, CongruenceWarning)
        return pretrained
    if revision is not None:
        raise InputError("revision applies only to models of a hub, given as owner/name")
    if isinstance(model, Pretrained):
        return model
    if isinstance(model, tuple) and len(model) == 2:
        module, prepare = model
        if not callable(prepare):
            raise InputError(f"model must be (module, prepare) with a callable prepare; got a {type(prepare).__name__}")
        return Pretrained(module, prepare, prepare)
    return Pretrained(model, None, None)


def load_pretrained(folder: str | Path, revision: str | None = None) -> Pretrained:
    """Open a transformers model: a folder, as `save_pretrained` writes it, or a model of a hub at one commit.

    In a folder of sentence-transformers, pooling, dense layers and normalisation follow the transformers model, which
    is the layer ``transformer``; the layer ``embedding`` is what `encode` returns, with the folder's default prompt.

    Weights are float32, of the class that the folder names, so that layers are called as in training
    (``gpt_neox.layers.11``). Masked autoencoders see all patches in order. Folders whose weights are not
    safetensors, or that ask to run their own code, are refused.

    Parameters
    ----------
    folder : path, or str
        A folder, or the name of a model on a hub, ``owner/name``.
    revision : str, optional
        The 40 hex digits of a commit of the hub; see `find_model`.
    """
    hub, name = None, str(folder)
    if not os.path.isdir(folder) and hubs.is_hub_name(str(folder)):
        hub = hubs.find_model(str(folder), revision)
        folder = hub.folder
    elif revision is not None:
        raise InputError(f"revision applies only to models of a hub (owner/name), not to the folder {folder}")
    folder = Path(folder)
    if hub is None:
        place = folder.absolute()  # a snapshot in a cache of a hub has links into the folder of its model
        check_folder(folder, *([place.parents[1]] if place.parent.name == "snapshots" else []))
    require("torch", "extraction", "torch")
    root, modules = folder, hubs.module_folders(folder)
    folder = modules[0][1] if modules else folder
    config = hubs.check_model_folder(folder)
    transformers = require("transformers", "a folder of a model", "extract")
    with _quiet(transformers):
        model = _model(transformers, folder, config | ({"architectures": None} if modules else {}))
        tokenize = _tokenizer(transformers, folder, model) if is_file(folder / TOKENIZER) else None
    if modules:  # of sentence-transformers
        from congruence.activations.sentence_models import SentenceModel, build_steps, text_settings

        settings = text_settings(root, folder)
        if tokenize is not None:
            longest = settings["longest"] or tokenize.longest
            tokenize = replace(tokenize, longest=longest, prompt=settings["prompt"], lower=settings["lower"])
        steps = build_steps(modules, 0 if tokenize is None else tokenize.prompt_length)
        model = SentenceModel(model, steps).eval()
    found = Pretrained(model, _preparer(model), tokenize, _image_settings(folder), hub=hub, name=name)
    opener = partial(_image_processor, transformers, folder) if (folder / PIXELS).is_file() else None
    return replace(found, processor=opener, default_layer="embedding" if modules else None)


def _image_processor(transformers: Any, folder: Path) -> Any:
    """The image processor of a folder, in its form that needs Pillow only, unless its images are too large."""
    settings = read_object(folder / PIXELS, "settings")
    given = [(name, value) for name, value in hubs.entries(settings) if isinstance(value, int | float) and value > 0]
    if str(settings.get("image_processor_type")).startswith("Qwen"):  # these limit the area of an image
        given = [(name, math.sqrt(value) if name.endswith("est_edge") else value) for name, value in given]
    sides = [min(value, 1e9) for name, value in given if SIDE.fullmatch(name)]
    share = min((value for name, value in given if name == "crop_pct"), default=1)  # that is kept of a larger image
    side = round(max(sides, default=0) / min(max(share, 1e-9), 1))
    check_fits(folder / PIXELS, IMAGE_BYTES * side**2, f"an image of {side} x {side} pixels")
    pillow = {"backend": "pil"} if int(transformers.__version__.partition(".")[0]) > 4 else {"use_fast": False}
    try:
        with _quiet(transformers):
            return transformers.AutoImageProcessor.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, **pillow
            )
    except Exception as error:  # damaged settings raise anything
        raise InputError(
            f"the image processor of {folder} cannot be opened: {first_sentence(error)}; give size, mean and std"
        ) from error


def _model(transformers: Any, folder: Path, config: dict[str, Any]) -> Any:
    import torch

    named = config.get("architectures")
    kind: Any = getattr(transformers, str(named[0]), None) if named and isinstance(named, list) else None
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        kind = transformers.AutoModel
    safe = {"local_files_only": True, "trust_remote_code": False}
    with one_sentence(f"{folder} cannot be opened by transformers", first_sentence):  # damaged folders raise anything
        settings = transformers.AutoConfig.from_pretrained(str(folder), **safe)
        settings.use_cache = False  # only needed to generate text
        if hasattr(settings, "mask_ratio"):
            settings.mask_ratio = 0.0
        options = {"use_safetensors": True, "dtype": torch.float32, "output_loading_info": True}
        options["ignore_mismatched_sizes"] = True  # refused below, by name
        with within_weights(folder, check_weights(folder)):
            model, loaded = kind.from_pretrained(str(folder), config=settings, **options, **safe)
    missing = sorted(loaded["missing_keys"])
    if missing and named is None and all(name.startswith("pooler.") for name in missing):
        model.pooler, missing = None, []  # sentence-transformers pools tokens, and often saves none
    if missing:  # transformers would initialise them at random
        raise InputError(
            f"{folder} has no weights for {len(missing)} tensors of its config ({listing(missing)}); "
            "weights and config must belong to the same model"
        )
    wrong = sorted(str(key[0]) for key in loaded["mismatched_keys"])
    if wrong:
        raise InputError(
            f"{folder} has weights of the wrong shape for {len(wrong)} tensors ({listing(wrong)}); "
            "weights and config must belong to the same model"
        )
    return model.eval()


def _check_growth(path: Path) -> None:
    """Refuse a tokenizer whose replacements would fill the memory.

    One that has no character in common with the texts of earlier ones acts on the original text alone; the others
    multiply, also where what they replace lies across two of these texts.
    """
    settings = read_json(path, "a tokenizer", TOKENIZER_BYTES).get("normalizer") or {}
    steps = [settings, *(value for _, value in hubs.entries(settings) if isinstance(value, dict))]
    chains: list[tuple[str, int]] = []  # the text that each replacement inserts, and by how much it and others grow it
    for content, pattern in ((one["content"], one.get("pattern")) for one in steps if "content" in one):
        sought = pattern.get("String") if isinstance(pattern, dict) else None
        acts = [by for text, by in chains if not (isinstance(sought, str) and sought) or set(sought) & set(text)]
        chains.append((str(content), max(len(str(content)), 1) * (1 + sum(acts))))
    growth = sum(by for _, by in chains)
    if growth > TEXT_GROWTH:
        raise InputError(f"{path} would make texts {growth} times as long; at most {TEXT_GROWTH} times is allowed")


def _tokenizer(transformers: Any, folder: Path, model: Any) -> Tokenizer:
    with one_sentence(f"the tokenizer of {folder} cannot be opened", first_sentence):
        _check_growth(folder / TOKENIZER)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        tokenizer.padding_side = "right"  # on the left it would shift the positions of short texts
        if tokenizer.pad_token is None:  # padding is masked, so any token works
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token is None:
            raise InputError(f"the tokenizer of {folder} has no padding token (pad, eos or unk)")
        limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
        longest = min((int(limit) for limit in limits if limit is not None and limit >= 1), default=10**9)
    return Tokenizer(tokenizer, longest)


def _preparer(model: Any) -> Callable[[Any], Any]:
    import torch

    patches = getattr(getattr(model, "config", None), "mask_ratio", None)

    def prepare(rows: Any) -> dict[str, Any]:
        batch = {model.main_input_name: rows}
        if patches is not None and rows.ndim == 4:  # masked autoencoders order patches by this noise
            side = model.config.patch_size
            count = (rows.shape[2] // side) * (rows.shape[3] // side)
            batch["noise"] = torch.arange(count, dtype=torch.float32).expand(len(rows), count)
        return batch

    return prepare


def _image_settings(folder: Path) -> dict[str, Any]:
    """Size, mean and std of images from the folder's settings, as far as they are given."""
    if not (folder / PIXELS).is_file():
        return {}
    settings = read_object(folder / PIXELS, "settings")
    size = settings.get("crop_size") if settings.get("do_center_crop") else settings.get("size")
    if isinstance(size, dict):  # only squares are supported
        height = size.get("height", size.get("shortest_edge"))
        size = height if size.get("width", height) == height else None
    options = {"size": size} if type(size) is int and settings.get("do_resize", True) else {}
    if settings.get("do_normalize", True) and "image_mean" in settings and "image_std" in settings:
        options |= {"mean": settings["image_mean"], "std": settings["image_std"]}
    return options


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence progress bars and logs of transformers."""
    logs = transformers.utils.logging
    level, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(level)
        if bars:
            logs.enable_progress_bar()
