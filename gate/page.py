"""docs/results.md, made from the stored figures: `python -m gate.page`. A test says where the page is stale."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gate.lines import FIRST, LAST, read_figures

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
METHODS = ("koncord", "paper", "pooled GMM + BIC", "pooled k-means, K given", "pooled HDBSCAN")
GROUPS = {
    "fresh": "22 real tables that nothing was tuned on, dealt to 3 to 10 sites",
    "fresh by own sites": "four of these by the sites where their rows were recorded",
    "natural": "frogs by recording, penguins by island",
    "clusters real": "nine real tables, much used in development",
    "clusters made": "18 made tables of two or three columns, much used",
    "paper tabular": "Waveform, Abalone, frogs by species and by genus",
    "MNIST at 10 sites": "embedded digits",
    "MNIST at 100 sites": "the same rows at more sites",
    "drawn mixtures": "two to twelve Gaussians",
    "plants 10 %": "a usual state and five faults of 10 % each, eight sensors, five sites",
    "plants 3 %": "faults of 3 %",
    "plants 1 %": "faults of 1 %",
    "plants skewed": "half of the sensors log-normal",
    "plants with outliers": "two rows in a thousand far off",
    "plants with irrelevant columns": "five columns of noise beside the sensors",
    "plants with offsets": "instruments of a site have offsets of one standard deviation",
}
STEADY = ("dealt to other sites", "a tenth of the rows left out", "other draws")

TEXT = """# Results

`make gate PART=full` measured everything on this page, and `python -m gate.page` wrote it. No dealing, draw or seed of
it has chosen anything in koncord.

## Accuracy

Adjusted Rand index of all rows: 1 is right, 0 is chance. *koncord* is the default. *Paper* is ASM and FedGEM as the
paper runs them: on rows, without a floor. The pooled methods see all rows in one place, which sites may not allow.

{accuracy}

By how much K is off, as the mean of |log(K / classes)|; 0.69 is a factor of two:

{off}

Clouds without clusters, twelve kinds: koncord says one cluster in {clouds:.0%} of them.

## When not to trust it

- **Sites whose instruments differ.** A shift between sites looks like another cluster: see *fresh by own sites*,
  *natural* and *plants with offsets*, beside the same tables dealt at random.
- **Overlapping clusters.** K moves when the same rows are dealt to other sites (next table).
- **Clouds with edges or tails** (uniform, ring, exponential) may be cut into several clusters.
- **A coordinator that asks again and again.** The attacks below recover nothing. Others are known that do: with dozens
  of runs over other columns, a coordinator finds the rows of a small table of whole numbers
  ([what is not defended](security.md#not-defended)).

## Steadiness

The 22 real tables again, with one thing changed:

{steadiness}

## Speed and size

{speed}
"""


def results(figures: Mapping[str, float], before: Mapping[str, float]) -> str:
    def group_row(group: str, what: str) -> list[str]:
        names = [f"accuracy: {group}: {method}, {what}" for method in METHODS]
        return [group, GROUPS[group], *(shown(figures.get(name)) for name in names)]

    heads = ["tables", "", "koncord", "paper", "GMM, BIC", "k-means, K given", "HDBSCAN"]
    known = [group for group in GROUPS if f"accuracy: {group}: koncord, ARI" in figures]
    off = [[row[0], *row[2:5], row[6]] for row in (group_row(group, "|log K|") for group in known)]
    steady = [
        [what, *(shown(figures[f"steadiness: {what}: {how}"]) for how in ("K the same", "ARI between"))]
        for what in STEADY
    ]
    measured = [
        name for name in figures if name.startswith(("speed:", "size:", "confidentiality:")) and "generated" not in name
    ]
    return TEXT.format(
        accuracy=table(heads, (group_row(group, "ARI") for group in known)),
        off=table(["tables", "koncord", "paper", "GMM, BIC", "HDBSCAN"], off),
        clouds=figures["accuracy: clouds: koncord, K = 1"],
        steadiness=table(["changed", "same K", "ARI between the labels"], steady),
        speed=table(
            ["", "at ce43024", "now"], ([name, counted(before.get(name)), counted(figures[name])] for name in measured)
        ),
    )


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or (value == int(value) and value > 1) else f"{value:.2f}"


def counted(value: float | None) -> str:
    return shown(value) if value is None or value != int(value) else f"{value:,.0f}"


def main() -> None:
    figures = read_figures()["full"]
    PAGE.write_text(results(figures[LAST], figures[FIRST]), encoding="utf-8")


if __name__ == "__main__":
    main()
