"""Calls that look at a tensor without computing a tensor: at shape, dtype, storage and hooks, or at its values.

Those that look at no value are free on tensors of any type, so that a program with a type error can be printed,
inspected and saved. Those that hand a value to Python are checked where they do, because what they return has no type;
operators whose result's *shape* depends on values (``nonzero``) are elsewhere.
"""

from __future__ import annotations

from ..schema import Kind, OpRule

_GETTERS = """
    shape dtype device layout ndim itemsize nbytes name grad_dtype output_nr
    grad grad_fn _grad _grad_fn requires_grad retains_grad is_leaf volatile _base _cdata _version
    _backward_hooks _post_accumulate_grad_hooks _python_dispatch _has_symbolic_sizes_strides
    is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_nested is_quantized is_sparse is_sparse_csr
    is_vulkan is_xla is_xpu __cuda_array_interface__
"""
_METHODS = """
    __len__ __hash__ __dir__ __repr__ __str__ __format__ __reduce_ex__ __setstate__ __dlpack_device__
    size stride storage_offset dim ndimension nelement numel dim_order element_size get_device storage untyped_storage
    storage_type data_ptr const_data_ptr _typed_storage
    is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_pinned is_same_size
    is_set_to is_shared is_signed is_coalesced is_storage is_tensor _is_view
    requires_grad_ share_memory_ retain_grad register_hook register_post_accumulate_grad_hook backward record_stream
    sparse_dim dense_dim _dimI _dimV _nnz _coalesced_ _nested_tensor_size _nested_tensor_storage_offsets
    _nested_tensor_strides _clear_non_serializable_cached_data
    qscheme q_scale q_zero_point q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
    result_type can_cast promote_types broadcast_shapes get_default_dtype is_grad_enabled _set_grad_enabled
    set_printoptions save typename autocast _has_compatible_shallow_copy_type
    sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum _sym_int _sym_sqrt _sym_acos _sym_asin _sym_atan
    _sym_cos _sym_cosh _sym_sin _sym_sinh _sym_tan _sym_tanh sym_size sym_stride sym_numel sym_storage_offset
"""


_ONE = "item tolist numpy is_nonzero __bool__ __nonzero__ __int__ __long__ __float__ __index__ __complex__ __array__"
_SHARED = "__dlpack__"
"""Hands the memory itself to whoever asks, as ``numpy`` does."""
_MORE = "__contains__ _local_scalar_dense _assert_async _functional_assert_async apply_"
_TWO = "equal allclose"
_ASKED = "_is_all_true _is_any_true"
"""Asked of a tensor right before Python decides, as ``torch.distributions`` does when it validates its arguments."""

RULES = (
    *(OpRule(op, "", kind=Kind.METADATA, law="looks at no value") for op in f"{_GETTERS} {_METHODS}".split()),
    *(
        OpRule(op, "input", kind=Kind.VALUE, law="hands the value to Python")
        for op in f"{_ONE} {_SHARED} {_MORE} {_ASKED}".split()
    ),
    *(OpRule(op, "input other", kind=Kind.VALUE, law="hands a comparison to Python") for op in _TWO.split()),
)
