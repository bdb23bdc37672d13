"""What a module is, by class and by structure: a table of matchers, a row a rule.

Rows are tried from the top and the first that answers wins. `register_matcher` puts a row of
the user's own in front. Rows look at classes, attributes and shapes, never at a library's
version; a class that no row knows is drawn from what runs inside it, or, where it has no
submodules, as a group with its class name.
"""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from ptoa_core.spec import BlockParams

from . import _compat
from .roles import Matcher, Role, own_role, register_matcher

__all__ = [
    "VARIANTS",
    "Matcher",
    "Role",
    "activation_of",
    "activation_role",
    "attention_by_attributes",
    "causal_of",
    "classify_module",
    "heads_of",
    "is_mlp_name",
    "kv_heads_of",
    "leaf_role",
    "mlp_by_attributes",
    "register_matcher",
    "set_activation",
]

VARIANTS = frozenset({"relu", "gelu", "tanh", "sigmoid", "silu"})


def _number(module: Any, *names: str) -> int | None:
    """The first of the attributes that is a whole number."""
    for name in names:
        found = getattr(module, name, None)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return None


def _configured(module: nn.Module, *names: str) -> int | None:
    """A whole number from the module, else from its ``config``."""
    found = _number(module, *names)
    return found if found is not None else _number(getattr(module, "config", None), *names)


_HEADS = (
    "num_heads",
    "num_attention_heads",
    "n_heads",
    "n_head",
    "nhead",
    "n_local_heads",
    "nheads",
    "num_head",
    "heads",
    "encoder_attention_heads",
)
_KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "n_kv_head",
    "n_local_kv_heads",
    "n_query_groups",
    "num_query_groups",
    "kv_heads",
)


def heads_of(module: nn.Module) -> int | None:
    """The number of attention heads that a module or its config says it has."""
    return _configured(module, *_HEADS)


def kv_heads_of(module: nn.Module) -> int | None:
    """The number of key and value heads that a module or its config says it has."""
    return _configured(module, *_KV_HEADS)


def causal_of(module: nn.Module) -> bool | None:
    """Whether an attention module says that it hides the future; None where it says nothing.

    Its own ``is_causal`` counts; else a model whose config is that of no decoder hides nothing.
    """
    for flag in ("is_causal", "causal"):
        told = getattr(module, flag, None)
        if isinstance(told, bool):
            return told
    for holder in (module, getattr(module, "config", None)):
        if getattr(holder, "is_decoder", None) is False:
            return False
    return None


# ── activations ──────────────────────────────────────────────────────────────

_ACTIVATION_CLASSES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu", nn.GELU: "gelu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.SiLU: "silu",
    nn.ReLU6: "relu6", nn.LeakyReLU: "leaky_relu", nn.ELU: "elu", nn.SELU: "selu", nn.CELU: "celu",
    nn.PReLU: "prelu", nn.RReLU: "rrelu", nn.Mish: "mish", nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid", nn.Hardtanh: "hardtanh", nn.Softplus: "softplus",
    nn.Softsign: "softsign", nn.LogSigmoid: "logsigmoid", nn.Threshold: "threshold", nn.GLU: "glu",
    nn.Softshrink: "softshrink", nn.Hardshrink: "hardshrink", nn.Tanhshrink: "tanhshrink",
}  # fmt: skip
# Words in the class names of other libraries' activations, the longer before the shorter.
_ACTIVATION_WORDS: tuple[tuple[str, str], ...] = (
    ("quickgelu", "quick_gelu"),
    ("relusquared", "relu2"),
    ("relu2", "relu2"),
    ("squaredrelu", "relu2"),
    ("leakyrelu", "leaky_relu"),
    ("relu6", "relu6"),
    ("gelu", "gelu"),
    ("relu", "relu"),
    ("silu", "silu"),
    ("swish", "silu"),
    ("mish", "mish"),
    ("hardswish", "hardswish"),
    ("sigmoid", "sigmoid"),
    ("tanh", "tanh"),
    ("softplus", "softplus"),
)
_NAMED_ACTIVATION = re.compile(
    r"(activation|gelu(new|tanh|fast|python)?|silu|swish|relu(2|6|squared)?|mish|tanh|sigmoid)$"
)


def activation_of(module: nn.Module) -> str | None:
    """The activation function that a module computes, or None where it is something else.

    Example:
        >>> activation_of(nn.LeakyReLU()), activation_of(nn.Linear(1, 1))
        ('leaky_relu', None)
    """
    for cls in type(module).__mro__:
        if cls in _ACTIVATION_CLASSES:
            return _ACTIVATION_CLASSES[cls]
    if module._modules or any(p is not None and p.ndim > 1 for p in module._parameters.values()):
        return None
    name = type(module).__name__.lower().replace("_", "")
    if not _NAMED_ACTIVATION.search(name):
        return None
    plain = name.removesuffix("activation")
    return next((act for word, act in _ACTIVATION_WORDS if word in name), plain or None)


def activation_role(name: str, class_name: str) -> Role:
    """How an activation is drawn: in the vocabulary, or as a group that says its name."""
    if name in VARIANTS:
        return Role("block", "activation", BlockParams(variant=name))
    return Role("block", "group", BlockParams(extra={"type": class_name, "activation": name}))


def _activation(module: nn.Module) -> Role | None:
    name = activation_of(module)
    return None if name is None else activation_role(name, type(module).__name__)


# ── one row each ─────────────────────────────────────────────────────────────


_TRANSPARENT = (nn.modules.dropout._DropoutNd, nn.Identity, nn.Flatten, nn.Unflatten)
_TRANSPARENT_NAME = re.compile(r"(Dropout|DropPath|StochasticDepth|Identity)$")


def _transparent(module: nn.Module) -> Role | None:
    if isinstance(module, _TRANSPARENT):
        return Role("transparent")
    if _TRANSPARENT_NAME.search(type(module).__name__) and next(module.parameters(), None) is None:
        return Role("transparent")
    return None


def _attention(module: nn.Module) -> Role | None:
    if not isinstance(module, nn.MultiheadAttention):
        return None
    params = BlockParams(d=module.embed_dim, heads=module.num_heads, bias=module.in_proj_bias is not None)
    params.extra["headDim"] = module.head_dim
    return Role("block", "attention", params)


def _linear(module: nn.Module) -> Role | None:
    if isinstance(module, nn.Linear) or (
        "Linear" in type(module).__name__ and _number(module, "in_features") is not None
    ):
        sizes = _number(module, "in_features"), _number(module, "out_features")
        bias = getattr(module, "bias", None)
        bias = bias() if callable(bias) else bias
        return Role("block", "linear", BlockParams(in_=sizes[0], out=sizes[1], bias=bias is not None))
    weight = getattr(module, "weight", None) if type(module).__name__ == "Conv1D" else None
    if weight is not None and weight.ndim == 2:
        return Role("block", "linear", BlockParams(in_=weight.shape[0], out=weight.shape[1], bias=True))
    return None


def _embedding(module: nn.Module) -> Role | None:
    if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return None
    params = BlockParams(vocab=module.num_embeddings, d=module.embedding_dim)
    if isinstance(module, nn.EmbeddingBag):
        params.extra["type"] = type(module).__name__
    return Role("block", "embedding", params)


def _norm(module: nn.Module) -> Role | None:
    if module._modules:
        return None
    for variant, classes in _compat.norm_classes().items():
        if isinstance(module, classes):
            shape: Any = module.normalized_shape
            bias = getattr(module, "bias", None) is not None
            return Role("block", "norm", BlockParams(d=int(shape[-1]), variant=variant, bias=bias))
    return None


_OTHER_NORM = re.compile(r"(Batch|Group|Instance|LocalResponse)Norm", re.IGNORECASE)


def _other_norm(module: nn.Module) -> Role | None:
    name = type(module).__name__
    if module._modules or not _OTHER_NORM.search(name):
        return None
    extra: dict[str, Any] = {"type": name}
    channels = _number(module, "num_features", "num_channels")
    if channels is not None:
        extra["channels"] = channels
    return Role("block", "group", BlockParams(extra=extra))


def _sizes(module: nn.Module) -> dict[str, Any]:
    """Kernel, stride and channels of a convolution or pooling, as numbers or lists of numbers."""
    found: dict[str, Any] = {}
    for key, name in (("kernel", "kernel_size"), ("stride", "stride"), ("channels", "out_channels")):
        size = getattr(module, name, None)
        if isinstance(size, int):
            found[key] = size
        elif isinstance(size, tuple) and all(isinstance(part, int) for part in size):
            found[key] = size[0] if len(set(size)) == 1 else list(size)
    return found


_LEAF_CLASSES = (
    nn.modules.conv._ConvNd, nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.modules.pooling._LPPoolNd, nn.RNNBase, nn.RNNCellBase, nn.Upsample, nn.Bilinear,
    nn.PixelShuffle, nn.CosineSimilarity,
)  # fmt: skip


def _leaf(module: nn.Module) -> Role | None:
    if not isinstance(module, _LEAF_CLASSES):
        return None
    extra = {"type": type(module).__name__, **_sizes(module)}
    hidden = _number(module, "hidden_size")
    return Role("block", "group", BlockParams(hidden=hidden, extra=extra))


_STATE_SPACE = ("A_log", "dt_proj", "time_decay", "time_maa_x", "time_mix_key")


def _state_space(module: nn.Module) -> Role | None:
    """Mixers with a state (Mamba, RWKV): their own parameters tell, whatever the class is called."""
    if any(name in module._parameters or name in module._modules for name in _STATE_SPACE):
        return Role("block", "group", BlockParams(extra={"type": type(module).__name__}))
    return None


def _positional_convolution(module: nn.Module) -> Role | None:
    if (
        re.search(r"Pos\w*Conv|Conv\w*Pos", type(module).__name__)
        and next(module.children(), None) is not None
    ):
        return Role("block", "posenc", BlockParams(extra={"positions": "convolutional"}))
    return None


def _softmax(module: nn.Module) -> Role | None:
    if isinstance(module, (nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.Softmin)):
        extra = {} if isinstance(module, nn.Softmax) else {"type": type(module).__name__}
        return Role("block", "softmax", BlockParams(extra=extra))
    return None


def _loss(module: nn.Module) -> Role | None:
    if isinstance(module, nn.modules.loss._Loss):
        return Role("block", "loss", BlockParams(extra={"type": type(module).__name__}))
    return None


_TABLE: list[Matcher] = [
    Matcher("linear", _linear),
    Matcher("norm", _norm),
    Matcher("transparent", _transparent),
    Matcher("attention", _attention),
    Matcher("embedding", _embedding),
    Matcher("other norm", _other_norm),
    Matcher("activation", _activation),
    Matcher("softmax", _softmax),
    Matcher("loss", _loss),
    Matcher("convolution, pooling, recurrent", _leaf),
    Matcher("state space", _state_space),
    Matcher("positional convolution", _positional_convolution),
]
# The row that answered for a class of torch's own, asked first for the next module of that class.
_usual_row: dict[type[nn.Module], Matcher] = {}


def leaf_role(module: nn.Module) -> Role | None:
    """The role that a row gives to the module; None where no row knows it."""
    role = own_role(module)
    if role is not None:
        return role
    cls = type(module)
    usual = _usual_row.get(cls)
    role = None if usual is None else usual.match(module)
    if role is not None:
        return role
    for matcher in _TABLE:
        role = matcher.match(module)
        if role is not None:
            if cls.__module__.startswith("torch.nn.modules."):
                _usual_row[cls] = matcher
            return role
    return None


# ── whole sublayers, by their attributes ─────────────────────────────────────

_PROJECTION = re.compile(
    r"(^|_)(q|k|v|qkv|kv|c_attn|query|key|value|query_key_value|in_proj|wq|wk|wv|q_lin|w_q|q_proj|to_q|to_qkv)(_|$)",
    re.IGNORECASE,
)
_MLP_NAME = re.compile(
    r"mlp|feed_?forward|ffn|(^|\.)ff(n|_|$)|expert|densegateddense|denseact|intermediate", re.IGNORECASE
)


def is_mlp_name(name: str) -> bool:
    """Whether a class or attribute name says feed-forward."""
    return bool(_MLP_NAME.search(name))


def _linears(module: nn.Module) -> list[tuple[str, BlockParams]]:
    """The linear layers that are a module's own children."""
    rows = [(name, _linear(child)) for name, child in module.named_children()]
    return [(name, role.params) for name, role in rows if role is not None]


def attention_by_attributes(module: nn.Module) -> Role | None:
    """An attention sublayer told by a head count beside query, key and value projections."""
    # The names first: asking every module for a head count is slow.
    if not any(map(_PROJECTION.search, module._modules.keys())):
        return None
    heads = heads_of(module)
    named = [(name, params) for name, params in _linears(module) if _PROJECTION.search(name)]
    if heads is None or not named or heads < 1:
        return None
    # A model's config counts heads for all of its layers: a lone input projection is no sign of attention.
    if _number(module, *_HEADS) is None and all("in_proj" in name for name, _ in named):
        return None
    projections = [params for _, params in named]
    params = BlockParams(d=projections[0].in_, heads=heads, bias=projections[0].bias)
    params.causal = causal_of(module)
    if params.causal is None and re.search(r"causal|masked", type(module).__name__, re.IGNORECASE):
        params.causal = True
    kv_heads = kv_heads_of(module)
    if kv_heads is not None and kv_heads != heads:
        params.extra["kvHeads"] = kv_heads
    return Role("block", "attention", params)


def mlp_by_attributes(module: nn.Module) -> Role | None:
    """A feed-forward sublayer told by its name, two or three linears and nothing else of weight."""
    linears = [params for _, params in _linears(module)]
    if len(linears) not in (2, 3) or not is_mlp_name(type(module).__name__):
        return None
    owned = sum(1 for child in module.children() if next(child.parameters(), None) is not None)
    if owned != len(linears):
        return None
    first, last = linears[0], linears[-1]
    hidden = first.out if len(linears) == 2 else max(first.out or 0, first.in_ or 0)
    params = BlockParams(d=first.in_, hidden=hidden, bias=first.bias)
    if len(linears) == 2 and last.in_ != first.out:
        params.hidden, params.extra["gated"] = last.in_, True
    elif len(linears) == 3:
        params.extra["gated"] = True
    name = next((act for child in module.children() if (act := activation_of(child))), None)
    set_activation(params, name)
    return Role("block", "mlp", params)


def set_activation(params: BlockParams, name: str | None) -> None:
    """Say an activation as the variant where it is one, else as the extension param."""
    if name in VARIANTS:
        params.variant = name
    elif name is not None:
        params.extra["activation"] = name


def _norm_by_name(module: nn.Module) -> Role | None:
    """A norm written by hand, told by its class name and a weight of one dimension."""
    variant = next(
        (
            v
            for word, v in (("rmsnorm", "rmsnorm"), ("layernorm", "layernorm"))
            if word in type(module).__name__.lower().replace("_", "")
        ),
        None,
    )
    weight: Any = getattr(module, "weight", None)
    if variant is None or next(module.children(), None) is not None or getattr(weight, "ndim", 0) != 1:
        return None
    return Role(
        "block",
        "norm",
        BlockParams(d=weight.shape[0], variant=variant, bias=getattr(module, "bias", None) is not None),
    )


def classify_module(module: nn.Module) -> Role:
    """What one module is drawn as, judged alone, without running it.

    Args:
        module: Any module.

    Returns:
        Its role. A module that no row of the table knows is a ``container`` where it has
        submodules, else a ``group`` block with its class name.

    Source:
        README.md, "How a model becomes blocks".

    Example:
        >>> classify_module(nn.Linear(2, 3)).params.out
        3
        >>> classify_module(nn.Sequential(nn.ReLU())).role
        'container'
    """
    role = (
        leaf_role(module)
        or attention_by_attributes(module)
        or mlp_by_attributes(module)
        or _norm_by_name(module)
    )
    if role is not None:
        return role
    if next(module.children(), None) is not None:
        return Role("container")
    return Role("block", "group", BlockParams(extra={"type": type(module).__name__}))
