"""A question in a folder of the warehouse that tasks on executors answer: whether they see the folder, and
write to the same one."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.storage.files import Files
from strandline.storage.task_reports import blind_writers

__all__ = ["Answer", "answer_question", "check_answers", "load_package", "write_question"]

QUESTION = "question"


@dataclass(frozen=True)
class Answer:
    """What a task found and wrote. ``file`` None: it did not see the question."""

    host: str
    file: str | None


def write_question(files: Files, folder: str) -> bytes:
    """Write a file that no other folder has, and return its content."""
    content = uuid.uuid4().hex.encode()
    files.write(f"{folder}/{QUESTION}", content)
    return content


def answer_question(files: Files, folder: str, content: bytes, number: int) -> Answer:
    """Look for the question, and write an answer beside it. ``number``: which one of the tasks this is."""
    host = socket.gethostname()
    if files.find(f"{folder}/{QUESTION}") != content:
        return Answer(host, None)
    name = f"{folder}/{number}-{uuid.uuid4().hex}"  # A task may be tried more than once.
    files.write(name, content)
    return Answer(host, name)


def load_package(number: int) -> str:
    """Return which machine has loaded this module, with all that this package depends on to work with
    files."""
    return socket.gethostname()


def check_answers(files: Files, content: bytes, answers: Sequence[Answer]) -> None:
    """Refuse a folder that an executor does not see, or in which its answer is not."""
    for answer in answers:
        if answer.file is None:
            raise blind_writers(
                files, f"one on {answer.host} does not see a file that this process wrote there"
            )
        if files.find(answer.file) != content:
            raise blind_writers(
                files, f"a file that one on {answer.host} wrote is not there for this process"
            )
