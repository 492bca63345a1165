"""A demonstration compares a run with known classes, and the classes change nothing of the run."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import koncord
from koncord.model.globalmodel import GlobalModel
from koncord.runs.record import RunRecord
from koncord.session.demonstration import crossing_of, demonstrate, nested_model


@pytest.fixture(scope="module")
def shown():
    return koncord.data.penguins()


@pytest.fixture(scope="module")
def result(shown):
    return demonstrate(shown, {site: f"{site}.csv" for site in shown.tables})


def test_the_run_is_that_of_federated_clustering(shown, result):
    fitted = koncord.FederatedClustering(standardize=True, random_state=0).fit(dict(shown.tables))
    assert fitted.n_clusters_ == result.model.n_clusters
    assert np.array_equal(np.concatenate(fitted.labels_), result.model.predict(shown.pooled))


def test_classes_change_nothing_of_the_run(shown, result):
    mixed = tuple(
        replace(kind, of_rows={site: rows[::-1] for site, rows in kind.of_rows.items()}) for kind in shown.classes
    )
    other = demonstrate(replace(shown, classes=mixed), {})
    assert np.array_equal(other.model.centers, result.model.centers)
    assert other.record.truth.ari != result.record.truth.ari


def test_a_crossing_counts_every_row_of_known_class(shown, result):
    """Against plain loops."""
    for kind, crossing in zip(shown.classes, result.record.truth.crossings, strict=True):
        plain = np.zeros((result.model.n_clusters, len(kind.names)), dtype=int)
        clusters, classes = [], []
        for site, table in shown.tables.items():
            for row, known in zip(table, kind.of_rows[site], strict=True):
                if known >= 0:
                    cluster = int(result.model.predict(row[None])[0])
                    plain[cluster, known] += 1
                    clusters.append(cluster)
                    classes.append(known)
        assert np.array_equal(plain, crossing.counts)
        assert crossing.ari == pytest.approx(adjusted_rand_score(classes, clusters))
        assert crossing.rows == len(clusters)
        assert crossing.at_home == plain.max(axis=1).sum()
    assert [each.rows for each in result.record.truth.crossings] == [342, 333]


def test_a_cluster_without_rows_has_no_class(shown, result):
    far = replace(
        result.model,
        centers=np.concatenate([result.model.centers, [[99.0] * 4]]),
        weights=np.append(result.model.weights, 0.0),
        holdings=np.pad(result.model.holdings, ((0, 0), (0, 1))),
        gaussians=None,
    )
    crossing = crossing_of(shown, shown.classes[0], far)
    assert crossing.homes[-1] is None
    assert sum(crossing.counts[-1]) == 0


def test_all_rows_are_compared_with_the_coarser_classes(result):
    truth = result.record.truth
    assert truth.ari == truth.crossings[0].ari


def test_the_answer_with_another_number_of_clusters_is_asked_for_where_the_model_has_one(result):
    class Nested(GlobalModel):
        available = range(1, 4)

        def at(self, k):
            return ("cut at", k)

    fields = {name: getattr(result.model, name) for name in result.model.__dataclass_fields__}
    assert nested_model(Nested(**fields), 3) == ("cut at", 3)
    assert nested_model(Nested(**fields), 9) is None


def test_a_record_with_a_truth_is_read_as_it_was_written(result, tmp_path):
    result.record.save(tmp_path / "run.json")
    assert RunRecord.load(tmp_path / "run.json").truth == result.record.truth
