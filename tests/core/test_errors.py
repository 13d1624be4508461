"""What every error of rlvr keeps: its three sentences, through a pickle too."""

from __future__ import annotations

import errno
import pickle

import pytest

from rlvr import errors

KINDS = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, errors.RlvrError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_one_message_of_three_lines(kind: type[errors.RlvrError]) -> None:
    """OSError, ImportError and LookupError among its roots read no more into the words."""
    error = kind("asked.", "found: nothing", "do this")
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert same.args == ("asked.\n  found: nothing\n  do this",)
        assert str(same) == same.args[0]
    assert str(kind("asked.", do="do this")) == "asked.\n  do this"
    assert str(kind(ValueError("another"))) == "another"


@pytest.mark.parametrize("path", [(), ("there",)])
@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EFBIG", "EROFS"])
def test_a_disk_that_takes_nothing_is_no_bug(code: str, path: tuple[str, ...]) -> None:
    """Whether or not the system names the file."""
    told = errors.refused(OSError(getattr(errno, code), "no", *path))

    assert isinstance(told, errors.CheckpointError)
    assert str(told).startswith("results were to be written.\n  found: ")


def test_a_disk_that_fails_may_have_been_read() -> None:
    """It is not called full."""
    told = errors.refused(OSError(errno.EIO, "no", "there"))
    assert str(told).startswith("there was to be used.\n  found: no\n  look at the disk")


@pytest.mark.parametrize("code", ["EACCES", "EPERM", "ENAMETOOLONG", "ENOTDIR", "ELOOP", "EEXIST"])
def test_a_path_that_the_system_refuses_is_a_mistake(code: str) -> None:
    """Whoever used it; an error that names no path, or tells of a missing one, is a bug."""
    number = getattr(errno, code)

    told = errors.refused(OSError(number, "no", "there"))

    assert isinstance(told, errors.ConfigError)
    assert str(told).startswith("there was to be used.\n  found: no\n  ")
    for bug in (OSError(number, "no"), OSError(errno.ENOENT, "no", "there"), OSError("no")):
        assert errors.refused(bug) is None
