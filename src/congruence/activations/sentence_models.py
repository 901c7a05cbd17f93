"""Models of sentence-transformers: pooling, dense layers and normalisation after a transformers model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from congruence.activations.hub import PROMPTS, TEXT, check_weights
from congruence.errors import InputError
from congruence.guards import read_object, reading, within_weights

SENTENCE = "sentence_embedding"  # what modules after the pooling read and write
MODES = {  # of a pooling, in the order in which they are joined, by the name of their older settings
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class SentenceModel(nn.Module):  # type: ignore[misc]
    """A transformers model and the modules after it; the output of its layer `embedding` is that of `encode`."""

    main_input_name = "input_ids"

    def __init__(self, transformer: Any, steps: Mapping[str, Any]) -> None:
        super().__init__()
        self.transformer, self.config = transformer, transformer.config
        self.steps = list(steps)
        for name, step in steps.items():
            self.add_module(name, step)
        self.embedding = nn.Identity()

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        """The embeddings of texts, (n, d)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        x = self.transformer(input_ids=input_ids, attention_mask=mask).last_hidden_state  # (n, tokens, d)
        for name in self.steps:
            step = getattr(self, name)
            x = step(x, mask) if isinstance(step, TokenPooling) else step(x)
        return self.embedding(x)


class TokenPooling(nn.Module):  # type: ignore[misc]
    """Join one or more poolings of the tokens that are not padding, and not in the prompt if that is left out."""

    def __init__(self, modes: Sequence[str], prompt: int = 0) -> None:
        super().__init__()
        self.modes, self.prompt = tuple(modes), prompt

    def forward(self, tokens: Any, mask: Any) -> Any:
        """The pooled tokens, (n, tokens, d) to (n, modes * d); padding is on the right."""
        kept = mask.clone()
        kept[:, : self.prompt] = 0
        weights = kept[:, :, None].to(tokens.dtype)
        total, count = (tokens * weights).sum(1), weights.sum(1).clamp(min=1e-9)
        rows = torch.arange(len(tokens), device=tokens.device)
        places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)  # from 1, so that 0 is no token
        pooled = []
        for mode in self.modes:
            if mode == "cls":
                pooled.append(tokens[rows, kept.int().argmax(1)])
            elif mode == "max":
                pooled.append(tokens.masked_fill(weights == 0, -torch.inf).amax(1))
            elif mode == "mean":
                pooled.append(total / count)
            elif mode == "mean_sqrt_len_tokens":
                pooled.append(total / count.sqrt())
            elif mode == "weightedmean":
                rising = weights * places[None, :, None].to(tokens.dtype)
                pooled.append((tokens * rising).sum(1) / rising.sum(1).clamp(min=1e-9))
            else:  # lasttoken
                pooled.append(tokens[rows, (kept * places).argmax(1)])
        return torch.cat(pooled, -1)


class Dense(nn.Module):  # type: ignore[misc]
    """A linear map and an activation, with the names of weights that sentence-transformers has."""

    def __init__(self, settings: Mapping[str, Any], activation: Any) -> None:
        super().__init__()
        sizes = settings["in_features"], settings["out_features"]
        self.linear = nn.Linear(*sizes, bias=bool(settings.get("bias", True)))
        self.activation = activation
        self.add = bool(settings.get("use_residual", False))
        if self.add and sizes[0] != sizes[1]:
            self.residual = nn.Linear(*sizes, bias=False)

    def forward(self, x: Any) -> Any:
        """The transformed embeddings."""
        out = self.activation(self.linear(x))
        return out + (self.residual(x) if hasattr(self, "residual") else x) if self.add else out


class Normalize(nn.Module):  # type: ignore[misc]
    """Embeddings divided by their length."""

    def forward(self, x: Any) -> Any:
        """The embeddings, of length 1."""
        return nn.functional.normalize(x, dim=-1)


def text_settings(root: Path, folder: Path) -> dict[str, Any]:
    """How texts become tokens: `longest` (None if not set), `lower` and the `prompt` before each text.

    `root` is the folder of the whole model, `folder` that of its transformer, often the same.
    """
    settings = _settings(folder / TEXT)
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise InputError(f"{folder / TEXT} has the task {task!r}; only feature-extraction is supported")
    prompts = _settings(root / PROMPTS)
    name, known = prompts.get("default_prompt_name"), prompts.get("prompts") or {}
    with reading(root / PROMPTS, "prompts"):
        prompt = known.get(name) or ""
        if name is not None and name not in known:
            raise InputError(f"{root / PROMPTS} names a prompt {name!r} that it does not have")
        if not isinstance(prompt, str):
            raise InputError(f"the prompt {name!r} in {root / PROMPTS} must be a text; got {prompt!r}")
    longest = settings.get("max_seq_length")
    if longest is not None and (not isinstance(longest, int) or longest < 1):
        raise InputError(f"max_seq_length in {folder / TEXT} must be an integer of at least 1; got {longest!r}")
    return {"longest": longest, "lower": bool(settings.get("do_lower_case")), "prompt": prompt}


def build_steps(modules: Sequence[tuple[str, Path]], prompt_length: int) -> dict[str, Any]:
    """The modules after the transformer, by name: pooling, dense, normalize, ...; a second dense one is dense_2."""
    steps: dict[str, Any] = {}
    for kind, folder in modules[1:]:
        settings = _settings(folder / "config.json")
        try:
            with within_weights(folder, check_weights(folder)) if kind in ("Dense", "LayerNorm") else nullcontext():
                step = _build(kind, settings, folder, prompt_length)
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the module {folder} cannot be opened: {str(error).splitlines()[-1].strip()}") from error
        same = sum(name.partition("_")[0] == kind.lower() for name in steps)
        steps[kind.lower() if not same else f"{kind.lower()}_{same + 1}"] = step.eval()
    return steps


def _build(kind: str, settings: Mapping[str, Any], folder: Path, prompt_length: int) -> Any:
    for name in ("module_input_name", "module_output_name"):
        if settings.get(name) not in (None, SENTENCE):
            raise InputError(f"{name} of {folder} must be {SENTENCE}; got {settings[name]!r}")
    if kind == "Pooling":
        return TokenPooling(_modes(settings, folder), 0 if settings.get("include_prompt", True) else prompt_length)
    if kind == "Normalize":
        return Normalize()
    if kind == "Dropout":
        return nn.Dropout(settings.get("dropout", 0.2))
    if kind == "LayerNorm":
        return _load(nn.Sequential(OrderedDict(norm=nn.LayerNorm(settings["dimension"]))), folder)
    name = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = getattr(nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
    if not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise InputError(f"activation_function of {folder} must be a module of torch.nn; got {name!r}")
    return _load(Dense(settings, activation()), folder)


def _modes(settings: Mapping[str, Any], folder: Path) -> list[str]:
    given = settings.get("pooling_mode")
    if given is None:
        given = [mode for name, mode in MODES.items() if settings.get(name)] or ["mean"]
    modes = [given] if isinstance(given, str) else list(given)
    unknown = [mode for mode in modes if mode not in MODES.values()]
    if unknown or not modes:
        raise InputError(f"pooling_mode of {folder} must be among {', '.join(MODES.values())}; got {given!r}")
    return modes


def _settings(path: Path) -> dict[str, Any]:
    return read_object(path, "settings") if path.is_file() else {}


def _load(module: Any, folder: Path) -> Any:
    from safetensors.torch import load_file

    with reading(path := folder / "model.safetensors", "weights"):
        weights = {name: value.float() for name, value in load_file(path).items()}
    module.load_state_dict(weights)
    return module
