"""Systems of a few linear equations."""

from __future__ import annotations


def solved(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Solve a positive definite system, by elimination; both arguments are changed."""
    size = len(vector)
    for i in range(size):
        pivot = matrix[i][i]
        for j in range(i + 1, size):
            factor = matrix[j][i] / pivot
            if factor:
                row, upper = matrix[j], matrix[i]
                for k in range(i, size):
                    row[k] -= factor * upper[k]
                vector[j] -= factor * vector[i]
    for i in reversed(range(size)):
        rest = sum(matrix[i][k] * vector[k] for k in range(i + 1, size))
        vector[i] = (vector[i] - rest) / matrix[i][i]
    return vector
