"""Twenty questions of an operator have true answers while other messages are all around."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import Program

from benchmarks.questions import QUESTIONS, asked, filled
from qframe import QFrame


@pytest.mark.gate
def test_twenty_questions_have_true_answers_beside_30000_messages_that_nobody_asks_about(
    each_app: QFrame, tmp_path: Path
) -> None:
    def program(*words: str, **variables: str) -> tuple[int, str]:
        ran = Program(tmp_path).run(*words, **variables)
        return ran.code, ran.out + ran.err

    answers = list(asked(filled(each_app, program, 30_000)))
    assert [each.question for each in answers] == list(QUESTIONS)
    assert len(answers) >= 20
    assert all(each.answer for each in answers)
