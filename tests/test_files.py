import os
import stat

import pytest

from congruence.errors import InputError
from congruence.files import check_writable, replacing, write_text


def test_text_is_written_whole_and_readable_by_others(tmp_path):
    previous = os.umask(0o022)
    try:
        write_text(tmp_path / "a.txt", "é\n")
    finally:
        os.umask(previous)
    assert (tmp_path / "a.txt").read_bytes() == "é\n".encode()
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_what_was_there(interruption, tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(interruption), replacing(target) as temporary:
        temporary.write_text("half of the n")
        raise interruption
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_is_one_sentence(tmp_path):
    with (
        pytest.raises(InputError, match=r"cannot write to .*a.txt: No space left on device"),
        replacing(tmp_path / "a.txt"),
    ):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(InputError, match="it is a folder; give a file name"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist"):
        check_writable(tmp_path / "nowhere" / "a.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folders_without_permission_are_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission denied"):
        check_writable(tmp_path / "a.txt")
