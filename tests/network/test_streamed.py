"""Sites over TLS whose tables are folders that are read batch by batch."""

import pytest

from network.federation import SITES, Federation, assert_same_model, koncord

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "consensus", "--seed", "5")
SAMPLE = ("--sample-rows", "120")


class Streamed(Federation):
    """Every table is a folder of three files."""

    def __init__(self, folder):
        super().__init__(folder, measured=METHOD)
        for site in self.sites:
            header, *rows = (folder / f"{site}.csv").read_text().splitlines()
            (folder / site).mkdir()
            for part in range(3):
                (folder / site / f"{part}.csv").write_text(
                    "\n".join([header, *rows[part * 100 : part * 100 + 100], ""])
                )

    def join(self, *sites, **given):
        for site in sites or self.sites:
            super().join(site, options=("--data", site, *SAMPLE, "--methods", "consensus"), **given)
        return self


@pytest.fixture(scope="module")
def make_federation(programs, tmp_path_factory):
    return lambda: Streamed(tmp_path_factory.mktemp("streamed"))


def run(federation, out):
    done = federation.run("--out", out, "--min-sites", 3, *METHOD, "--json")
    assert done.end(180) == 0, done.text
    (federation.folder / f"{out}.json").write_text(done.text.splitlines()[-1])
    return federation.model(out)


def test_the_model_and_the_labels_are_those_of_one_process_also_after_a_restart(federation):
    ours = run(federation, "first")
    koncord(federation.folder, "fit", *SITES, "--out", "fit", *SAMPLE, *METHOD)
    assert_same_model(ours, federation.model("fit"))
    for site in SITES:
        assert "is read batch by batch where it lies" in federation.joined[site].text
        wanted = (federation.folder / "fit" / "labels" / f"{site}.csv").read_text()
        assert federation.labels(site, "first.json") == wanted
    federation.joined["north"].kill()
    federation.join("north").wait_joined()
    assert_same_model(run(federation, "second"), ours)


def test_a_dry_run_reads_a_folder(federation):
    words = ("join", "--invite", "north.invite", "--data", "north", *SAMPLE, "--dry-run")
    assert "Nothing was sent" in koncord(federation.folder, *words)
