"""Small models built from transformers configurations, for `optimise`: next token, masked patches, classes of images.

Each wraps a `net` of transformers, which can be saved and opened like any other, and has the arguments with which
`congruence extract` reads its representations: the dotted names of its layers, the pooling and the inputs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from congruence.activations.layers import activations
from congruence.activations.pooling import Pooling
from congruence.arrays import Float
from congruence.checks import require
from congruence.errors import InputError
from congruence.rows.devices import GENERATORS

ENLARGED = 2  # factor by which images for a ResNet are enlarged: its first layers reduce the resolution four times
CHUNK = 250  # rows per forward pass of `embed`
GREY, SPREAD = 0.5, 0.25  # mean and scale by which pixels in [0, 1] are standardised


class TransformersModel(nn.Module):  # type: ignore[misc]
    """A net of transformers with a loss.

    `layers` are the names of its representations in order; the last is the penultimate layer of the net, one step
    before the outputs. `pool` and `skip` are those of `congruence extract`.
    """

    pool, skip = "mean", 0
    net: Any
    ends: tuple[str, str]  # the names of the first layer and of the penultimate one of the net
    blocks: str  # a pattern for the names of blocks between them, which differ between versions of transformers

    @property
    def layers(self) -> tuple[str, ...]:
        """The dotted names of the layers: the first, every block but the last, and the penultimate one of the net."""
        blocks = [name for name, _ in self.net.named_modules() if re.fullmatch(self.blocks, name)]
        return (self.ends[0], *blocks[:-1], self.ends[1])

    def inputs(self, rows: Any) -> dict[str, Any]:
        """The keyword arguments of the net for rows of data."""
        raise NotImplementedError

    def outputs(self, rows: Any, layer: Any) -> Any:
        """The outputs for rows, (n, ...), given their representations in the penultimate layer, (n, d)."""
        raise NotImplementedError

    def loss(self, *batch: Any) -> Any:
        """The loss that `optimise` minimises."""
        raise NotImplementedError

    @property
    def head(self) -> tuple[Any, Any] | None:
        """Weights (classes, d) and biases of the linear layer after the penultimate one; None if there is none."""
        return None

    def save(self, folder: str | Path) -> None:
        """Write the net as transformers does, so that `congruence extract` opens the folder."""
        logs = _transformers().utils.logging
        bars = logs.is_progress_bar_enabled()
        logs.disable_progress_bar()
        try:
            self.net.save_pretrained(folder)
        finally:
            if bars:
                logs.enable_progress_bar()

    def whole(self) -> Any:
        """A context in which the net takes whole inputs, even if training masks some of them."""
        return contextlib.nullcontext()

    def embed(self, rows: Any, names: Sequence[str], pooling: Pooling) -> list[Float]:
        """The activations of layers for rows, pooled as by `congruence extract`, each (n, d) float32."""
        device = str(next(self.parameters()).device)
        layers: list[list[Float]] = [[] for _ in names]
        with self.whole():
            for start in range(0, len(rows), CHUNK):
                inputs = self.inputs(rows[start : start + CHUNK])
                pooled = activations(self.net, inputs, tuple(names), pooling, start=start, device=device)
                for values, name in zip(layers, names, strict=True):
                    values.append(pooled[name].values)
        return [np.concatenate(values) for values in layers]


class NextToken(TransformersModel):
    """A GPT-NeoX that predicts the next token of a window of tokens; its penultimate layer is the final norm.

    `width` is that of the residual stream, `depth` the number of blocks with `heads` attention heads each.
    """

    pool = "patch"  # one position of each window, so that rows do not depend on each other
    ends, blocks = ("gpt_neox.embed_in", "gpt_neox.final_layer_norm"), r"gpt_neox\.layers\.\d+"

    def __init__(self, *, vocabulary: int, length: int, width: int, depth: int, heads: int, seed: int = 0) -> None:
        super().__init__()
        transformers = _transformers()
        config = transformers.GPTNeoXConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=length,
            use_cache=False,
        )
        self.net = _build(transformers.GPTNeoXForCausalLM, config, seed)
        self.skip = length // 4  # positions with little text before them
        # A mask of four axes is used as it is, without inspecting the data, so that a step can be recorded as a CUDA
        # graph.
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril(), persistent=False)

    def inputs(self, rows: Any) -> dict[str, Any]:
        """Windows of tokens (n, length)."""
        return {"input_ids": torch.as_tensor(rows).long()}

    def outputs(self, rows: Any, layer: Any) -> Any:
        """Logits (n, vocabulary)."""
        return self.net.lm_head(layer)

    def loss(self, *batch: Any) -> Any:
        """The mean cross-entropy of the next token, in nats."""
        tokens = batch[0].long()
        length = tokens.shape[1]
        mask = self.causal[:length, :length].expand(len(tokens), 1, length, length)
        logits = self.net(input_ids=tokens, attention_mask=mask).logits[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    @property
    def head(self) -> tuple[Any, Any]:
        """The unembedding, which has no bias."""
        weight = self.net.lm_head.weight.detach()
        return weight, weight.new_zeros(len(weight))


class MaskedPatches(TransformersModel):
    """A ViT masked autoencoder; its representation is the mean over all patches of the output of the encoder.

    Images have `side` x `side` pixels and patches `patch` x `patch`, of which the share `hidden` is masked in training.
    `width` is that of the encoder, of `depth` blocks; the decoder has half the width and two blocks.
    """

    skip = 1  # the class token
    ends, blocks = ("vit.embeddings", "vit.layernorm"), r"vit\.(encoder\.layer|layers)\.\d+"

    def __init__(
        self,
        *,
        side: int,
        patch: int,
        channels: int,
        width: int,
        depth: int,
        heads: int,
        hidden: float = 0.75,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if side % patch:
            raise InputError(f"patch must divide the side of {side} pixels; got {patch}")
        transformers = _transformers()
        config = transformers.ViTMAEConfig(
            image_size=side,
            patch_size=patch,
            num_channels=channels,
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            decoder_hidden_size=width // 2,
            decoder_num_hidden_layers=2,
            decoder_num_attention_heads=heads,
            decoder_intermediate_size=2 * width,
            mask_ratio=hidden,
        )
        self.net = _build(transformers.ViTMAEForPreTraining, config, seed)
        self.patches = (side // patch) ** 2

    def inputs(self, rows: Any) -> dict[str, Any]:
        """Images (n, channels, side, side), uint8, with their patches in order."""
        pixels = _pixels(rows)
        order = torch.arange(self.patches, dtype=torch.float32, device=pixels.device)
        return {"pixel_values": pixels, "noise": order.expand(len(pixels), -1)}

    def outputs(self, rows: Any, layer: Any) -> Any:
        """The predictions of masked patches, the same patches for every model, (n, masked, pixels).

        Predictions of visible patches are not outputs: the loss does not depend on them.
        """
        generator = torch.Generator().manual_seed(0)
        noise = torch.rand(len(rows), self.patches, generator=generator)
        where = next(self.net.parameters()).device
        out = self.net(pixel_values=_pixels(rows).to(where), noise=noise.to(where))
        return out.logits[out.mask.bool()].reshape(len(rows), -1, out.logits.shape[2])

    def loss(self, *batch: Any) -> Any:
        """The mean squared error of the masked patches."""
        return self.net(pixel_values=_pixels(batch[0])).loss

    def paint(self, tokens: Any, decoder: Any) -> Any:
        """The images, (n, patches, pixels), that a decoder makes of tokens (n, patches + 1, width) in order."""
        order = torch.arange(self.patches, device=tokens.device).expand(len(tokens), -1)
        return decoder(tokens, order).logits

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Mask no patches inside the block."""
        before = self.net.config.mask_ratio
        self.net.config.mask_ratio = 0.0
        try:
            yield
        finally:
            self.net.config.mask_ratio = before


class ImageClasses(TransformersModel):
    """A ResNet-18 classifier of small images, enlarged twice; the penultimate layer is the pooled one.

    `width` is the number of channels of the first stage; the last has eight times as many, which is the width of the
    representation (64 and 512 in a ResNet-18).
    """

    ends, blocks = ("resnet.embedder", "resnet.pooler"), r"resnet\.encoder\.stages\.\d+"

    def __init__(self, *, channels: int, classes: int, width: int = 64, seed: int = 0) -> None:
        super().__init__()
        transformers = _transformers()
        config = transformers.ResNetConfig(
            num_channels=channels,
            embedding_size=width,
            hidden_sizes=[width, 2 * width, 4 * width, 8 * width],
            depths=[2, 2, 2, 2],
            layer_type="basic",
            num_labels=classes,
        )
        self.net = _build(transformers.ResNetForImageClassification, config, seed)

    def inputs(self, rows: Any) -> dict[str, Any]:
        """Images (n, channels, side, side), uint8."""
        return {"pixel_values": functional.interpolate(_pixels(rows), scale_factor=ENLARGED, mode="nearest")}

    def outputs(self, rows: Any, layer: Any) -> Any:
        """Logits (n, classes)."""
        return self.net.classifier[1](layer)

    def loss(self, *batch: Any) -> Any:
        """The mean cross-entropy of the class, in nats."""
        logits = self.net(**self.inputs(batch[0])).logits
        return functional.cross_entropy(logits.float(), batch[1])

    @property
    def head(self) -> tuple[Any, Any]:
        """The linear classifier."""
        linear = self.net.classifier[1]
        return linear.weight.detach(), linear.bias.detach()


def _transformers() -> Any:
    return require("transformers", "a model built from a configuration", "extract")


def _build(kind: Any, config: Any, seed: int) -> Any:
    with GENERATORS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config)


def _pixels(rows: Any) -> Any:
    return (torch.as_tensor(rows).float() / 255 - GREY) / SPREAD
