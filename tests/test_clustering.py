import pickle

import numpy as np
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import koncord
from koncord import ASM, Consensus, FederatedClustering, FedGEM, KFed, KnownCounts, KoncordError
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.protocol.setup import common_scale, describe, order_of
from koncord.report.page import page


class Frame:
    """A table with named columns, as a data frame has."""

    def __init__(self, X, columns):
        self.X, self.columns = np.asarray(X), list(columns)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.X, dtype=dtype)


@pytest.fixture
def sites(blobs):
    """Three sites that hold two of three separated clusters each, and the truth."""
    held = {"west": [[0, 0], [9, 0]], "east": [[9, 0], [0, 9]], "mid": [[0, 0], [0, 9]]}
    return {name: blobs(centers, 60, seed=at)[0] for at, (name, centers) in enumerate(held.items())}


def fit(sites, **options):
    given = {"standardize": False, "random_state": 3, **options}
    return FederatedClustering(ASM(), FedGEM(upsilon=2), **given).fit(sites)


def test_three_sites_of_two_clusters_each_are_three_clusters(sites):
    fitted = fit(sites)
    assert fitted.n_clusters_ == 3
    assert fitted.local_counts_ == [2, 2, 2]
    assert fitted.sites_ == ["west", "east", "mid"]
    assert [len(labels) for labels in fitted.labels_] == [120, 120, 120]
    true = np.array([[0, 0], [9, 0], [0, 9]])
    gaps = np.linalg.norm(fitted.cluster_centers_[:, None] - true, axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2]
    assert gaps.min(axis=1).max() < 0.5
    np.testing.assert_array_equal(fitted.predict(sites["east"]), fitted.labels_[1])
    np.testing.assert_allclose(fitted.model_.weights, 1 / 3)
    assert fitted.model_.holdings.sum(axis=1).tolist() == [120, 120, 120]


def test_the_order_in_which_named_sites_are_given_changes_nothing(sites):
    one = fit(sites)
    two = fit({name: sites[name] for name in ("mid", "west", "east")})
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    by_name = dict(zip(two.sites_, two.labels_, strict=True))
    for name, labels in zip(one.sites_, one.labels_, strict=True):
        np.testing.assert_array_equal(labels, by_name[name])


def test_the_same_seed_gives_the_same_bits_and_a_clone_is_fit_alike(sites):
    federation = FederatedClustering(ASM(), FedGEM(), random_state=5)
    one, two = clone(federation).fit(sites), clone(federation).fit(sites)
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)


def test_adding_a_site_leaves_the_other_sites_streams_alone(sites):
    estimator = KMeans(2, n_init=1, init="random")
    one = FederatedClustering(estimator, FedGEM(upsilon=0, n_rounds=1), random_state=0, standardize=False).fit(sites)
    more = {**sites, "aaa": sites["mid"] + 50}
    two = FederatedClustering(estimator, FedGEM(upsilon=0, n_rounds=1), random_state=0, standardize=False).fit(more)
    for name in sites:
        assert len(one.model_.components[name]) == len(two.model_.components[name])


def test_unnamed_clients_keep_their_order_beyond_nine(blobs):
    X, _ = blobs([[0, 0]], 20)
    fitted = FederatedClustering(
        KnownCounts(list(range(1, 13))), FedGEM(upsilon=1), random_state=0, standardize=False
    ).fit([X] * 12)
    assert fitted.local_counts_ == list(range(1, 13))
    assert fitted.sites_ == sorted(fitted.sites_)


def test_known_counts_may_go_by_name(sites):
    counts = {"west": 1, "east": 2, "mid": 3}
    fitted = FederatedClustering(KnownCounts(counts), FedGEM(upsilon=1), random_state=0, standardize=False).fit(sites)
    assert dict(zip(fitted.sites_, fitted.local_counts_, strict=True)) == counts


def test_columns_are_matched_by_name(sites):
    straight = {name: Frame(X, ["a", "b"]) for name, X in sites.items()}
    turned = {**straight, "east": Frame(sites["east"][:, ::-1], ["b", "a"])}
    one, two = fit(straight), fit(turned)
    assert two.model_.columns == ("b", "a")  # those of the first site by name
    np.testing.assert_allclose(one.cluster_centers_, two.cluster_centers_[:, ::-1])
    for name in sites:
        np.testing.assert_array_equal(one.predict(straight[name]), two.predict(turned[name]))
    with pytest.raises(ValueError, match="lacks the columns b"):
        two.predict(Frame(sites["mid"], ["a", "c"]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "c"], "The columns of site 'west' are not those of site 'east': it lacks b and adds c"),
        (["a"], "it lacks b"),
        (["a", "b", "c"], "it adds c"),
    ],
)
def test_a_site_with_other_columns_is_refused_by_name(sites, columns, message):
    tables = {name: Frame(X, ["a", "b"]) for name, X in sites.items()}
    tables["west"] = Frame(np.zeros((5, len(columns))), columns)
    with pytest.raises(KoncordError) as caught:
        fit(tables)
    assert message in str(caught.value)


def test_an_arrow_table_has_names_of_columns_and_not_its_data_for_them(sites):
    arrow = {name: pa.table({"a": X[:, 0], "b": X[:, 1]}) for name, X in sites.items()}
    batches = {name: table.to_batches()[0] for name, table in arrow.items()}
    plain = fit(sites)
    for tables in (arrow, batches):
        found = fit(tables)
        assert found.model_.columns == ("a", "b")
        np.testing.assert_array_equal(found.cluster_centers_, plain.cluster_centers_)
        turned = arrow["east"].select(["b", "a"])
        np.testing.assert_array_equal(found.predict(turned), plain.predict(sites["east"]))
    with pytest.raises(ValueError, match="lacks the columns b"):
        found.predict(arrow["mid"].select(["a"]))


def test_common_columns_are_those_that_all_sites_have(sites):
    rng = np.random.default_rng(0)
    tables = {name: Frame(X, ["a", "b"]) for name, X in sites.items()}
    plain = fit(tables)
    noisy = Frame(np.column_stack([rng.normal(size=len(sites["west"])), sites["west"][:, ::-1]]), ["noise", "b", "a"])
    found = fit({**tables, "west": noisy}, common_columns=True)
    assert found.model_.columns == ("a", "b")
    np.testing.assert_array_equal(found.cluster_centers_, plain.cluster_centers_)
    np.testing.assert_array_equal(found.predict(noisy), plain.predict(tables["west"]))
    assert found.model_.info["left_out_columns"] == {"noise": ["west"]}


def test_federated_standardization_is_that_of_the_pooled_rows():
    rng = np.random.default_rng(0)
    tables = {
        name: rng.normal(1e6, 3, size=(n, 3)) + at for at, (name, n) in enumerate({"a": 5, "b": 70, "c": 1}.items())
    }
    tables = {name: np.column_stack([X, np.full(len(X), 0.1)]) for name, X in tables.items()}
    moments = {name: describe(X, ("p", "q", "r", "s")) for name, X in tables.items()}
    mean, scale = common_scale(moments, ("p", "q", "r", "s"))
    pooled = np.concatenate(list(tables.values()))
    np.testing.assert_allclose(mean, pooled.mean(axis=0))
    np.testing.assert_allclose(scale[:3], pooled.std(axis=0)[:3])
    assert scale[3] == 1.0


def test_standardised_sites_give_the_same_clusters_in_any_units(sites):
    one = fit(sites, standardize=True)
    two = fit({name: X * [1000, 0.001] + [5, -9] for name, X in sites.items()}, standardize=True)
    # The moments are told in three digits, of the units that they are in.
    same = (two.cluster_centers_ - [5, -9]) / [1000, 0.001]
    np.testing.assert_allclose(same, one.cluster_centers_, atol=0.01)
    for ours, theirs in zip(one.labels_, two.labels_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_site_with_one_row_or_one_component_takes_part(sites, blobs):
    more = {**sites, "row": np.array([[0.2, 0.1]]), "one": blobs([[9, 0]], 25, seed=9)[0]}
    fitted = FederatedClustering(
        ASM(), FedGEM(upsilon=0.5, start="means"), random_state=0, min_report=1, standardize=False
    ).fit(more)
    counts = dict(zip(fitted.sites_, fitted.local_counts_, strict=True))
    assert counts["row"] == 1
    assert counts["one"] == 1
    assert np.isfinite(fitted.cluster_centers_).all()
    assert fitted.model_.holdings.sum(axis=1).tolist() == [len(more[name]) for name in sorted(more)]


def test_a_site_with_no_overlap_keeps_its_clusters(sites, blobs):
    more = {**sites, "far": blobs([[90, 90], [99, 90]], 40, seed=8)[0]}
    fitted = FederatedClustering(
        KnownCounts(2), FedGEM(upsilon=2, start="means"), random_state=0, standardize=False
    ).fit(more)
    assert fitted.n_clusters_ == 5
    assert adjusted_rand_score(np.repeat([0, 1], 40), fitted.labels_[fitted.sites_.index("far")]) == 1.0


def test_one_site_alone_is_its_own_federation(sites):
    fitted = fit({"west": sites["west"]})
    assert fitted.n_clusters_ == 2


def test_identical_rows_everywhere_are_one_cluster():
    for aggregator, n_rows in ((None, 30), (Consensus(min_report=1), 3), (FedGEM(), 3)):
        fitted = FederatedClustering(aggregator=aggregator, random_state=0, min_report=1).fit(
            [np.ones((30, 2)), np.ones((n_rows, 2))]
        )
        assert fitted.n_clusters_ == 1
        assert fitted.local_counts_ == [1, 1]


def test_tables_too_small_for_the_floor_of_the_default_are_told_what_to_do():
    with pytest.raises(KoncordError, match=r"Every site has fewer rows than it reports at least.*min_report"):
        FederatedClustering(random_state=0).fit([np.ones((10, 2)), np.ones((3, 2))])


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "at least one site"),
        ({"": np.ones((2, 2))}, "names that are not empty"),
        (5, "mapping of site name to table or a sequence of tables; got int"),
        ({"a": np.ones(3)}, "site 'a' must have at least one row and one column; got shape (3,)"),
        ({"a": np.empty((0, 2))}, "site 'a' must have at least one row"),
        ({"a": [["x", "y"]]}, "site 'a' must hold numbers only"),
        ({"a": np.array([[1, np.inf], [2, 3]])}, "site 'a' holds 1 values that are infinite"),
    ],
)
def test_clients_that_are_no_tables_are_refused_in_a_sentence(clients, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        FederatedClustering().fit(clients)
    assert message in str(caught.value)


class NoBase:
    """An aggregator that does not derive from the base class."""

    name = "none"

    def server(self, clients, n_features, rng):
        yield None


@pytest.mark.parametrize(
    ("aggregator", "got"),
    [
        ("fedgem", "got the name 'fedgem'."),
        (FedGEM, "got the class FedGEM."),
        (NoBase(), "got NoBase, which lacks 'sends' and 'client_steps'."),
        (5, "got int, which lacks 'name', 'sends', 'client_steps' and 'server'."),
    ],
)
def test_what_is_no_aggregator_is_refused_in_a_sentence(sites, aggregator, got):
    with pytest.raises(TypeError) as caught:
        FederatedClustering(ASM(), aggregator, random_state=0).fit(sites)
    wanted = "'aggregator' of FederatedClustering must be an aggregator such as koncord.Consensus(), derived from "
    assert str(caught.value) == f"{wanted}koncord.aggregate.base.Aggregator; {got}"


def test_columns_are_found_in_the_wanted_order():
    assert order_of(("b", "c", "a"), ("a", "b", "c")).tolist() == [2, 0, 1]


# --- what a run leaves beside the model ---


@pytest.fixture(scope="module")
def frames():
    """Three sites as pandas frames with an index of their own, two of three clusters each."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    held = {"north": (0, 9), "south": (9, 18), "west": (0, 18)}
    rows = {name: np.concatenate([rng.normal(m, 1, (50, 2)) for m in means]) for name, means in held.items()}
    return {
        name: pandas.DataFrame(X, columns=["age", "stay"], index=[f"{name}-{at}" for at in range(100)])
        for name, X in rows.items()
    }


def test_labels_have_the_index_of_the_frame_they_came_from(frames):
    fitted = FederatedClustering(random_state=0).fit(frames)
    for name, labels in zip(fitted.sites_, fitted.labels_, strict=True):
        assert labels.index.equals(frames[name].index)
        np.testing.assert_array_equal(labels, fitted.predict(frames[name]))
        assert frames[name].assign(cluster=labels).groupby("cluster").size().tolist() == [50, 50]
    assert fitted.feature_names_in_.tolist() == ["age", "stay"]
    plain = FederatedClustering(random_state=0).fit({name: frame.to_numpy() for name, frame in frames.items()})
    for labels, same in zip(fitted.labels_, plain.labels_, strict=True):
        assert type(same) is np.ndarray
        np.testing.assert_array_equal(labels, same)


def test_fit_predict_returns_the_labels_of_a_fit(sites):
    federation = FederatedClustering(ASM(), FedGEM(upsilon=2), random_state=3, standardize=False)
    for labels, same in zip(clone(federation).fit_predict(sites), federation.fit(sites).labels_, strict=True):
        np.testing.assert_array_equal(labels, same)


def test_columns_are_told_as_scikit_learn_tells_them(sites):
    fitted = fit(sites)
    assert fitted.n_features_in_ == 2
    assert not hasattr(fitted, "feature_names_in_")
    fitted.fit({name: Frame(X, ["a", "b"]) for name, X in sites.items()})
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    assert not hasattr(fitted.fit(sites), "feature_names_in_")
    some = {name: Frame(np.c_[X, X], ["b", "a", name, "c"]) for name, X in sites.items()}
    shared = FederatedClustering(ASM(), random_state=3, common_columns=True).fit(some)
    assert shared.n_features_in_ == 3
    assert sorted(shared.feature_names_in_) == ["a", "b", "c"]


def test_the_record_tells_what_was_asked_and_the_ledger_what_left(sites):
    fitted = FederatedClustering(ASM(), FedGEM(upsilon=2), random_state=3, standardize=True).fit(sites)
    assert (fitted.record_.estimator, fitted.record_.aggregator) == ("ASM", "fedgem")
    assert fitted.record_.is_standardized
    assert tuple(fitted.ledger_) == fitted.record_.departures
    assert {departed.site for departed in fitted.ledger_} == set(sites)
    assert {departed.message for departed in fitted.ledger_} >= {"Sketch", "Measured", "Prepared", "Holdings"}
    assert fitted.departures_ == fitted.ledger_


@pytest.mark.parametrize(
    ("aggregator", "found"),
    [
        (None, "this number was not given"),
        (KFed(3), "as asked"),
        (KFed(2), "as asked"),
        (FedGEM(), "this number was not given"),
    ],
)
def test_the_report_of_a_fitted_object_is_the_page_of_its_run(sites, tmp_path, aggregator, found):
    fitted = FederatedClustering(ASM(), aggregator, random_state=3).fit(sites)
    assert fitted.report(tmp_path / "page.html") == tmp_path / "page.html"
    text = (tmp_path / "page.html").read_text()
    assert text == page(fitted.model_, fitted.record_)
    assert found in text
    assert "labels_" in text
    assert "folder of the run" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_report_needs_a_fit_and_the_name_of_a_file(sites, tmp_path):
    with pytest.raises(NotFittedError):
        FederatedClustering().report(tmp_path / "page.html")
    with pytest.raises(ValueError, match="must name a file"):
        fit(sites).report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_the_clusters_the_sites_and_the_sizes():
    X = {"<b>": np.repeat([[0.0, 0.0], [9.0, 9.0]], 30, axis=0), "two": np.zeros((40, 2))}
    federation = FederatedClustering(
        KnownCounts({"<b>": 2, "two": 1}), FedGEM(upsilon=2), random_state=0, standardize=False
    )
    assert "K = " not in federation._repr_html_()
    shown = federation.fit(X)._repr_html_()
    assert "K = 2: 2 clusters over 2 sites" in shown
    assert "<td>&lt;b&gt;</td><td>60</td><td>2</td><td>30</td><td>30</td>" in shown
    assert "<tr><td>all</td><td>100</td><td></td><td>" in shown
    assert "K = 2: 2 clusters over 2 sites" in federation._repr_mimebundle_(include=None)["text/html"]
    with config_context(display="text"):
        assert federation._repr_mimebundle_().keys() == {"text/plain"}


def test_local_counts_are_computed_when_they_are_read_and_saved_objects_hold_no_rows(monkeypatch):
    calls = []
    fit = koncord.ASM.fit
    monkeypatch.setattr(koncord.ASM, "fit", lambda self, X, y=None: calls.append(len(X)) or fit(self, X))
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(m, 1, (80, 3)) for m in (0, 9)])
    tables = {"a": rows, "b": rows + 0.25}
    lazy = koncord.FederatedClustering(random_state=0).fit(tables)
    assert (calls, lazy.model_.local_counts) == ([], ())
    assert "local k" not in lazy._repr_html_()
    saved = pickle.dumps(lazy)
    assert rows[7].tobytes() not in saved
    with pytest.raises(AttributeError, match="FederatedClustering\\(local_counts=True\\)"):
        _ = pickle.loads(saved).local_counts_
    eager = koncord.FederatedClustering(random_state=0, local_counts=True).fit(tables)
    assert len(calls) == 2
    assert lazy.local_counts_ == eager.local_counts_ == list(eager.model_.local_counts) == [2, 2]
    assert lazy.local_counts_ == [2, 2]
    assert len(calls) == 4
    assert "local k" in lazy._repr_html_()
    assert pickle.loads(pickle.dumps(lazy)).local_counts_ == [2, 2]
    np.testing.assert_array_equal(lazy.model_.centers, eager.model_.centers)
    assert all(map(np.array_equal, lazy.labels_, eager.labels_))


def test_an_aggregator_needs_local_counts_if_what_it_sends_has_their_size():
    needs = {name: aggregator_named(name).needs_local_counts for name in AGGREGATORS.own}
    assert {name for name, does in needs.items() if does} == {"fedgem", "kfed", "spahm"}


def test_a_row_with_gaps_has_one_label_alone_among_others_and_after_the_model_was_saved(tmp_path):
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0, 0, 0], [6, 6, 0, 0], [0, 0, 6, 6]])
    states = {name: rng.integers(0, 3, 150) for name in ("north", "south")}
    sites = {name: centers[y] + rng.normal(size=(150, 4)) for name, y in states.items()}
    sites = {name: np.where(rng.random(X.shape) < 0.2, np.nan, X) for name, X in sites.items()}
    fitted = koncord.FederatedClustering(aggregator=koncord.Consensus(), random_state=0).fit(sites)
    fitted.model_.save(tmp_path / "model.koncord")
    model = koncord.GlobalModel.load(tmp_path / "model.koncord")
    X, labels = sites["north"], np.asarray(fitted.labels_[0])
    assert fitted.n_clusters_ == 3
    np.testing.assert_array_equal(model.predict(X), labels)
    assert [int(model.predict(row[None])[0]) for row in X[:10]] == labels[:10].tolist()
    shares = model.predict_proba(X)
    np.testing.assert_array_equal(shares.argmax(axis=1), labels)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.isfinite(model.score_samples(X)).all()
    assert model.outliers(X).mean() < 0.05
    kept = states["north"]
    assert sum(np.bincount(labels[kept == state]).max() for state in range(3)) > 0.95 * len(kept)
