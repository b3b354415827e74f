"""The official clients, made as their documentation makes them, for an address without the API's own path.

They do not retry unless told to: a retry would hide what went wrong.
"""

from __future__ import annotations

import ssl
from typing import Any

import anthropic
import openai

__all__ = ["anthropic_client", "async_anthropic_client", "async_openai_client", "openai_client"]

_TLS = ssl.create_default_context()
"""Each client would make one, which takes longer than most tests; nothing here is encrypted."""


def openai_client(url: str, max_retries: int = 0, **options: Any) -> openai.OpenAI:
    http_client = openai.DefaultHttpxClient(verify=_TLS)
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", http_client=http_client, max_retries=max_retries, **options
    )


def async_openai_client(url: str, max_retries: int = 0, **options: Any) -> openai.AsyncOpenAI:
    http_client = openai.DefaultAsyncHttpxClient(verify=_TLS)
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", http_client=http_client, max_retries=max_retries, **options
    )


def anthropic_client(url: str, max_retries: int = 0, **options: Any) -> anthropic.Anthropic:
    http_client = anthropic.DefaultHttpxClient(verify=_TLS)
    return anthropic.Anthropic(
        base_url=url, api_key="none", http_client=http_client, max_retries=max_retries, **options
    )


def async_anthropic_client(url: str, max_retries: int = 0, **options: Any) -> anthropic.AsyncAnthropic:
    http_client = anthropic.DefaultAsyncHttpxClient(verify=_TLS)
    return anthropic.AsyncAnthropic(
        base_url=url, api_key="none", http_client=http_client, max_retries=max_retries, **options
    )
