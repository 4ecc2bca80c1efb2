"""The one heavy sum of Newton's method, in one thread and one order, so that its bits never vary."""

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles


@kernel
def curvature_sum(rows: Doubles, weight: Doubles, out: Doubles) -> None:
    """out (n_columns, n_columns) += rowsᵀ · diag(weight) · rows; weight (n_rows,)."""
    n = rows.shape[1]
    for row in range(rows.shape[0]):
        x = rows[row]
        for a in range(n):
            scaled = weight[row] * x[a]
            if scaled != 0.0:
                line = out[a]
                for b in range(a + 1):
                    line[b] += scaled * x[b]
    for a in range(n):
        for b in range(a):
            out[b, a] = out[a, b]
