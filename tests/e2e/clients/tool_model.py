"""Gives the demo's tiny models tools: a chat template that offers them, and weights that answer the offer with a call.

llama.cpp learns from the chat template how a model writes a call, and holds it to that form from the call's opening on;
before the opening any text is allowed, and a random model would never find it. So the copies made here carry two tokens
of their own: the template ends its prompt with the one when tools are offered, and the model always follows it with the
other, the opening. They write no blanks for their own sake either, which would make most of their JSON. All else they
write as before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["with_tools"]

_CUE, _OPENING = "<|tools_offered|>", "<tool_calls>"
_CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'assistant' and message['tool_calls'] %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message['content'] %}
            {{- message['content'] }}
        {%- endif %}
        {{- '<tool_calls>[' }}
        {%- for call in message['tool_calls'] %}
            {{- '{"name": "' + call['function']['name'] + '", "arguments": ' }}
            {{- call['function']['arguments'] | tojson }}
            {{- '}' }}
            {%- if not loop.last %}
                {{- ', ' }}
            {%- endif %}
        {%- endfor %}
        {{- ']</tool_calls><|im_end|>\\n' }}
    {%- elif message['role'] == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message['content'] + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if tools %}
        {{- '<|tools_offered|>' }}
    {%- endif %}
{%- endif %}
"""
_BLANK = frozenset("\u0120\u010a")
"""A space and a newline, as byte-level BPE spells them."""
_NEVER_ELSEWHERE = -40.0
"""Weight of the bias lane, channel 0 of the residual stream, in the output row of a token that is not to be written."""


def with_tools(source: Path, target: Path) -> Path:
    """Copy the GGUF file ``source`` to ``target``, with the template and the two tokens in place of its last two."""
    import gguf

    keys, kinds = gguf.Keys.Tokenizer, gguf.TokenType
    reader = gguf.GGUFReader(source)
    writer: Any = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == gguf.Keys.General.ARCHITECTURE:
            continue  # the writer writes its own
        value = field.contents()
        if name == keys.CHAT_TEMPLATE:
            value = _CHAT_TEMPLATE
        elif name == keys.LIST:
            value = [*value[:-2], _CUE, _OPENING]
        elif name == keys.TOKEN_TYPE:
            value = [*value[:-2], kinds.CONTROL, kinds.USER_DEFINED]
        kind = field.types[0]
        writer.add_key_value(name, value, kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    spellings: list[str] = reader.fields[keys.LIST].contents()
    blank = [index for index, spelling in enumerate(spellings) if set(spelling) <= _BLANK]
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, _taught(tensor.name, tensor.data, blank), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _taught(name: str, data: Any, blank: list[int]) -> Any:
    """The tensor's rows (one a token), with the lesson: what follows the cue, and nothing else, is the opening."""
    if name not in ("token_embd.weight", "output.weight"):
        return data
    rows: NDArray[Any] = np.array(data)
    direction: NDArray[np.float64] = np.random.default_rng(11).standard_normal((rows.shape[1],))
    direction[:1] = 0.0
    cue, opening = -2, -1
    if name == "token_embd.weight":
        rows[cue] = 100.0 * direction  # outweighs what the layers add
    else:
        rows[cue] = 0.0
        rows[opening] = direction
        rows[[cue, opening, *blank], 0] = _NEVER_ELSEWHERE
    return rows
