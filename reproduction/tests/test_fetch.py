import io
import os
import socket
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from koncord_reproduction import datasets, load
from koncord_reproduction.datasets import STORED
from koncord_reproduction.fetch import (
    OFFLINE,
    PUBLISHED,
    FetchError,
    Published,
    Source,
    checksum,
    download,
    fetch,
    is_offline,
    read_abalone,
    read_frogs,
    read_mnist,
    read_waveform,
)

# The first lines of the published files, in the layout of the copies at a commit and in that of UCI.
WAVEFORM = """\
-1.23,-1.56,-1.75,-0.28,0.60,2.22,0.85,0.21,-0.20,0.89,1.08,4.20,2.89,7.75,4.59,3.15,5.12,3.32,1.20,0.24,-0.56,2
-0.69,2.43,0.61,2.08,2.30,3.25,5.52,4.55,2.97,2.22,2.81,1.61,1.24,1.89,1.88,-1.34,0.83,1.41,1.78,0.60,2.42,1
"""
WAVEFORM_HEADER = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,class\n"
ABALONE = """\
M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15
M,0.35,0.265,0.09,0.2255,0.0995,0.0485,0.07,7
F,0.53,0.42,0.135,0.677,0.2565,0.1415,0.21,9
"""
ABALONE_HEADER = (
    "Sex,Length,Diameter,Height,Whole_weight,Shucked_weight,Viscera_weight,Shell_weight,Class  \n"  # with two blanks
)
FROG_COLUMNS = [f"MFCCs_{at:2}" for at in range(1, 23)] + ["Family", "Genus", "Species", "RecordID"]  # UCI: MFCCs_ 1
FROG = (
    "1,0.152936298220384,-0.105585902844019,0.200721914808566,0.317201062343259,0.260763853131077,0.100944640810053,"
    "-0.150062604917616,-0.17112763198601,0.124676436148438,0.188654145822323,-0.0756217229244772,-0.156435925226375,"
    "0.0822451152835443,0.135752042383891,-0.0240166450287792,-0.108351107221198,-0.0776225214037558,"
    "-0.00956780151914234,0.0576839754007957,0.118680135068692,0.0140384456733697,"
    "Leptodactylidae,Adenomera,AdenomeraAndre,1\n"
)


@pytest.fixture
def online(monkeypatch, tmp_path):
    """A machine with no data set that may fetch; returns its cache folder, which is not made yet."""
    monkeypatch.delenv(OFFLINE)
    monkeypatch.setattr(datasets, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(datasets, "folders_of_data", lambda: [tmp_path / "cache"])
    return tmp_path / "cache"


@pytest.fixture
def small(monkeypatch, server, online):
    """A set of two rows in place of Waveform: `publish(*answers)` serves its copies, in the order they are tried."""
    rows = read_waveform([WAVEFORM.encode()])
    sums = {"y": checksum(rows["X"], rows["y"])}

    def publish(*answers, member=""):
        urls = [server.serve(f"/copy-{at}/waveform.data", answer) for at, answer in enumerate(answers, start=1)]
        sources = tuple(Source(urls=(url,), member=member) for url in urls)
        monkeypatch.setitem(PUBLISHED, "waveform.npz", Published(read=read_waveform, sources=sources))
        return online

    publish.fetch = lambda: fetch("waveform.npz", online, sums)
    return publish


def zipped(name, content):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("Index", "a list")
        file.writestr(name, content)
    return archive.getvalue()


# --- the layouts ---


def test_a_header_is_not_a_row_even_where_its_names_are_numbers():
    plain, headed = (read_waveform([text.encode()]) for text in (WAVEFORM, WAVEFORM_HEADER + WAVEFORM))
    assert plain["X"].shape == headed["X"].shape == (2, 21)
    assert np.array_equal(plain["X"], headed["X"])
    assert headed["y"].tolist() == [2, 1]
    assert headed["X"][1, :3].tolist() == np.float32([-0.69, 2.43, 0.61]).tolist()


def test_abalone_loses_its_sex_and_its_rings_become_bins_of_age():
    for text in (ABALONE, ABALONE_HEADER + ABALONE, "\ufeff" + ABALONE.replace("\n", "\r\n")):
        read = read_abalone([text.encode()])
        assert read["X"].shape == (3, 7)
        assert read["X"][2].tolist() == np.float32([0.53, 0.42, 0.135, 0.677, 0.2565, 0.1415, 0.21]).tolist()
        assert (read["rings"].tolist(), read["y"].tolist()) == ([15, 7, 9], [7, 1, 3])


@pytest.mark.parametrize("names", [FROG_COLUMNS, [name.replace(" ", "") for name in FROG_COLUMNS]])
def test_frogs_lose_their_first_coefficient_and_have_species_and_genus(names):
    other = FROG.replace("Adenomera,AdenomeraAndre", "Ameerega,Ameeregatrivittata")
    read = read_frogs([(",".join(names) + "\n" + other + FROG).encode()])
    assert read["X"].shape == (2, 21)
    assert read["X"][1, [0, 20]].tolist() == np.float32([0.152936298220384, 0.0140384456733697]).tolist()
    assert (read["y_species"].tolist(), read["y_genus"].tolist()) == ([1, 0], [1, 0])
    assert read["species"].tolist() == ["AdenomeraAndre", "Ameeregatrivittata"]


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_mnist_is_the_training_part_and_then_the_test_part():
    parts = [np.ones((2, 10), "f4"), np.array([3, 1]), np.zeros((1, 10), "f4"), np.array([7])]
    read = read_mnist([as_npy(part) for part in parts])
    assert (read["X"][:, 0].tolist(), read["y"].tolist()) == ([1, 1, 0], [3, 1, 7])


def test_the_first_published_lines_are_the_first_rows_of_the_files_here(benchmark_set):
    frogs = (",".join(FROG_COLUMNS) + "\n" + FROG).encode()
    for file, read, text in (
        ("waveform", read_waveform, (WAVEFORM_HEADER + WAVEFORM).encode()),
        ("abalone", read_abalone, (ABALONE_HEADER + ABALONE).encode()),
        ("frogs", read_frogs, frogs),
    ):
        X, y = benchmark_set(file, "X", "y")
        found = read([text])
        n = len(found["X"])
        assert np.array_equal(found["X"], X[:n])
        if file != "frogs":  # whose classes are numbered over all rows
            assert np.array_equal(found["y"], y[:n])


# --- the checksum ---


def test_the_checksum_knows_values_order_and_classes_and_not_how_they_are_stored():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 3)).astype("f4"), np.arange(6, dtype="i2")
    same = checksum(X, y)
    assert same == checksum(X.astype(float), y.astype("i8")) == checksum(np.asfortranarray(X), y.astype(">i4"))
    assert len({same, checksum(X[::-1], y), checksum(X, y[::-1]), checksum(np.nextafter(X, np.float32(9)), y)}) == 4


# --- whole files, from a server, with the real checksums ---


def text_of(table, last):
    lines = [
        ",".join([*(np.format_float_positional(value, unique=True, trim="0") for value in row), str(end)])
        for row, end in zip(table, last, strict=True)
    ]
    return "\n".join(lines) + "\n"


def published_files(name, benchmark_set):
    """The files of a set as they were published, written from the archive here; sex and family are not in it."""
    if name == "waveform":
        X, y = benchmark_set("waveform", "X", "y")
        lines = [",".join([*(f"{value:.2f}" for value in row), str(end)]) for row, end in zip(X, y, strict=True)]
        return [(WAVEFORM_HEADER + "\n".join(lines) + "\n").encode()]
    if name == "abalone":
        X, rings = benchmark_set("abalone", "X", "rings")
        return [(ABALONE_HEADER + "".join(f"M,{line}\n" for line in text_of(X, rings).splitlines())).encode()]
    if name == "frogs":
        X, species, genus, names, genera = benchmark_set("frogs", "X", "y_species", "y_genus", "species", "genus")
        ends = [f"F,{genera[g]},{names[s]},1" for s, g in zip(species, genus, strict=True)]
        header = ",".join(FROG_COLUMNS) + "\n"
        return [(header + "".join(f"1,{line}\n" for line in text_of(X, ends).splitlines())).encode()]
    X, y = benchmark_set("mnist_vae10", "X", "y")
    y = y.astype(np.int64)
    return [as_npy(part) for part in (X[:60000], y[:60000], X[60000:], y[60000:])]


@pytest.mark.parametrize("name", ["waveform", "abalone", "frogs", "mnist"])
def test_the_published_layout_gives_the_rows_of_the_paper(name, benchmark_set, server, online, monkeypatch):
    files = published_files(name, benchmark_set)
    file = {"mnist": "mnist_vae10"}.get(name, name)
    urls = tuple(server.serve(f"/{at}", content) for at, content in enumerate(files))
    published = Published(read=PUBLISHED[f"{file}.npz"].read, sources=(Source(urls=urls),))
    monkeypatch.setitem(PUBLISHED, f"{file}.npz", published)
    for set_name in ("frog_species", "frog_genus") if name == "frogs" else (name,):
        fetched = load(set_name, fetch=True)
        X, y = benchmark_set(file, "X", STORED[set_name].classes)
        assert np.array_equal(fetched.X, X)
        assert np.array_equal(fetched.y, y)
        assert fetched.differs == ""
    assert [path.name for path in online.iterdir()] == [f"{file}.npz"]
    assert len(server.asked) == len(files)  # the second time it came from the cache


@pytest.mark.parametrize("name", ["abalone", "frogs"])
def test_the_archive_of_uci_is_read_as_well(name, benchmark_set, server, online, monkeypatch):
    source = PUBLISHED[f"{name}.npz"].sources[1]
    (content,) = published_files(name, benchmark_set)
    if name == "abalone":
        content = content.removeprefix(ABALONE_HEADER.encode())  # UCI's has none
    url = server.serve("/archive.zip", zipped(f"some/{source.member}", content))
    published = Published(read=PUBLISHED[f"{name}.npz"].read, sources=(Source(urls=(url,), member=source.member),))
    monkeypatch.setitem(PUBLISHED, f"{name}.npz", published)
    assert load("frog_genus" if name == "frogs" else name).differs == ""


def test_every_copy_is_named_by_a_commit_or_lies_at_uci():
    for published in PUBLISHED.values():
        urls = [url for source in published.sources for url in source.urls]
        assert all(url.startswith("https://") for url in urls)
        at_commit = [url for url in urls if len(url.split("/")[5]) == 40 and "raw.githubusercontent" in url]
        assert set(urls) - set(at_commit) <= {url for url in urls if "archive.ics.uci.edu" in url}
        assert urls[0] in at_commit


# --- what can go wrong ---


def test_what_was_fetched_is_kept_under_its_name_and_nothing_else_is(small):
    folder = small(WAVEFORM.encode())
    path = small.fetch()
    assert path == folder / "waveform.npz"
    assert [found.name for found in folder.iterdir()] == ["waveform.npz"]
    with np.load(path, allow_pickle=False) as kept:
        assert (kept["X"].dtype, kept["X"].shape, kept["y"].tolist()) == (np.float32, (2, 21), [2, 1])


def refuse(handler, _):
    handler.send_error(503)


def break_off(handler, _):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(WAVEFORM)))
    handler.end_headers()
    handler.wfile.write(WAVEFORM[:100].encode())


def break_off_between_chunks(handler, _):
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"64\r\n" + WAVEFORM[:50].encode())
    handler.close_connection = True


def hang_up(handler, _):
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, r"waveform\.data answered 404 \(Not Found\)"),
        (refuse, r"waveform\.data answered 503 \(Service Unavailable\)"),
        (b"<html>Moved</html>", "is not laid out as expected"),
        (b"", "is not laid out as expected"),
        (WAVEFORM.replace("0.60", "0.61").encode(), r"holds other rows than the published ones \(SHA-256 [0-9a-f]{12}"),
        (WAVEFORM[:-1].rsplit("\n", 1)[0].encode(), "holds other rows than the published ones"),
        (break_off, "broke off after 100 of 222 bytes"),
        (break_off_between_chunks, r"broke off \(IncompleteRead\)"),
        (hang_up, r"broke off \(RemoteDisconnected\)"),
    ],
)
def test_a_copy_that_is_not_the_set_is_refused_and_leaves_nothing(small, answer, sentence):
    folder = small(answer)
    with pytest.raises(FetchError, match=sentence):
        small.fetch()
    assert not folder.exists()


def test_an_archive_without_the_file_is_refused(small):
    small(zipped("other.data", WAVEFORM), member="waveform.data")
    with pytest.raises(FetchError, match=r"there is no waveform\.data in the archive"):
        small.fetch()
    small(WAVEFORM.encode(), member="waveform.data")
    with pytest.raises(FetchError, match="File is not a zip file"):
        small.fetch()


def test_the_next_copy_is_tried_where_one_fails(small, server):
    small(None, b"1,2,3", WAVEFORM.encode(), break_off)
    small.fetch()
    assert [path.split("/")[1] for path in server.asked] == ["copy-1", "copy-2", "copy-3"]


def test_all_copies_are_named_where_all_fail(small):
    small(None, break_off)
    with pytest.raises(FetchError, match=r"copy-1/waveform\.data answered 404.*; .*copy-2/waveform\.data broke off"):
        small.fetch()


def say_nothing(_, over):
    over.wait(10)


def drip(handler, over):
    handler.send_response(200)
    handler.end_headers()
    while not over.wait(0.02):
        handler.wfile.write(b"1,")


def test_a_server_that_is_silent_is_given_up(server):
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"was silent for 0\.2 seconds"):
        download(server.serve("/slow", say_nothing), silence=0.2)
    assert time.monotonic() - started < 5


def test_a_server_that_drips_is_given_up_too(server):
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"was not done after 0\.3 seconds"):
        download(server.serve("/drip", drip), silence=5, patience=0.3)
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("answer", [b"x" * 1001, drip])
def test_more_than_the_largest_file_is_not_read(server, answer):
    with pytest.raises(FetchError, match=r"sends more than (1,000|20) bytes"):
        download(server.serve("/large", answer), largest=20 if callable(answer) else 1000)


def redirect(target):
    def answer(handler, _):
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    return answer


def test_a_redirection_is_followed_but_not_in_circles_nor_out_of_the_web(server):
    server.serve("/there", b"content")
    assert download(server.serve("/here", redirect("/there"))) == b"content"
    with pytest.raises(FetchError, match="answered 302"):
        download(server.serve("/circle", redirect("/circle")))
    with pytest.raises(FetchError, match=r"sends elsewhere without encryption, to ftp://127\.0\.0\.1/file"):
        download(server.serve("/out", redirect("ftp://127.0.0.1/file")))


def test_a_machine_that_is_offline_is_reported_that_nothing_can_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(FetchError, match=rf"http://127\.0\.0\.1:{port}/file cannot be reached \(Connection refused\)"):
        download(f"http://127.0.0.1:{port}/file")


@pytest.fixture
def no_room():
    """No file may grow beyond 100 bytes, as on a disk that is full."""
    resource = pytest.importorskip("resource", reason="limits the size of files as POSIX does")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextmanager
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


def test_a_disk_without_room_is_said_and_leaves_nothing(small, no_room):
    folder = small(WAVEFORM.encode())
    wanted = r"it was fetched, but '.*waveform\.npz' cannot be written \(File too large\)"
    with pytest.raises(FetchError, match=wanted), no_room():
        small.fetch()
    assert list(folder.iterdir()) == []


def test_a_failed_write_leaves_the_file_that_was_there(small, no_room):
    folder = small(WAVEFORM.encode())
    folder.mkdir()
    (folder / "waveform.npz").write_bytes(b"older")
    with pytest.raises(FetchError, match="cannot be written"), no_room():
        small.fetch()
    assert (folder / "waveform.npz").read_bytes() == b"older"


def test_a_cache_that_is_no_folder_is_said(small):
    folder = small(WAVEFORM.encode())
    folder.write_text("a file")
    with pytest.raises(FetchError, match=r"cannot be written \(File exists\)"):
        small.fetch()


# --- load ---


def test_load_says_what_went_wrong_and_where_to_get_the_set(monkeypatch, server, online):
    url = server.root + "/abalone.data"
    published = Published(read=read_abalone, sources=(Source(urls=(url,)),))
    monkeypatch.setitem(PUBLISHED, "abalone.npz", published)
    with pytest.raises(FetchError) as told:
        load("abalone")
    assert str(told.value) == (
        f"The data set 'abalone' is not on this machine: there is no abalone.npz in '{online}', and it could not be "
        f"fetched: {url} answered 404 (Not Found); let the variable KONCORD_DATA name the folder that holds it, or "
        "make it (arrays X and y) from https://archive.ics.uci.edu/dataset/1 (abalone.data)."
    )


@pytest.mark.parametrize("asked", [None, True])
def test_the_variable_forbids_to_fetch(monkeypatch, server, small, asked):
    monkeypatch.setenv(OFFLINE, "1")
    small(WAVEFORM.encode())
    with pytest.raises(FetchError, match="and KONCORD_OFFLINE forbids to fetch it"):
        load("abalone", fetch=asked)
    with pytest.raises(FetchError, match="and KONCORD_OFFLINE forbids to fetch it"):
        load("waveform", fetch=True)
    assert server.asked == []


@pytest.mark.parametrize(
    ("value", "forbids"), [("1", True), ("yes", True), ("", False), ("0", False), ("False", False), (" no ", False)]
)
def test_the_variable_is_read_as_people_write_it(monkeypatch, value, forbids):
    monkeypatch.setenv(OFFLINE, value)
    assert is_offline() is forbids


def test_the_argument_forbids_to_fetch(server, small):
    small(WAVEFORM.encode())
    with pytest.raises(datasets.KoncordError, match=r"there is no abalone\.npz in '[^']*'; let the variable"):
        load("abalone", fetch=False)
    assert server.asked == []


def test_waveform_is_generated_at_once_and_fetched_only_when_asked(monkeypatch, server, small):
    small(WAVEFORM.encode())
    rows = read_waveform([WAVEFORM.encode()])
    known = datasets.Stored(
        file="waveform.npz", note="two rows", source="", checksum=checksum(rows["X"], rows["y"]), differs=""
    )
    monkeypatch.setitem(STORED, "waveform", known)
    generated = load("waveform")
    assert (len(generated.X), server.asked) == (5000, [])
    assert "generated" in generated.differs
    fetched = load("waveform", fetch=True)
    assert (len(fetched.X), fetched.note, fetched.differs) == (2, "two rows", "")
    assert len(load("waveform").X) == 2  # from the cache now
    assert len(server.asked) == 1


def test_the_suite_itself_is_offline():
    assert os.environ[OFFLINE] == "1"
    assert is_offline()


def test_a_set_without_a_public_copy_is_not_looked_for_on_the_web(server, online):
    with pytest.raises(
        datasets.KoncordError, match=r"with: koncord embed IMAGES\.npz --latent 64 .* --out fmnist_vae64"
    ):
        load("fmnist", fetch=True)
    assert not Path(online).exists()
