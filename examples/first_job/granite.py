# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small language model of Granite 3's architecture, written for PyTorch 1.13 and newer.

Sources: the architecture and its multipliers are those of the configurations of ibm-granite/granite-3.0-2b-base and
-8b-base; the tensors have the names that transformers' GraniteModel gives them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The model's sizes, and Granite 3's constants. A token is a byte.

    Granite 3.0 2B has 40 layers, 2048 wide, with 32 heads, 8 of keys, and ``intermediate`` 8192; its ``logits_scaling``
    is 8, of 8B 16. The attention multiplier of both is 1 / the size of a head.
    """

    layers: int = 4
    width: int = 128
    heads: int = 8
    key_heads: int = 2
    intermediate: int = 384
    context: int = 128
    vocabulary: int = 256
    rope_theta: float = 10000.0
    epsilon: float = 1e-5
    initial_deviation: float = 0.02
    embedding_multiplier: float = 12.0
    residual_multiplier: float = 0.22
    logits_scaling: float = 8.0

    @property
    def head(self) -> int:
        """Return the size of a head."""
        return self.width // self.heads


class RMSNorm(nn.Module):
    """Division by the root mean square, with a weight for each channel."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a matrix; Granite has no biases."""
    return nn.Linear(inputs, outputs, bias=False)


def rotated(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Return queries or keys (batch, heads, positions, head) with rotary position embeddings, of halves of a head."""
    half = x.shape[-1] // 2
    rates = theta ** (-torch.arange(half, device=x.device) / half)
    angles = torch.outer(torch.arange(x.shape[-2], device=x.device), rates)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


class Attention(nn.Module):
    """Causal attention in which several heads of queries share one of keys and values (GQA)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = linear(shape.width, shape.heads * shape.head)
        self.k_proj = linear(shape.width, shape.key_heads * shape.head)
        self.v_proj = linear(shape.width, shape.key_heads * shape.head)
        self.o_proj = linear(shape.heads * shape.head, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.view(*y.shape[:2], -1, self.shape.head).transpose(1, 2)

        group = self.shape.heads // self.shape.key_heads
        q = rotated(heads(self.q_proj(x)), self.shape.rope_theta)
        k = rotated(heads(self.k_proj(x)), self.shape.rope_theta).repeat_interleave(group, 1)
        v = heads(self.v_proj(x)).repeat_interleave(group, 1)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-2, -1) / self.shape.head).masked_fill(future, float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """The feed-forward part of a layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = linear(shape.width, shape.intermediate)
        self.up_proj = linear(shape.width, shape.intermediate)
        self.down_proj = linear(shape.intermediate, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and feed-forward, each added to its input by Granite's residual multiplier."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.residual_multiplier = shape.residual_multiplier
        self.input_layernorm = RMSNorm(shape)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape)
        self.mlp = SwiGLU(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.residual_multiplier * self.self_attn(self.input_layernorm(x))
        return x + self.residual_multiplier * self.mlp(self.post_attention_layernorm(x))


class Granite(nn.Module):
    """The model: tokens (batch, positions) to logits (batch, positions, vocabulary); both by the same matrix."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _layer in range(shape.layers))
        self.norm = RMSNorm(shape)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(parameter, std=shape.initial_deviation)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens) * self.shape.embedding_multiplier
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.embed_tokens.weight) / self.shape.logits_scaling
