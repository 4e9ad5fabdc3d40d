"""What stands where in a call of an operator that is listed by name only? Positional parameters beyond ``input other``.

``opaque.py`` lists operators that are linear in nothing by name; labels need to know which argument is the dim. Written
like ``OpRule.params``; an operator that is not here has ``input other``.
"""

from __future__ import annotations

_BY_PARAMS: dict[str, str] = {
    "input dim": """
        glu cumprod cummax cummin logcumsumexp softmax log_softmax softmin _softmax _log_softmax _safe_softmax
        special.softmax special.log_softmax count_nonzero
    """,
    "input mask dim": "_masked_softmax",
    "input dim keepdim": """
        logsumexp special.logsumexp amax amin argmax argmin median nanmedian mode prod all any nansum nanmean
        nuclear_norm frobenius_norm hash_tensor
    """,
    "input dim unbiased keepdim": "var std var_mean std_mean",
    "input other keepdim": "max min",
    "input q dim keepdim": "quantile nanquantile",
    "input p dim keepdim": "norm native_norm",
    "input ord dim keepdim": "linalg.vector_norm linalg.norm linalg.matrix_norm",
    "input k dim keepdim": "kthvalue topk",
    "input dim descending": "sort argsort",
    "input p dim maxnorm": "renorm",
    "input p dim eps": "normalize",
    "input other p": "dist",
    "x1 x2 p": "cdist",
    "input p": "pdist",
    "input mat1 mat2": "_addmm_activation",
    "input boundaries": "bucketize",
    "input output_size": """
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool1d_with_indices
        adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
    """,
    "sorted_sequence values": "searchsorted",
    "input num_classes": "one_hot",
    "x1 x2 p eps keepdim": "pairwise_distance",
    "x1 x2 dim eps": "cosine_similarity",
    "input size alpha beta k": "local_response_norm",
    "input weight bias running_mean running_var training": "native_batch_norm _native_batch_norm_legit",
    "input bins min max": "histc",
    "input mask indices fill": "_unsafe_masked_index",
    "elements test_elements": "isin",
    "input weight": "prelu",
    "v g dim": "_weight_norm _weight_norm_interface",
    "v pow dim": "norm_except_dim",
    "input scale zero_point axis": "fake_quantize_per_channel_affine",
}

POSITIONS: dict[str, str] = {name: params for params, names in _BY_PARAMS.items() for name in names.split()}
