"""What torch's functions mean to a picture, as tables: a function's name and its role.

Names are normalised by `function_name`: ``torch.add``, ``Tensor.__add__``, ``operator.add``
and ``Tensor.add_`` are all ``add``, so that a row covers every spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = [
    "ACTIVATIONS",
    "HANDED_OUT",
    "LEAF_FUNCTIONS",
    "LINEAR",
    "LOSSES",
    "MATMUL",
    "METADATA",
    "METADATA_ARGUMENTS",
    "NORMS",
    "QUIET",
    "REGROUP",
    "SDPA",
    "SOFTMAX",
    "Written",
    "function_name",
    "may_write",
    "words",
    "written_by",
]


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set: long rows of names stay readable.

    Example:
        >>> sorted(words("relu gelu"))
        ['gelu', 'relu']
    """
    return frozenset(text.split())


# They answer with sizes, flags or numbers, or make a tensor from nothing but those of another.
METADATA = words(
    """
    size shape dim ndim ndimension numel stride device dtype layout is_floating_point is_complex
    item tolist zeros_like ones_like empty_like full_like rand_like randn_like randint_like
    new_zeros new_ones new_empty new_full new_tensor getattr result_type finfo
    """
)
# Arguments of which only shape or dtype is read.
METADATA_ARGUMENTS: dict[str, tuple[int | str, ...]] = {
    "type_as": (1, "other"),
    "expand_as": (1, "other"),
    "view_as": (1, "other"),
    "reshape_as": (1, "other"),
    "to": (1, "other"),
}
# Calls so cheap and so common that they are let through without a look.
QUIET = words(
    """
    size shape dim ndim ndimension numel nelement stride storage_offset device dtype layout itemsize
    element_size is_floating_point is_complex is_contiguous is_cuda is_cpu is_mps is_xpu is_meta
    is_sparse is_sparse_csr is_quantized is_nested is_leaf is_inference is_signed is_pinned is_conj
    is_neg is_mkldnn is_shared is_same_size get_device requires_grad requires_grad_ item tolist
    __len__ __bool__ __int__ __float__ __index__ __hash__ __repr__ __format__ __contains__ __iter__
    __dir__ _version names has_names data_ptr storage untyped_storage _typed_storage numpy __array__
    __dlpack__ grad_fn grad register_hook retain_grad output_nr _backward_hooks allclose equal
    is_tensor __reduce_ex__ __deepcopy__ _is_view is_same_size is_nonzero can_cast result_type
    is_storage _base name retains_grad is_ipu is_hpu is_vulkan is_maia is_coalesced dense_dim
    sparse_dim real_dtype __cuda_array_interface__ __torch_dispatch__ manual_seed
    """
)

ACTIVATIONS: dict[str, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "relu6": "relu6",
    "leaky_relu": "leaky_relu",
    "elu": "elu",
    "selu": "selu",
    "celu": "celu",
    "prelu": "prelu",
    "rrelu": "rrelu",
    "mish": "mish",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "hardtanh": "hardtanh",
    "softplus": "softplus",
    "softsign": "softsign",
    "logsigmoid": "logsigmoid",
    "threshold": "threshold",
    "glu": "glu",
    "erf": "gelu",
}
SOFTMAX = frozenset({"softmax", "log_softmax", "_softmax", "softmin", "gumbel_softmax"})
SDPA = frozenset(
    {"scaled_dot_product_attention", "flex_attention", "flash_attn_func", "flash_attn_varlen_func"}
)
LINEAR = frozenset({"linear"})
MATMUL = frozenset({"matmul", "bmm", "mm", "baddbmm", "addmm", "einsum", "mv", "tensordot"})
NORMS: dict[str, str | None] = {
    "layer_norm": "layernorm",
    "rms_norm": "rmsnorm",
    "batch_norm": None,
    "group_norm": None,
    "instance_norm": None,
    "native_layer_norm": "layernorm",
}
LOSSES = words(
    """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div ctc_loss margin_ranking_loss hinge_embedding_loss
    cosine_embedding_loss triplet_margin_loss poisson_nll_loss gaussian_nll_loss soft_margin_loss
    multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
    """
)
# Functions that deserve a block of their own although version 1 has no kind for them.
LEAF_FUNCTIONS = words(
    """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d _convolution convolution
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d lp_pool1d lp_pool2d interpolate upsample grid_sample fft_rfft fft_irfft
    fft_fft fft_ifft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 stft istft lstm gru rnn_tanh rnn_relu
    fft_fftn fft_ifftn fft_rfftn fft_irfftn
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell quantized_lstm quantized_gru bilinear embedding_bag cdist
    """
)
# Nothing but a new arrangement, a cast, or a copy of the same numbers.
REGROUP = words(
    """
    view reshape transpose permute t contiguous flatten unflatten squeeze unsqueeze expand expand_as
    view_as reshape_as swapaxes swapdims movedim moveaxis clone detach to type type_as float half
    double bfloat16 long int bool cpu cuda data T mT H mH getitem split chunk unbind tensor_split
    select narrow slice dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout identity
    repeat repeat_interleave tile roll flip as_strided view_as_real view_as_complex real imag pad
    diagonal index_select gather take_along_dim unfold atleast_1d atleast_2d atleast_3d broadcast_to
    ravel rename align_to as_subclass alias positive copy setitem requires_grad masked_select take
    detach_ resolve_conj resolve_neg checkpoint pixel_shuffle pixel_unshuffle channel_shuffle
    """
)

# They hand out the memory itself, which code outside of torch may then write to.
HANDED_OUT = frozenset({"numpy", "__array__", "__dlpack__"})

_OPERATORS = {
    "iadd": "add",
    "radd": "add",
    "isub": "sub",
    "rsub": "sub",
    "imul": "mul",
    "rmul": "mul",
    "multiply": "mul",
    "truediv": "div",
    "itruediv": "div",
    "rtruediv": "div",
    "rdiv": "div",
    "idiv": "div",
    "divide": "div",
    "true_divide": "div",
    "rmatmul": "matmul",
    "imatmul": "matmul",
    "subtract": "sub",
    "ipow": "pow",
    "rpow": "pow",
    "concat": "cat",
    "concatenate": "cat",
    "hstack": "cat",
    "vstack": "cat",
    "embedding_renorm": "embedding",
    "special_softmax": "softmax",
    "special_log_softmax": "log_softmax",
}


def _raw_name(func: Any) -> str:
    """The name a function or a property getter was defined under."""
    packet = getattr(func, "overloadpacket", None)
    name = getattr(func if packet is None else packet, "__name__", None)
    if name in ("__get__", "__set__"):
        name = getattr(func.__self__, "__name__", name)
    return str(name if name is not None else getattr(func, "_opname", type(func).__name__))


def function_name(func: Any) -> str:
    """The plain name of a torch function, method, operator or property.

    Example:
        >>> import operator, torch
        >>> [function_name(f) for f in (torch.add, torch.Tensor.__iadd__, torch.relu_, operator.matmul)]
        ['add', 'add', 'relu', 'matmul']
    """
    name = func if isinstance(func, str) else _raw_name(func)
    if name.startswith("__") and name.endswith("__"):
        bare = name[2:-2]
        return _OPERATORS.get(bare, bare if bare in _DUNDER else name)
    if name.endswith("_") and not name.startswith("_"):
        name = name.rstrip("_")
    if name == "grad" and getattr(func, "__module__", None) == "torch.autograd":
        return "autograd_grad"  # unlike the attribute, it makes something
    return _OPERATORS.get(name, name)


_DUNDER = words(
    """
    add sub mul matmul pow neg abs and or xor invert mod floordiv eq ne lt le gt ge getitem setitem
    """
)


# Functions of two buffers of statistics that they may update.
_STATISTICS: dict[str, tuple[tuple[int, str], ...]] = {
    "batch_norm": ((1, "running_mean"), (2, "running_var"), (3, "running_mean"), (4, "running_var")),
    "instance_norm": ((1, "running_mean"), (2, "running_var"), (3, "running_mean"), (4, "running_var")),
}
Written = Callable[[tuple[Any, ...], dict[str, Any]], Iterable[Any]]


def _out(_args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
    """What a function writes that has at most an ``out``."""
    return (kwargs["out"],) if "out" in kwargs else ()


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
    """What a function writes that writes in place."""
    return (*args[:1], kwargs.get("self"), kwargs.get("input"), kwargs.get("out"))


def _at(places: tuple[tuple[int, str], ...]) -> Written:
    """What a function writes that writes certain arguments."""

    def written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
        found = [args[place] if place < len(args) else kwargs.get(name) for place, name in places]
        return (*found, kwargs.get("out"))

    return written


def _if_inplace(place: int) -> Written:
    """What a function writes that has a flag ``inplace``."""

    def written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
        flag = args[place] if place < len(args) else kwargs.get("inplace", False)
        return _first(args, kwargs) if flag is True else ()

    return written


def _embedding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
    """What a look-up writes: with ``max_norm`` it renormalises the rows that it reads."""
    limited = kwargs.get("max_norm") is not None or (len(args) > 3 and args[3] is not None)
    return (*args[:2], kwargs.get("weight")) if limited else ()


def _schema_places(func: Any) -> tuple[tuple[int, str], ...]:
    """The arguments that an operator's schema says are written, over all of its overloads."""
    overloads = [getattr(func, name) for name in func.overloads()] if hasattr(func, "overloads") else [func]
    return tuple(
        (place, argument.name)
        for overload in overloads
        if (schema := getattr(overload, "_schema", None)) is not None
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _inplace_place(func: Any) -> int | None:
    """Where a Python function of torch takes its flag ``inplace``."""
    code = getattr(func, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    return names.index("inplace") if "inplace" in names else None


def written_by(func: Any) -> Written:
    """What a torch function writes, as a function of its arguments; None among it means nothing.

    Told by names, by operator schemas and by the flag ``inplace``, before the function runs.

    Example:
        >>> import torch
        >>> list(written_by(torch.add)((1, 2), {})), list(written_by(torch.Tensor.add_)((1, 2), {}))[0]
        ([], 1)
    """
    if places := _schema_places(func):
        return _at(places)
    raw, name = _raw_name(func), function_name(func)
    if name in _STATISTICS:
        return _at(_STATISTICS[name])
    if name in ("embedding", "embedding_bag"):
        return _embedding
    dunder = raw.startswith("__")
    odd = ("__invert__", "__index__", "__int__", "__iter__")
    if (dunder and (raw == "__setitem__" or (raw.startswith("__i") and raw not in odd))) or raw in HANDED_OUT:
        return _first
    if (not dunder and raw.endswith("_")) or getattr(func, "__name__", "") == "__set__":
        return _first
    place = _inplace_place(func)
    return _out if place is None else _if_inplace(place)


def may_write(written: Written) -> bool:
    """Whether a function writes to more than an ``out``."""
    return written is not _out
