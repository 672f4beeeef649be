"""Renders a conversation through the chat template that comes with a model.

Templates are programs from a file that somebody published: they run in jinja2's immutable sandbox, with the globals
that Hugging Face's templates use and nothing else.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from kvscope.errors import ModelError

Message = Mapping[str, str]
"""`role` ("system", "user", "assistant") and `content`."""


class ChatTemplate:
    """A compiled template.

    Raises:
        ModelError: the template does not compile.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        # A template that cannot be parsed names its line; so does one that fails while it renders.
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template cannot be read: {_one_line(error)}; use --raw") from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Returns the conversation as the model's text, special tokens written out.

        Raises:
            ModelError: the template refuses the messages (such as a system message it has no place for), or fails.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._tokens,
            )
        except _TemplateRefusal as error:
            raise ModelError(f"the model's chat template refuses this conversation: {_one_line(error)}") from error
        except Exception as error:
            # A template may raise whatever Python raises in an expression: it is the model's text, not our code.
            raise ModelError(
                f"the model's chat template failed: {type(error).__name__}: {_one_line(error)}; use --raw"
            ) from error


class _TemplateRefusal(Exception):
    """What `raise_exception` in a template raises."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model is trained on: here it means its content."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node | list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # jinja2's own escapes characters for HTML, which would change the prompt.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRefusal(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    line = getattr(error, "lineno", None)
    return f"{text} (line {line})" if line else text
