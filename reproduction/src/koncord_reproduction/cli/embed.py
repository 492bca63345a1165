"""``koncord embed IMAGES``: images or features to a table, by the paper's variational autoencoder."""

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from koncord._files import write_atomic
from koncord._progress import reporting
from koncord.cli.options import seed
from koncord.cli.output import as_json, check_output_file
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar

if TYPE_CHECKING:
    from koncord_reproduction.embed import Embedding, Images

NAME = "embed"
SUMMARY = "a table from images, by the variational autoencoder of the paper (needs PyTorch)"
DESCRIPTION = """\
Train a variational autoencoder on images and write where it places each of them: the means of its posterior, a table
that koncord estimate and koncord fit read.

IMAGES is NPY or NPZ: an array of rows x height x width (x channels), bytes or floats from 0 to 1, for a network with
convolutions; or of rows x features, for a dense one that scales every row to 0..1 first. An array y in it, one integer
an image, is copied. PyTorch on the CPU does the work: pip install 'koncord-reproduction[embed]'.
"""
EPILOG = """\
examples:
  koncord embed images.npz --latent 10 --out embedded.npz
  koncord embed features.npy --labels labels.npy --latent 8 --epochs 20 --batch 32 --out embedded.npz --json
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord embed IMAGES --latent N --out FILE.npz [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("images", metavar="IMAGES", type=Path, help="NPY or NPZ file")
    parser.add_argument(
        "--array", metavar="NAME", help="which array of an NPZ file is the images (default: X, or the only one)"
    )
    parser.add_argument("--labels", metavar="FILE", type=Path, help="NPY or NPZ file with the class of every image")
    group = parser.add_argument_group("training")
    group.add_argument("--latent", metavar="N", type=int, required=True, help="columns of the table")
    group.add_argument("--epochs", metavar="N", type=int, default=30, help="passes over the images (default: 30)")
    group.add_argument("--batch", metavar="N", type=int, default=256, help="images at once (default: 256)")
    group.add_argument("--seed", metavar="N", type=seed, default=42, help="of everything drawn (default: 42)")
    group.add_argument("--fit-rows", metavar="N", type=int, help="train on the first N images only (default: all)")
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="FILE.npz", type=Path, required=True, help="file for the table")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    for option in ("latent", "epochs", "batch", "fit_rows"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option.replace('_', '-')} must be at least 1; got {value}.")
    check_output_file("--out", args.out, ".npz")
    from koncord_reproduction.embed import embed, read_images, size_of

    images, y = read_images(args.images, args.array, args.labels)
    if args.fit_rows is not None and args.fit_rows > len(images):
        raise ValueError(f"--fit-rows must be at most {len(images)}, as there are only that many; got {args.fit_rows}.")
    with ProgressBar() as bar, reporting(bar):
        started = perf_counter()
        found = embed(
            images,
            latent=args.latent,
            epochs=args.epochs,
            batch=args.batch,
            seed=args.seed,
            fit_rows=args.fit_rows,
        )
        seconds = perf_counter() - started
        write_atomic(args.out, as_npz(found, y))
    if args.json:
        record = {**found.meta, "n_active": found.n_active, "has_labels": y is not None, "out": str(args.out)}
        print(as_json({**record, "seconds": round(seconds, 3)}))
    else:
        print(as_text(found, f"{args.images.name}: {len(images):,} {size_of(images)}", y, seconds, args.out))


def as_npz(found: "Embedding", y: "Images | None") -> bytes:
    """The file: the table X, the classes y if they are known, and the settings as JSON under the name meta."""
    from io import BytesIO

    import numpy as np

    arrays = {"X": found.X, "meta": np.array(json.dumps(found.meta))}
    if y is not None:
        arrays["y"] = y
    file = BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def as_text(found: "Embedding", what: str, y: "Images | None", seconds: float, out: Path) -> str:
    meta = found.meta
    first, last = (meta["rec"][at] + meta["kl"][at] for at in (0, -1))
    lines = [
        f"{what} to {meta['latent']} dimensions "
        f"({meta['model']} network, {meta['epochs']} epochs, seed {meta['seed']}, {seconds:.1f} s)",
        f"loss:    {first:.2f} in the first epoch, {last:.2f} in the last "
        f"(pixels {meta['rec'][-1]:.2f}, divergence {meta['kl'][-1]:.2f})",
    ]
    if meta["val_rec"] is not None:
        lines.append(
            f"others:  {meta['val_rec'] + meta['val_kl']:.2f} on the {meta['n_rows'] - meta['n_fit']:,} rows that were "
            "not trained on, decoded without noise"
        )
    lines += [
        f"active:  {found.n_active} of {meta['latent']} dimensions (the means vary)",
        f"written: {out} (X{'' if y is None else ', y'} and meta)",
    ]
    return "\n".join(lines)
