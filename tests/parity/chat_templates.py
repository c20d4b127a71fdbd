"""Templates of our own that use what the templates of the model families use, construct by construct."""

TEMPLATES = {}

# Zephyr, SmolLM, ChatML: the plainest, with the white space that trim_blocks and lstrip_blocks have to settle.
TEMPLATES["chatml"] = """{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|begin|>system\\nBe brief and kind.<|stop|>\\n' }}
{% endif %}
{{'<|begin|>' + message['role'] + '\\n' + message['content'] + '<|stop|>' + '\\n'}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|begin|>assistant\\n' }}{% endif %}"""

TEMPLATES["zephyr"] = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '[user]\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '[system]\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '[assistant]\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '[assistant]' }}
{% endif %}
{% endfor %}"""

# Llama 2, Mistral: roles checked in turn, the system text inside the first question, errors raised.
TEMPLATES["llama2"] = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Turns have to go user, assistant, user, ...') }}{% endif %}{% if loop.index0 == 0 and system != false %}{% set content = '<sys>\\n' + system + '\\n</sys>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '(ask) ' + content.strip() + ' (end)' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

TEMPLATES["mistral"] = """{%- if messages[0]["role"] == "system" %}
    {%- set system_text = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Turns must alternate; calls of tools and their results are not counted. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Behind the optional system text, user and assistant have to take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_text is defined %}
            {{- "[ASK] " + system_text + "\\n\\n" + message["content"] + "[/ASK]" }}
        {%- else %}
            {{- "[ASK] " + message["content"] + "[/ASK]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("A call needs an id of nine characters!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULTS] {"content": ' + content|string + ", " }}
        {{- '"id": "' + (message.tool_call_id or "none")|string + '"}[/RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant, system and tool may speak, not " + message["role"] + "!") }}
    {%- endif %}
{%- endfor %}"""

# Llama 3.x: dates, tools in the system or the first user text, builtin tools, one call at a time.
TEMPLATES["llama3"] = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|head|>' + message['role'] + '<|/head|>\\n\\n'+ message['content'] | trim + '<|turn|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}"""

TEMPLATES["llama31"] = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system text is taken out, so that it can be put where it belongs. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|head|>system<|/head|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Place: python\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Known until: May 2020\\n" }}
{{- "Day: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "These functions can be called; answer with JSON only.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|turn|>" }}

{#- Tools in the first question. #}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no first question to put the tools into!") }}
{%- endif %}
    {{- '<|head|>user<|/head|>\\n\\n' -}}
    {{- "Choose a function and answer with its call. " }}
    {{- 'The form is {"name": its name, "parameters": its arguments}.' }}
    {{- "No variables.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|turn|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n'+ message['content'] | trim + '<|turn|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time, please!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- '<|head|>assistant<|/head|>\\n\\n' -}}
            {{- "<|py|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
                {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '<|head|>assistant<|/head|>\\n\\n' -}}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {%- if builtin_tools is defined %}
            {{- "<|more|>" }}
        {%- else %}
            {{- "<|turn|>" }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|head|>ipython<|/head|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|turn|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\\n\\n' }}
{%- endif %}
"""

# Qwen 2.5: tools as lines of JSON, runs of results joined into one turn.
TEMPLATES["qwen25"] = """{%- if tools %}
    {{- '<|a|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help people.' }}
    {%- endif %}
    {{- "\\n\\n# Functions\\n\\nOne or more of them may help.\\n\\nThey stand between the marks:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nA call is an object between marks:\\n<call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}\\n</call><|z|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|a|>system\\n' + messages[0]['content'] + '<|z|>\\n' }}
    {%- else %}
        {{- '<|a|>system\\nYou help people.<|z|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|a|>' + message.role + '\\n' + message.content + '<|z|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|a|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|z|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|a|>user' }}
        {%- endif %}
        {{- '\\n<result>\\n' }}
        {{- message.content }}
        {{- '\\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|z|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|a|>assistant\\n' }}
{%- endif %}
"""

# Qwen 3, QwQ: a walk backwards for the last question, thoughts cut out of older answers.
TEMPLATES["qwen3"] = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|a|>' + message.role + '\\n' + content + '<|z|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|a|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|a|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|a|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|z|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|a|>user' }}
        {%- endif %}
        {{- '\\n<result>\\n' }}
        {{- content }}
        {{- '\\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|z|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|a|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

# Gemma: roles renamed, content as parts, an inline if inside a set.
TEMPLATES["gemma3"] = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("The turns must be user, model, user, model, ...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("This content has no known form") }}
    {%- endif -%}
    {{ '</turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
"""

# Phi: names built from roles, an else of a condition as expression.
TEMPLATES["phi4"] = """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

# DeepSeek: state in a namespace, tool calls as first or later ones, thoughts cut off by split.
TEMPLATES["deepseek"] = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜Q｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none %}{{'<｜A｜><calls>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|string + '\\n' + '```' + '<end>'}}{%- else %}{{'<｜A｜>' + message['content'] + '<calls>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|string + '\\n' + '```' + '<end>'}}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + tool['type'] + '<sep>' + tool['function']['name'] + '<end>'}}{%- endif %}{%- endfor %}{{'</calls>' + eos_token}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.is_tool %}{{'</outputs>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜A｜>' + content + eos_token}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<outputs><output>' + message['content'] + '</output>'}}{%- set ns.is_output_first = false %}{%- else %}{{'<output>' + message['content'] + '</output>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'</outputs>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜A｜><think>\\n'}}{% endif %}"""

# Granite: documents, controls, pieces of text put together before they are printed.
TEMPLATES["granite"] = """{%- if messages[0]['role'] == 'system' %}
 {%- set system_message = messages[0]['content'] %}
 {%- set loop_messages = messages[1:] %}
{%- else %}
 {%- set system_message = "Known until: April 2024.\\nDay: " + strftime_now('%B %d, %Y') + ".\\nYou are a model." %}
 {%- if tools and documents %}
 {%- set system_message = system_message + " You have tools and documents." %}
 {%- elif tools %}
 {%- set system_message = system_message + " You have tools." %}
 {%- elif documents %}
 {%- set system_message = system_message + " You have documents." %}
 {%- endif %}
 {%- if controls and 'citations' in controls and documents %}
 {%- set system_message = system_message + '\\n\\nSay where it stands, as in <co>' %}
 {%- endif %}
 {%- set loop_messages = messages %}
{%- endif %}
{{- '<|r|>system<|/r|>' + system_message + '<|e|>\\n' }}
{%- if tools %}
 {{- '<|r|>tools<|/r|>' }}
 {{- tools | tojson(indent=4) }}
 {{- '<|e|>\\n' }}
{%- endif %}
{%- if documents %}
 {{- '<|r|>documents<|/r|>' }}
 {%- for document in documents %}
 {{- 'Document ' + loop.index | string + '\\n' }}
 {{- document['text'] }}
 {%- if not loop.last %}
 {{- '\\n\\n'}}
 {%- endif%}
 {%- endfor %}
 {{- '<|e|>\\n' }}
{%- endif %}
{%- for message in loop_messages %}
 {{- '<|r|>' + message['role'] + '<|/r|>' + message['content'] + '<|e|>\\n' }}
 {%- if loop.last and add_generation_prompt %}
 {{- '<|r|>assistant' }}
 {%- if controls %}
 {{- ' ' + controls | tojson()}}
 {%- endif %}
 {{- '<|/r|>' }}
 {%- endif %}
{%- endfor %}"""

# gpt-oss: macros that call each other and themselves, types written as a programming language.
TEMPLATES["harmony"] = """{%- macro render_type(spec, required_params, is_nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {%- if spec['items']['type'] == "string" -%}
                {{- "string[]" }}
            {%- elif spec['items']['type'] in ("number", "integer") -%}
                {{- "number[]" }}
            {%- else -%}
                {%- set inner = render_type(spec['items'], required_params) -%}
                {%- if inner == "object | object" or inner|length > 50 -%}
                    {{- "any[]" }}
                {%- else -%}
                    {{- inner + "[]" }}
                {%- endif -%}
            {%- endif -%}
            {%- if spec.nullable -%}
                {{- " | null" }}
            {%- endif -%}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {%- if spec.type | length > 1 -%}
            {{- spec.type | join(" | ") }}
        {%- else -%}
            {{- spec.type[0] }}
        {%- endif -%}
    {%- elif spec.oneOf -%}
        {%- for variant in spec.oneOf -%}
            {{- render_type(variant, required_params) -}}
            {%- if variant.description %}
                {{- "// " + variant.description }}
            {%- endif -%}
            {%- if variant.default is defined %}
                {{ "// default: " + variant.default|tojson }}
            {%- endif -%}
            {%- if not loop.last %}
                {{- " | " }}
            {% endif -%}
        {%- endfor -%}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}
            {{- '"' + spec.enum|join('" | "') + '"' -}}
        {%- else -%}
            {{- "string" }}
            {%- if spec.nullable %}
                {{- " | null" }}
            {%- endif -%}
        {%- endif -%}
    {%- elif spec.type in ["number", "integer"] -%}
        {{- "number" }}
    {%- elif spec.type == "boolean" -%}
        {{- "boolean" }}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\\n" }}
            {%- for prop_name, prop_spec in spec.properties.items() -%}
                {{- prop_name -}}
                {%- if prop_name not in (spec.required or []) -%}
                    {{- "?" }}
                {%- endif -%}
                {{- ": " }}
                {{ render_type(prop_spec, spec.required or []) }}
                {%- if not loop.last -%}
                    {{-", " }}
                {%- endif -%}
            {%- endfor -%}
            {{- "}" }}
        {%- else -%}
            {{- "object" }}
        {%- endif -%}
    {%- else -%}
        {{- "any" }}
    {%- endif -%}
{%- endmacro -%}

{%- macro render_space(name, tools) -%}
    {{- "## " + name + "\\n\\n" }}
    {{- "namespace " + name + " {\\n\\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + (tool.description or "no words") + "\\n" }}
        {{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\\n" }}
            {%- for param_name, param_spec in tool.parameters.properties.items() %}
                {%- if param_spec.description %}
                    {{- "// " + param_spec.description + "\\n" }}
                {%- endif %}
                {{- param_name }}
                {%- if param_name not in (tool.parameters.required or []) -%}
                    {{- "?" }}
                {%- endif -%}
                {{- ": " }}
                {{- render_type(param_spec, tool.parameters.required or []) }}
                {%- if param_spec.default is defined -%}
                    {%- if param_spec.enum %}
                        {{- ", // default: " + param_spec.default }}
                    {%- elif param_spec.oneOf %}
                        {{- "// default: " + param_spec.default }}
                    {%- else %}
                        {{- ", // default: " + param_spec.default|tojson }}
                    {%- endif -%}
                {%- endif -%}
                {%- if not loop.last %}
                    {{- ",\\n" }}
                {%- else %}
                    {{- ",\\n" }}
                {%- endif -%}
            {%- endfor %}
            {{- "}) => any;\\n\\n" }}
        {%- else -%}
            {{- "() => any;\\n\\n" }}
        {%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + name }}
{%- endmacro -%}

{%- if model_identity is not defined %}
    {%- set model_identity = "You are a language model." %}
{%- endif %}
{%- if reasoning_effort is not defined %}
    {%- set reasoning_effort = "medium" %}
{%- endif %}
{{- "<|s|>system<|m|>" + model_identity + "\\nDay: " + strftime_now("%Y-%m-%d") + "\\n\\nEffort: " + reasoning_effort + "<|e|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|s|>developer<|m|>" + developer_message + "\\n\\n" }}
    {%- if tools -%}
        {{- render_space("functions", tools) }}
    {%- endif -%}
    {{- "<|e|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and message.content and ("<|c|>" in message.content) %}
            {{- raise_exception("A mark of the form stands in the content.") }}
        {%- endif %}
        {%- if "tool_calls" in message %}
            {%- set future_final_message = namespace(found=false) %}
            {%- for future_message in loop_messages[loop.index:] %}
                {%- if future_message.role == 'assistant' and "tool_calls" not in future_message %}
                    {%- set future_final_message.found = true %}
                {%- endif %}
            {%- endfor %}
            {%- set tool_call = message.tool_calls[0] %}
            {%- if tool_call.function %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {%- if message.content and message.thinking %}
                {{- raise_exception("Content and thoughts together in a call") }}
            {%- elif message.thinking and not future_final_message.found %}
                {{- "<|s|>assistant<|c|>analysis<|m|>" + message.thinking + "<|e|>" }}
            {%- endif %}
            {{- "<|s|>assistant to=" }}
            {{- "functions." + tool_call.name + "<|c|>json<|m|>" }}
            {{- tool_call.arguments|tojson }}
            {{- "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}
                {{- "<|s|>assistant<|c|>analysis<|m|>" + message.thinking + "<|e|>" }}
            {%- endif %}
            {{- "<|s|>assistant<|c|>final<|m|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|s|>assistant<|c|>final<|m|>" + message.content + "<|e|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}
            {{- raise_exception("A result, but no call before it!") }}
        {%- endif %}
        {{- "<|s|>functions." + last_tool_call.name }}
        {{- " to=assistant<|m|>" + message.content|tojson + "<|e|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|s|>user<|m|>" + message.content + "<|e|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|s|>assistant
{%- endif -%}"""

# SmolLM 3: parts of the system text recognised by words, generation marked.
TEMPLATES["marked"] = """{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}{%- set mode = "/no_think" -%}{%- elif "/think" in system_message -%}{%- set mode = "/think" -%}{%- endif -%}
  {%- set custom = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|a|>system\\n" -}}
{%- if custom -%}{{ custom }}{%- else -%}{{ "Mode: " ~ mode[1:] }}{%- endif -%}
{{- "<|z|>\\n" -}}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else "" -%}
  {%- if message.role == "user" -%}
    {{ "<|a|>user\\n" + content + "<|z|>\\n" }}
  {%- elif message.role == "assistant" -%}
    {% generation %}{% if mode == "/think" %}{{ "<|a|>assistant\\n" + content.lstrip("\\n") + "<|z|>\\n" }}{% else %}{{ "<|a|>assistant\\n<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|z|>\\n" }}{% endif %}{% endgeneration %}
  {%- elif message.role == "tool" -%}
    {{ "<|a|>user\\n" + content + "<|z|>\\n" }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {%- if mode == "/think" -%}{{ "<|a|>assistant\\n" }}{%- else -%}{{ "<|a|>assistant\\n<think>\\n\\n</think>\\n" }}{%- endif -%}
{%- endif -%}"""

# Everything that no family above uses.
TEMPLATES["odd"] = """{%- macro show(name, size=2, sep='-') %}{{ name }}{{ sep * size }}{{ caller() if caller is defined else '' }}{% endmacro -%}
{%- set roles = messages | map(attribute='role') | unique | list -%}
{%- for group in roles | sort(reverse=true) %}
{{ loop.index }}/{{ loop.length }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.cycle('odd', 'even') }} {{ loop.previtem | default('none') }} {{ loop.nextitem | default('none') }}
{%+ if loop.changed(group | first) %}new letter{% endif %}
{%- else %}
nobody
{%- endfor %}
{% call show('x', sep='=') %}inside {{ roles | length }}{% endcall %}
{{ show('y') }}
{% filter upper %}loud {{ roles | join(', ') }}{% endfilter %}

{% set block | trim %}   {{ messages | length }} messages   {% endset %}
[{{ block }}]
{% with a = 1, b = roles %}{{ a }}{{ b }}{% endwith %}
{% for m in messages if m.role != 'system' %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{% if loop.index0 > 3 %}{% break %}{% endif %}{{ m.role[0] | upper }}{% if not loop.last %},{% endif %}{% endfor %}
{% raw %}{{ not this }}{% endraw %}
{{ messages | groupby_is_not_here if false else dict(a=1, b=[none, true]) | tojson(sort_keys=true) }}
"""
TEMPLATES["odd"] = TEMPLATES["odd"].replace("messages | groupby_is_not_here if false else ", "")
