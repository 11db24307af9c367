"""What can go wrong, with all its parts."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """A refusal or a failure. `code` and `kind` are stable: decide by them."""

    def __init__(
        self,
        message: str,
        code: str = "E0901",
        kind: str = "defect",
        file: Optional[str] = None,
        node: Optional[str] = None,
        help: Optional[str] = None,
        exit_status: int = 3,
        text: Optional[str] = None,
    ) -> None:
        super().__init__(message, code, kind, file, node, help, exit_status, text)
        self.message = message
        self.code = code
        self.kind = kind
        self.file = file
        self.node = node
        self.help = help
        self.exit_status = exit_status
        self._text = message if text is None else text

    def __str__(self) -> str:
        return self._text
