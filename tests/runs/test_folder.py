from pathlib import Path

import pytest

from koncord.runs.folder import check_folder, model_file, whole_folder


def test_a_link_to_a_folder_stays_a_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("real").mkdir()
    Path("link").symlink_to("real")
    target = check_folder("--out", Path("link"), replaces=False)
    with whole_folder(target, replaces=False) as folder:
        (folder / "a").write_text("new")
    assert Path("link").is_symlink()
    assert Path("real/a").read_text() == "new"


def test_the_folder_is_not_there_before_it_is_whole(tmp_path):
    with whole_folder(tmp_path / "run", replaces=False) as folder:
        (folder / "a").write_text("half")
        assert not (tmp_path / "run").exists()
        assert folder.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("was_there", [True, False])
def test_a_failure_leaves_what_was_there(tmp_path, error, was_there):
    if was_there:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "old").write_text("old")

    def fill_half():
        with whole_folder(tmp_path / "run", replaces=True) as folder:
            (folder / "a").write_text("half")
            raise error

    with pytest.raises(error):
        fill_half()
    assert [path.name for path in tmp_path.rglob("*")] == (["run", "old"] if was_there else [])


def test_a_full_folder_is_replaced_whole(tmp_path):
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "deep" / "old").write_text("old")
    with whole_folder(tmp_path / "run", replaces=True) as folder:
        (folder / "a").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "a"]


def test_the_model_of_a_run_is_found_by_its_folder(tmp_path):
    assert model_file(tmp_path) == tmp_path / "model.koncord"
    assert model_file(tmp_path / "my.koncord") == tmp_path / "my.koncord"
