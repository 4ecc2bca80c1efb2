"""Sparse matrices: as the arrays of kernels and of files, and with more rows and columns."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.checks import check_array, check_starts, file_error
from shortlist.core.ragged import read_only
from shortlist.kernels.postings import SparseRows


def pack_matrix(name: str, matrix: csr_array) -> dict[str, Any]:
    """A matrix as the arrays that `unpack_matrix` reads."""
    return {
        f"{name}.indptr": matrix.indptr.astype(np.int64),
        f"{name}.columns": matrix.indices.astype(np.int32),
        f"{name}.values": matrix.data.astype(np.float32),
    }


def unpack_matrix(name: str, arrays: dict[str, Any], n_rows: int, n_columns: int) -> csr_array:
    """A matrix with sorted columns; ModelFileError if it is not valid."""
    values = check_array(arrays, f"{name}.values", np.float32, (None,), limit=1e6)
    columns = check_array(
        arrays, f"{name}.columns", np.int32, (values.size,), low=0, high=max(n_columns - 1, 0)
    )
    indptr = check_starts(arrays, f"{name}.indptr", n_rows, values.size)
    row = np.repeat(np.arange(n_rows), np.diff(indptr))
    if ((np.diff(columns) <= 0) & (np.diff(row) == 0)).any():
        raise file_error(f"{name}.columns", "must ascend in every row")
    return csr_array((values, columns, indptr), shape=(n_rows, n_columns))


def resize_matrix(matrix: csr_array, n_rows: int, n_columns: int) -> csr_array:
    """The matrix with more empty rows and columns."""
    if not n_rows and not n_columns:
        return matrix
    indptr = np.append(matrix.indptr, np.full(n_rows, matrix.indptr[-1], matrix.indptr.dtype))
    shape = (matrix.shape[0] + n_rows, matrix.shape[1] + n_columns)
    return csr_array((matrix.data, matrix.indices, indptr), shape=shape)


def to_rows(matrix: csr_array) -> SparseRows:
    """A SciPy matrix as the arrays that kernels read."""
    return SparseRows(
        read_only(matrix.indptr.astype(np.int64)),
        read_only(matrix.indices.astype(np.int32)),
        read_only(matrix.data.astype(np.float32)),
    )
