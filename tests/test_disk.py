"""Files that are whole, or not there."""

import os

import pytest

from lastlayer._disk import replacing
from lastlayer.sklearn import LastLayerRegressor, save


def test_written_files_appear_at_once_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "x.txt"
    with replacing(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"

    def cut_short() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        cut_short()
    assert path.read_text() == "whole"
    assert [entry.name for entry in path.parent.iterdir()] == ["x.txt"]
    with pytest.raises(IsADirectoryError, match="is a folder"), replacing(tmp_path):
        pass


def test_a_file_that_is_write_protected_stays(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("mine")
    monkeypatch.setattr(os, "access", lambda *_: False)  # of root it is true
    with pytest.raises(PermissionError, match="write-protected; name another"), replacing(path):
        pass
    assert path.read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.txt"]
    with replacing(tmp_path / "new.txt") as partial:
        partial.write_text("new")


def test_the_user_says_who_may_read(tmp_path):
    model = LastLayerRegressor(max_epochs=1).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0])
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "x.txt"):
            pass
        save(model, tmp_path / "model")
    finally:
        os.umask(before)
    assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o750
    for file in (tmp_path / "model").iterdir():
        assert file.stat().st_mode & 0o777 == 0o640


def test_links_and_what_is_no_file_stay(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with replacing(tmp_path / "link") as partial:
        partial.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not an ordinary file"), replacing(tmp_path / "pipe"):
        pass
