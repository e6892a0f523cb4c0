"""Check that executors see the warehouse's folder and write to the same folder.

The driver writes a file ("question") into the folder; tasks on executors read it and write answers.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.storage.files import Files
from strandline.storage.task_reports import WAREHOUSE, blind_writers

__all__ = ["Answer", "answer_question", "check_answers", "load_package", "write_question"]

QUESTION = "question"


@dataclass(frozen=True)
class Answer:
    """Result of one task.

    Attributes:
        host: name of the machine on which the task ran.
        file: name of the file with the answer. None: the task did not see the question.
    """

    host: str
    file: str | None


def write_question(files: Files, folder: str) -> bytes:
    """Write a file with unique content, and return the content."""
    content = uuid.uuid4().hex.encode()
    files.write(f"{folder}/{QUESTION}", content)
    return content


def answer_question(files: Files, folder: str, content: bytes, number: int) -> Answer:
    """Check that this task sees the question, and write an answer.

    Args:
        folder: the folder that has the question.
        content: the content of the question.
        number: the number of the task.
    """
    host = socket.gethostname()
    if files.find(f"{folder}/{QUESTION}") != content:
        return Answer(host, None)
    name = f"{folder}/{number}-{uuid.uuid4().hex}"  # A task may be retried.
    files.write(name, content)
    return Answer(host, name)


def load_package(number: int) -> str:
    """Return this machine's host name.

    An executor that runs this function must load this module, and with it all libraries needed for files.
    """
    return socket.gethostname()


def check_answers(files: Files, content: bytes, answers: Sequence[Answer], place: str = WAREHOUSE) -> None:
    """Check that executors and this process see each other's files; raise if not.

    Raises if an executor did not see the question, or if this process does not see the executor's answer.
    """
    for answer in answers:
        if answer.file is None:
            said = f"one on {answer.host} does not see a file that this process wrote there"
            raise blind_writers(files, said, place)
        if files.find(answer.file) != content:
            said = f"a file that one on {answer.host} wrote is not there for this process"
            raise blind_writers(files, said, place)
