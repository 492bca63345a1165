import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koncord.kernels.tree import ClusterTree


@st.composite
def trees(draw):
    """A tree of random joins."""
    n = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    there, joins = list(range(n)), []
    while len(there) > 1:
        one, other = rng.choice(len(there), 2, replace=False)
        joins.append((there[one], there[other]))
        there = [node for node in there if node not in joins[-1]] + [n + len(joins) - 1]
    weights = list(rng.dirichlet(np.ones(n)))
    for one, other in joins:
        weights.append(weights[one] + weights[other])
    return ClusterTree(
        joins=np.array(joins, dtype=np.int64).reshape(-1, 2),
        apart=rng.uniform(1, 4, n - 1),
        centers=rng.normal(size=(2 * n - 1, 2)),
        weights=np.array(weights),
    )


@given(trees())
def test_every_clustering_has_its_number_of_clusters_and_each_is_nested_in_the_next(tree):
    for k in range(1, tree.n_leaves + 1):
        labels = tree.labels_at(k)
        assert sorted(set(labels.tolist())) == list(range(k))
        assert tree.weights[tree.nodes_at(k)].sum() == pytest.approx(1.0)
        assert [labels.tolist().index(cluster) for cluster in range(k)] == sorted(
            labels.tolist().index(cluster) for cluster in range(k)
        )
        if k > 1:
            assert len(set(zip(labels.tolist(), tree.labels_at(k - 1).tolist(), strict=True))) == k
            assert tree.apart_at(k) == tree.apart[tree.n_leaves - k]
    assert tree.apart_at(1) is None


def test_a_clustering_that_the_tree_does_not_have_is_refused():
    tree = ClusterTree(
        joins=np.array([[0, 1]]), apart=np.array([2.0]), centers=np.zeros((3, 1)), weights=np.array([0.5, 0.5, 1.0])
    )
    for k in (0, 3):
        with pytest.raises(ValueError, match=f"'k' must be from 1 to 2, the number of leaves; got {k}"):
            tree.nodes_at(k)


@pytest.mark.parametrize("joins", [[[0, 0], [2, 3]], [[0, 4], [1, 2]], [[0, 1], [2, 4]], [[0, 1], [0, 3]]])
def test_joins_that_are_no_tree_are_refused(joins):
    with pytest.raises(ValueError, match="'joins' must take every node but the last once"):
        ClusterTree(joins=np.array(joins), apart=np.zeros(2), centers=np.zeros((5, 1)), weights=np.ones(5))
