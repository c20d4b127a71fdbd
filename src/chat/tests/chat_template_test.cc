#include "chat/chat_template.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tuft::chat {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

Result<std::string> render(std::string_view source, const Json& messages = Json::array(),
                           const RenderOptions& options = {}) {
  TUFT_ASSIGN(const ChatTemplate parsed, ChatTemplate::parse(source));
  return parsed.render(messages, options);
}

Error parse_error(std::string_view source) {
  const auto parsed = ChatTemplate::parse(source);
  EXPECT_FALSE(parsed.ok()) << source;
  return parsed.ok() ? Error{} : parsed.error();
}

TEST(ChatTemplate, ConversationThenItsText) {
  RenderOptions options;
  options.add_generation_prompt = true;
  const auto text = render(
      "{%- for m in messages %}\n<|{{ m.role }}|>{{ m['content'] | trim }}<|end|>\n{%- endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
      Json::parse(R"([{"role": "user", "content": " Grüß Gott "}])"), options);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "<|user|>Grüß Gott<|end|><|assistant|>");
}

TEST(ChatTemplate, SpecialTokensAndVariablesThenNames) {
  RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}};
  const Json variables = {{"enable_thinking", false}};
  options.variables = &variables;
  options.now = 86'400 * kSecond;
  const auto text =
      render("{{ bos_token }}{{ eos_token }}{{ enable_thinking }} {{ tools }} {{ strftime_now('%d %b %Y') }}",
             Json::array(), options);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "<s>False None 02 Jan 1970");
}

// Names are searched in a list, so that 300,000 of them took a minute.
TEST(ChatTemplate, VariablesThatItDoesNotReadThenTheyCostNothing) {
  Json::object_t names;
  Json::object_t::Container& list = names;
  for (int i = 0; i < 300'000; ++i) list.emplace_back("name" + std::to_string(i), i);
  const Json variables = std::move(names);
  RenderOptions options;
  options.variables = &variables;
  const auto text = render("{{ name299999 }}", Json::array(), options);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "299999");
  options.limits.steps = 100'000;
  EXPECT_EQ(render("", Json::array(), options).error().code, ErrorCode::kResourceExhausted);
}

TEST(ChatTemplate, ReasoningUnderAnyNameThenAllNames) {
  const auto text = render("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}",
                           Json::parse(R"([{"role": "assistant", "reasoning": "why"}])"));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "whywhy");
}

TEST(ChatTemplate, TemplateRaisesThenItsTextAndReason) {
  const auto text = render("{{ raise_exception('roles must ' ~ 'alternate') }}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(text.error().reason, "template_raised");
  EXPECT_EQ(text.error().message, "roles must alternate");
}

TEST(ChatTemplate, UndefinedIsUsedThenErrorNamesItAndItsLine) {
  const auto text = render("a\n{{ nothing.at_all }}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "chat template, line 2: 'nothing' is undefined");
  EXPECT_EQ(text.error().reason, "template_failed");
}

TEST(ChatTemplate, UnsupportedThenRefusedByNameAndLineWhenParsed) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n{% include 'x' %}", "line 2: the tag 'include'"},
      {"{{ x | pprint }}", "the filter 'pprint'"},
      {"{{ x is escaped }}", "the test 'escaped'"},
      {"{{ x.encode() }}", "the method 'encode'"},
      {"{{ cycler(1) }}", "the function 'cycler'"},
      {"{{ f(*x) }}", "an argument after *"},
      {"{{ '%d' % 3 }}", "the operator % on strings"},
      {"{% for x in y recursive %}{% endfor %}", "recursive"},
      {"{{ x|map('pprint') }}", "the filter 'pprint'"},
      {"{{ 99999999999999999999 }}", "beyond 64 bits"},
      {"{{ x|select('odder') }}", "the test 'odder'"},
      {"{{ '{}'.format(1) }}", "the method 'format'"},
      {"{% raw %}{{ { %}", "the tag 'raw'"},
      {"{% with a = 1 %}{% endwith %}", "the tag 'with'"},
      {"{% print 1 %}", "the tag 'print'"},
      {"{% set a, b = 1, 2 %}", "several names"},
      {"{% set a | trim %}{% endset %}", "a filter"},
      {"{% call(a) m() %}{% endcall %}", "parameters"},
      {"{{ 2 ** 3 }}", "the operator **"},
      {"{{ +x }}", "the sign +"},
      {"{{ 0x1F }}", "a number"},
      {"{{ 1e5 }}", "a number"},
      {"{{ '\\101' }}", "escape"},
      {"{{ x | round }}", "the filter 'round'"},
      {"{{ x is odd }}", "the test 'odd'"},
      {"{{ x.zfill(3) }}", "the method 'zfill'"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", "the name 'varargs'"},
      {"{% for a, (b, c) in x %}{% endfor %}", "nested names"},
  };
  for (const auto& [source, part] : cases) {
    const Error error = parse_error(source);
    EXPECT_EQ(error.code, ErrorCode::kUnimplemented) << source;
    EXPECT_THAT(error.message, HasSubstr(part)) << source;
  }
}

TEST(ChatTemplate, UnsupportedShowsWhenRenderedThenRefused) {
  for (const char* source :
       {"{{ loop.cycle }}", "{{ 1.5 // 2 }}", "{{ {1.5: 2} }}", "{{ range(3)[0] }}", "{{ range(3) }}",
        "{{ 'a'|replace('', 'b') }}", "{{ '1_000'|int }}", "{{ strftime_now('%f') }}"}) {
    const auto text = render("{% for i in [1] %}" + std::string(source) + "{% endfor %}");
    ASSERT_FALSE(text.ok()) << source << ": " << *text;
    EXPECT_EQ(text.error().code, ErrorCode::kUnimplemented) << source << ": " << text.error().message;
    EXPECT_THAT(text.error().message, HasSubstr("line 1: ")) << source;
  }
}

TEST(ChatTemplate, CaseOfLettersBeyondAsciiThenMappedOneToOne) {
  const auto text = render("{{ 'é ñ Ж ΑΣ'|lower }} {{ 'é ñ ж'|upper }} {{ 'éa ñb'|title }}");
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "é ñ ж ασ É Ñ Ж Éa Ñb") << "there is no rule for a final sigma";
}

TEST(ChatTemplate, BrokenThenRefusedWithItsLine) {
  for (const char* source :
       {"{{ ", "{% if x %}", "{% endif %}", "{{ 'a }}", "{# x", "{{ a b }}", "{% for x %}{% endfor %}", "{{ (1 }}",
        "{% set 3 = 4 %}", "{% break %}", "{{ 1 }", "{% nonsense %}", "{{ }}", "{{ \xff }}"}) {
    const Error error = parse_error(source);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << source;
  }
  EXPECT_THAT(parse_error("a\nb\n{{ a b }}").message, HasSubstr("line 3"));
}

TEST(ChatTemplate, UsesThenNamesThatExpressionsRead) {
  const auto parsed = ChatTemplate::parse("{% set x = tools %}{{ y.documents }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->uses("tools"));
  EXPECT_FALSE(parsed->uses("documents"));
}

TEST(ChatTemplate, MessagesAreNotAListOfObjectsThenRefused) {
  EXPECT_EQ(render("x", Json("text")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(render("x", Json::parse("[1]")).error().code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, TextIsNotUtf8ThenRefused) {
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", "\xff\xfe"}});
  EXPECT_EQ(render("{{ messages[0].content }}", messages).error().code, ErrorCode::kInvalidArgument);
}

// Each template exceeds one of the limits: time, memory, depth or output.
TEST(ChatTemplateLimits, HostileTemplateThenItEndsWithTheLimit) {
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{{ 'x' * 99999999999 }}",
           "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set n = namespace(s='x') %}{% for i in range(100) %}{% set n.s = n.s|replace('x', 'xx') %}{% endfor %}",
           "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
           "{{ [1]|tojson(indent=99999999999) }}",
           "{{ 'x'|indent(99999999999) }}",
           "{{ range(100000)|list|join('z' * 99999) }}",
           "{%macro a()%}{{caller()}}{%endmacro%}{%macro b()%}{%call a()%}{{b()}}{%endcall%}{%endmacro%}{{b()}}",
       }) {
    const auto text = render(source);
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kResourceExhausted) << source << ": " << text.error().message;
    EXPECT_EQ(text.error().reason, "template_limit");
  }
}

TEST(ChatTemplateLimits, DeeplyNestedValuesThenErrorInsteadOfStackOverflow) {
  const auto text =
      render("{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().reason, "template_failed");
}

TEST(ChatTemplateLimits, CyclesOfNamespacesAndLoopsAreHarmless) {
  EXPECT_TRUE(
      render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a.b.a.b.a is defined }}").ok());
  EXPECT_TRUE(render("{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.l = loop %}{{ loop.index }}"
                     "{% endfor %}{{ ns.l.index }}{{ ns.l.last }}")
                  .ok());
  EXPECT_FALSE(render("{% set a = namespace() %}{% set a.a = a %}{{ a }}").ok());
}

TEST(ChatTemplateLimits, MacroOutlivesItsLoopThenItKeepsItsScope) {
  const auto text = render(
      "{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}<{{ i }}>{% endmacro %}{% set ns.get = m %}"
      "{% endfor %}{% for j in [7, 8, 9] %}{{ ns.get() }}{% endfor %}");
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "<2><2><2>");
}

TEST(ChatTemplateLimits, DeeplyNestedSourceThenRefused) {
  const auto repeat = [](const std::string& part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  for (const std::string& source :
       {"{{ " + repeat("(", 50'000) + "1" + repeat(")", 50'000) + " }}", "{{ " + repeat("-", 50'000) + "1 }}",
        "{{ " + repeat("not ", 50'000) + "1 }}", "{{ 1" + repeat(" + 1", 50'000) + " }}",
        "{{ a" + repeat(".b", 50'000) + " }}", "{{ a" + repeat("|d", 50'000) + " }}", repeat("{% if a %}", 50'000),
        "{{ 1" + repeat(" if 1 else 1", 50'000) + " }}", "{{ " + repeat("[", 50'000),
        repeat("{% for a in b %}", 50'000), "{{ a" + repeat(" and a", 50'000) + " }}"}) {
    EXPECT_FALSE(ChatTemplate::parse(source).ok()) << source.substr(0, 20);
  }
}

TEST(ChatTemplateLimits, ConversationDeeperThanAllowedThenRefused) {
  Json deep = 1;
  for (int i = 0; i < 500; ++i) deep = Json::array({deep});
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", deep}});
  EXPECT_EQ(render("{{ messages }}", messages).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tuft::chat
