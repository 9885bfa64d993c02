"""A finished run logged to an MLflow tracking store: config, numbers, verdicts, and the folder's products as artifacts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist.errors import BadOption, MissingExtra

__all__ = ["Tracking"]

_BATCH = 100
"""Entries of one request: the store's own limit for parameters and tags."""
_LONGEST = {"param": 6000, "tag": 5000, "name": 250}
_PRODUCTS = ("report.html", "summary.json", "findings.parquet", "layout.json", "run.json")
_FOLDERS = ("tables", "figures")


class Tracking:
    """An MLflow store, opened before the work so that a wrong address costs nothing.

    The experiment is "querist ROOM COMMAND", a run of it is one run folder. Parameters are the config's fields; metrics each
    finding's estimate, low, high, null and p (`question/subject/field`) and every number of the summary that stands alone
    (`exposure.mean_asr`); tags the version, the verdicts of each question and the folder. Logging again replaces nothing: a
    folder that is logged already, with the same time of ending, is left as it is.

    Raises MissingExtra where MLflow is not installed and BadOption where the store cannot be used.
    """

    def __init__(self, uri: str, room: str, command: str):
        self.uri = uri
        self.name = f"querist {room} {command}"
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise MissingExtra(
                f"Logging to MLflow needs the package mlflow-skinny ({error})",
                value=uri,
                mend='pip install "querist[mlflow]"',
            ) from None
        try:
            self._client = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(self.name)
            self._experiment = self._create() if found is None else found.experiment_id
        except Exception as error:  # MLflow's, the database's and the network's errors share no base
            raise self._unusable(error) from error

    def log(self, folder: Path, header: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
        """Log a finished run folder; returns the id of its MLflow run. Raises BadOption where the store refuses it."""
        mark = {"querist.folder": str(Path(folder).resolve()), "querist.finished": str(header.get("finished"))}
        try:
            same = self._client.search_runs(
                [self._experiment], " and ".join(f"tags.`{name}` = '{_quoted(value)}'" for name, value in mark.items())
            )
            whole = [run for run in same if run.info.status == "FINISHED"]
            if whole:
                return whole[0].info.run_id
            for run in same:  # begun by a process that was killed
                self._client.delete_run(run.info.run_id)
            run_id = self._client.create_run(self._experiment, run_name=Path(folder).name, tags=mark).info.run_id
            self._batches(run_id, header, summary)
            for name in _PRODUCTS:
                if (folder / name).exists():
                    self._client.log_artifact(run_id, str(folder / name))
            for name in _FOLDERS:
                if (folder / name).is_dir():
                    self._client.log_artifacts(run_id, str(folder / name), name)
            self._client.set_terminated(run_id, "FINISHED")
        except Exception as error:
            raise self._unusable(error) from error
        return run_id

    def _create(self) -> str:
        """A new experiment; beside a database file its artifacts lie next to it, not in the working directory."""
        match = re.fullmatch(r"sqlite:///(.+)", self.uri)
        place = None
        if match:
            database = Path(match[1]).resolve()
            place = (database.parent / f"{database.name}.artifacts").as_uri()
        return self._client.create_experiment(self.name, artifact_location=place)

    def _batches(self, run_id: str, header: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        params = [Param(_name(name), _cut(value, "param")) for name, value in _flat(header["config"])]
        metrics = [Metric(name, value, 0, 0) for name, value in numbers(summary).items()]
        tags = [RunTag(_name(name), _cut(value, "tag")) for name, value in tags_of(header, summary).items()]
        for begin in range(0, max(map(len, (params, metrics, tags))), _BATCH):
            part = slice(begin, begin + _BATCH)
            self._client.log_batch(run_id, metrics=metrics[part], params=params[part], tags=tags[part])

    def _unusable(self, error: Exception) -> BadOption:
        told = str(error).strip().splitlines() or [""]
        return BadOption(
            "The MLflow store cannot be used",
            value=f"{self.uri}: {type(error).__name__}: {told[0]}",
            allowed="sqlite:///FILE.db, http://HOST:PORT, a folder",
            mend="Name a store that can be written; the run folder itself is complete",
        )


def numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """What becomes a metric: the numbers of each finding, and those of the summary that are not in lists."""
    found: dict[str, float] = {}
    for finding in summary["findings"]:
        for field in ("estimate", "low", "high", "null", "p"):
            if finding[field] is not None:
                found[_name(f"{finding['question']}/{finding['subject']}/{field}")] = float(finding[field])
    apart = {"findings", "config", "seed", "tables", "warnings", "passed_over"}
    for name, value in _flat({key: value for key, value in summary.items() if key not in apart}):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[_name(name)] = float(value)
    return found


def tags_of(header: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, str]:
    """What becomes a tag: version, seed, and how many subjects each question answered with each verdict."""
    verdicts: dict[str, dict[str, int]] = {}
    for finding in summary["findings"]:
        counts = verdicts.setdefault(finding["question"], {})
        counts[finding["verdict"]] = counts.get(finding["verdict"], 0) + 1
    told = {
        question: ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) for question, counts in verdicts.items()
    }
    return {
        "querist.version": str(summary["version"]),
        "querist.room": header["room"],
        "querist.command": header["command"],
    } | told


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        name = f"{above}.{key}" if above else str(key)
        if isinstance(item, Mapping):
            yield from _flat(item, name)
        else:
            yield name, item


def _name(text: str) -> str:
    """Letters, digits and the few signs that every store takes."""
    return re.sub(r"[^\w\-./ ]", "_", text, flags=re.ASCII)[: _LONGEST["name"]]


def _cut(value: Any, kind: str) -> str:
    text = str(value)
    longest = _LONGEST[kind]
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _quoted(text: str) -> str:
    return text.replace("'", "''")
