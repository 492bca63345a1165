import re

import numpy as np
import pytest

from koncord import FederatedClustering, KnownCounts
from koncord.report.page import page
from koncord.report.treefigure import MOST_DRAWN, heights_of, k_ticks, spans, tree_drawing, tree_table


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    places = np.array([[0, 0], [4, 0], [20, 0], [20, 4.5]], dtype=float)
    sites = {f"s{at}": places[rng.integers(4, size=300)] + rng.normal(size=(300, 2)) for at in range(4)}
    return FederatedClustering(KnownCounts(1), random_state=0, standardize=False).fit(sites)


def test_the_drawing_has_every_join_with_its_distance(fitted):
    tree = fitted.model_.tree
    drawn = str(tree_drawing(fitted.model_))
    assert tree.n_leaves <= MOST_DRAWN
    assert drawn.count('class="ring branch"') == (2 * tree.n_leaves - 1) + (tree.n_leaves - 1)
    shown = re.findall(r'class="axis"[^>]*>(\d+\.\d)<', drawn)
    assert sorted(shown) == sorted(f"{each:.1f}" for each in tree.apart)
    assert 'role="img"' in drawn
    assert "aria-label=" in drawn
    assert re.findall(r'class="label"[^>]*>(\d+)<', drawn) == ["0", "1", "2", "3"]


def test_branches_do_not_cross_and_every_level_has_as_many_as_it_says(fitted):
    tree = fitted.model_.tree
    heights = heights_of(tree, tree.n_leaves)
    for join, (one, other) in enumerate(tree.joins.tolist()):
        node = tree.n_leaves + join
        assert min(heights[one], heights[other]) < heights[node] < max(heights[one], heights[other])
        low, high = sorted((heights[one], heights[other]))
        inside = set(tree.leaves_of(node))
        assert all(leaf in inside for leaf in range(tree.n_leaves) if low <= heights[leaf] <= high)
    for k in range(1, tree.n_leaves + 1):
        at_k = [node for node in heights if spans(tree, node, tree.n_leaves)[0] <= k <= spans(tree, node, 99)[1]]
        assert sorted(at_k) == sorted(tree.nodes_at(k).tolist())


def test_the_table_says_which_of_the_found_clusters_are_joined(fitted):
    rows = {row[0]: row[1:] for row in tree_table(fitted.model_).rows}
    assert rows["4"][1] == "0, 1, 2, 3"
    assert sorted(len(part.split("+")) for part in rows["2"][1].split(", ")) == [2, 2]
    assert rows["1"] == ["", "0+1+2+3"]
    assert "in 2 parts" in rows["5"][1]


def test_ticks_name_the_ends_and_the_found_number():
    assert k_ticks(5, 3) == [1, 2, 3, 4, 5]
    assert k_ticks(24, 9) == [1, 5, 9, 15, 20, 24]


def test_the_page_shows_the_tree_and_names_nobody_stable_that_one_site_holds(fitted, tmp_path):
    text = page(fitted.model_, fitted.record_)
    assert "Fewer and more clusters" in text
    assert "draws of the sites with replacement" in text
    rng = np.random.default_rng(1)
    own = {"a": rng.normal(0, 1, (200, 2)), "b": rng.normal(0, 1, (200, 2))}
    own["b"] = np.concatenate([own["b"], rng.normal(15, 1, (100, 2))])
    alone = FederatedClustering(KnownCounts(1), random_state=0).fit(own)
    assert "not testable" in page(alone.model_, alone.record_)
