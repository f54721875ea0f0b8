"""The paper's formulas against what arrays count that count what is done with them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import operations, records
from onlad import reference

SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))


@settings(max_examples=25, deadline=None)
@given(SIZES)
def test_counts_are_the_formulas(size):
    found = operations.count(*size)
    assert found["train_as_printed"] == operations.train(*size)
    assert found["train_here"] == operations.train_here(*size)
    assert found["train_fpelm"] == operations.train_fpelm(*size)
    assert found["predict"] == operations.predict(*size)
    assert found["space_parameter"] == operations.space(*size)["parameter"]
    assert found["space_train"] == operations.space(*size)["train"]


def counted(step):
    with operations.counting() as found:
        step()
    return found


def test_a_product_an_outer_product_and_an_inverse_count_as_the_paper_says():
    A, B = np.ones((2, 3)).view(operations.Counted), np.ones((3, 5))
    assert counted(lambda: A @ B).iterations == 2 * 3 * 5
    assert counted(lambda: B.T @ A.T).iterations == 2 * 3 * 5
    assert counted(lambda: np.outer(A[0], B[0])).iterations == 3 * 5
    K = np.eye(4).view(operations.Counted)
    assert counted(lambda: np.linalg.inv(K)).iterations == 4**3
    assert counted(lambda: np.linalg.solve(K, np.ones((4, 2)))).iterations == 4**3 + 4 * 4 * 2
    assert counted(lambda: 2 * A + 1).iterations == 0


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_chunk_counts_as_the_paper_says_less_what_symmetry_saves(k):
    n, N = 7, 4
    state = reference.State(*(p.view(operations.Counted) for p in reference.init(n, N)))
    X = np.random.default_rng(0).uniform(0, 1, (k, n)).view(operations.Counted)
    found = counted(lambda: reference.update_chunk(state, X, 0.99, "identity"))
    assert found.iterations == operations.chunk(n, N, k) - k * N**2
    assert operations.chunk(n, N, k) >= k * operations.chunk(n, N, 1)


def test_the_papers_order_of_operations_gives_the_same_state():
    state = reference.init(6, 4, seed=1)
    x = np.random.default_rng(0).uniform(0, 1, 6)
    printed, _ = operations.papers_step(state, x, 0.97)
    here = reference.update(state, x, 0.97, "identity")
    # The same sums in another order; P starts at 100 I.
    np.testing.assert_allclose(printed.P, here.P, rtol=0, atol=1e-12 * np.abs(here.P).max())
    np.testing.assert_allclose(printed.beta, here.beta, rtol=1e-9)


def test_the_printed_total_of_space_is_not_the_sum_of_its_parts():
    parts, printed = operations.space(512, 64), operations.space_printed(512, 64)
    assert sum(parts.values()) == 3 * 64**2 + (2 * 512 + 6) * 64 + 4 * 512 + 1
    assert sum(parts.values()) < printed


def test_stored_counts_are_what_is_counted():
    stored = {(r["n_features"], r["n_hidden"]): r for r in records.read("operations")}
    assert len(stored) == 12
    here = {"machine": "", "commit": ""}  # the counts are the same everywhere
    assert stored[128, 16] | here == operations.count(128, 16) | here
