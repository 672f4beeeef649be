"""The decoder of the Llama family: Llama 2/3, SmolLM2, Mistral, Qwen2/2.5 and Qwen3.

They differ in what a layer's weights hold (biases on q/k/v, norms on q and k) and in the config's numbers, not in the
order of operations. Weights come from a `WeightSource` under Hugging Face's names; q, k and v are fused into one
product, gate and up into another. Everything runs on a step's concatenated tokens; only attention knows of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import embedding, rms_norm, silu

from kvscope.engine.model.attention import AttentionMetadata, PagedKVCache, paged_attention
from kvscope.engine.model.config import ModelConfig
from kvscope.engine.model.linear import Linear, make_linear
from kvscope.engine.model.rotary import apply_rotary, rotary_tables
from kvscope.errors import ModelError


class WeightSource(Protocol):
    """A model's weights by Hugging Face's names, read one at a time."""

    description: str
    """The file or folder, for messages."""

    def names(self) -> Iterable[str]:
        """Returns all the names there are."""
        ...

    def tensor(self, name: str) -> torch.Tensor:
        """Returns one weight, of any float dtype. Raises `ModelError` where it is missing or damaged."""
        ...


@dataclass(slots=True)
class DecoderLayer:
    """One layer's weights."""

    input_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    """`[num_heads + num_kv_heads, head_dim]`: the norm's weight for each head of q and k."""
    attention_out: Linear
    post_attention_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """The model: token ids and a KV cache in, logits out."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding_weight: torch.Tensor,
        layers: list[DecoderLayer],
        final_norm: torch.Tensor,
        lm_head: Linear,
        rotary: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        self.config = config
        self.dtype = embedding_weight.dtype
        self.device = embedding_weight.device
        self.embedding_weight = embedding_weight
        self.layers = layers
        self.final_norm = final_norm
        self.lm_head = lm_head
        self.rotary = rotary
        """Cosines and sines, float32 `[num_positions, head_dim // 2]`."""
        cos, sin = (table.to(device=self.device, dtype=self.dtype) for table in rotary)
        self._cos = torch.cat([cos, cos], -1).unsqueeze(1)
        self._sin = sin.unsqueeze(1)

    def new_kv_cache(self, num_blocks: int, block_size: int) -> PagedKVCache:
        """Allocates a KV cache for this model."""
        return PagedKVCache(
            num_layers=self.config.num_hidden_layers,
            num_blocks=num_blocks,
            num_kv_heads=self.config.num_key_value_heads,
            block_size=block_size,
            head_dim=self.config.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, cache: PagedKVCache, metadata: AttentionMetadata
    ) -> torch.Tensor:
        """Writes the tokens' keys and values and returns their last hidden states, before the final norm.

        token_ids, positions: int64 `[num_tokens]`; returns `[num_tokens, hidden_size]`.
        """
        config = self.config
        norm_shape, eps = (config.hidden_size,), config.rms_norm_eps
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        hidden = embedding(token_ids, self.embedding_weight)
        for index, layer in enumerate(self.layers):
            normed = rms_norm(hidden, norm_shape, layer.input_norm, eps)
            hidden.add_(self._attend(index, layer, normed, cos, sin, cache, metadata))
            normed = rms_norm(hidden, norm_shape, layer.post_attention_norm, eps)
            gate, up = layer.gate_up(normed).chunk(2, -1)
            hidden.add_(layer.down(silu(gate).mul_(up)))
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns logits `[num_rows, vocab_size]` of hidden states `[num_rows, hidden_size]`, in the model's dtype."""
        return self.lm_head(rms_norm(hidden, (self.config.hidden_size,), self.final_norm, self.config.rms_norm_eps))

    def _attend(
        self,
        index: int,
        layer: DecoderLayer,
        normed: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        cache: PagedKVCache,
        metadata: AttentionMetadata,
    ) -> torch.Tensor:
        config = self.config
        num_heads, num_kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        heads = layer.qkv(normed).view(-1, num_heads + 2 * num_kv_heads, head_dim)
        qk, value = heads[:, : num_heads + num_kv_heads], heads[:, num_heads + num_kv_heads :]
        if layer.qk_norm is not None:
            qk = rms_norm(qk, (head_dim,), None, config.rms_norm_eps) * layer.qk_norm
        qk = apply_rotary(qk, cos, sin)
        cache.write(index, metadata.token_rows, qk[:, num_heads:], value)
        return layer.attention_out(paged_attention(qk[:, :num_heads], index, cache, metadata, head_dim**-0.5))


def build_decoder(
    config: ModelConfig,
    source: WeightSource,
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    on_layer: Callable[[int], None] = lambda num_done: None,
) -> Decoder:
    """Reads all weights, fused and in `dtype`; `on_layer` is told after each layer how many are done.

    Raises:
        ModelError: a weight is missing, has another shape than the config says, or is one the decoder has no use for.
    """
    return _DecoderBuilder(config, source, dtype, device).build(max_model_len, on_layer)


class _DecoderBuilder:
    """Takes weights out of a source, checks shapes, and notices what was never taken."""

    _UNUSED = (".rotary_emb.inv_freq", ".attention.masked_bias")

    def __init__(self, config: ModelConfig, source: WeightSource, dtype: torch.dtype, device: torch.device) -> None:
        self.config = config
        self.source = source
        self.dtype = dtype
        self.device = device
        self.remaining = set(source.names())

    def build(self, max_model_len: int, on_layer: Callable[[int], None]) -> Decoder:
        config = self.config
        vocab_shape = (config.vocab_size, config.hidden_size)
        embedding_weight = self.take("model.embed_tokens.weight", vocab_shape)
        layers = []
        for index in range(config.num_hidden_layers):
            layers.append(self.layer(index))
            on_layer(index + 1)
        final_norm = self.take("model.norm.weight", (config.hidden_size,))
        if config.tie_word_embeddings:
            self.remaining.discard("lm_head.weight")
            head_weight = embedding_weight
        else:
            head_weight = self.take("lm_head.weight", vocab_shape)
        divisors = None
        if "rope_freqs.weight" in self.remaining:
            divisors = self.take("rope_freqs.weight", (config.head_dim // 2,), torch.float32).cpu()
        self.refuse_the_rest()
        return Decoder(
            config,
            embedding_weight=embedding_weight,
            layers=layers,
            final_norm=final_norm,
            lm_head=make_linear(head_weight, None),
            rotary=rotary_tables(config, max_model_len, divisors),
        )

    def layer(self, index: int) -> DecoderLayer:
        config, prefix = self.config, f"model.layers.{index}."
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return DecoderLayer(
            input_norm=self.take(prefix + "input_layernorm.weight", (config.hidden_size,)),
            qkv=self.linear(
                [(attention + "q_proj", q_size), (attention + "k_proj", kv_size), (attention + "v_proj", kv_size)],
                config.hidden_size,
            ),
            qk_norm=self.qk_norm(attention) if config.has_qk_norm else None,
            attention_out=self.linear([(attention + "o_proj", config.hidden_size)], q_size),
            post_attention_norm=self.take(prefix + "post_attention_layernorm.weight", (config.hidden_size,)),
            gate_up=self.linear(
                [(mlp + "gate_proj", config.intermediate_size), (mlp + "up_proj", config.intermediate_size)],
                config.hidden_size,
            ),
            down=self.linear([(mlp + "down_proj", config.hidden_size)], config.intermediate_size),
        )

    def linear(self, parts: list[tuple[str, int]], in_features: int) -> Linear:
        """Stacks the parts' outputs. A bias that only some parts have is zero for the others."""
        weight = torch.cat([self.take(name + ".weight", (out, in_features)) for name, out in parts])
        if not any(name + ".bias" in self.remaining for name, _ in parts):
            return make_linear(weight, None)
        biases = [
            self.take(name + ".bias", (out,)) if name + ".bias" in self.remaining else weight.new_zeros(out)
            for name, out in parts
        ]
        return make_linear(weight, torch.cat(biases))

    def qk_norm(self, attention: str) -> torch.Tensor:
        head_dim = self.config.head_dim
        query = self.take(attention + "q_norm.weight", (head_dim,)).expand(self.config.num_attention_heads, -1)
        key = self.take(attention + "k_norm.weight", (head_dim,)).expand(self.config.num_key_value_heads, -1)
        return torch.cat([query, key])

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> torch.Tensor:
        if name not in self.remaining:
            raise ModelError(f"{self.source.description}: the weight {name} is missing; fetch the model again")
        self.remaining.remove(name)
        tensor = self.source.tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.source.description}: the weight {name} has shape {list(tensor.shape)}, the configuration says "
                f"{list(shape)}; weights and configuration are not of the same model"
            )
        return tensor.to(device=self.device, dtype=dtype or self.dtype)

    def refuse_the_rest(self) -> None:
        rest = sorted(name for name in self.remaining if not name.endswith(self._UNUSED))
        if rest:
            shown = ", ".join(rest[:3]) + (f" and {len(rest) - 3} more" if len(rest) > 3 else "")
            raise ModelError(
                f"{self.source.description}: weights that this decoder does not know ({shown}); the model is of a "
                "variant that is not supported"
            )
