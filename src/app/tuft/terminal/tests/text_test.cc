#include "app/tuft/terminal/text.h"

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/tuft/terminal/screen.h"
#include "app/tuft/terminal/server.h"
#include "app/tuft/terminal/table.h"
#include "app/tuft/terminal/units.h"
#include "base/testing/temp_dir.h"

namespace tuft::terminal {
namespace {

using ::testing::HasSubstr;

TEST(VisibleText, HasNoControlAndNoHiddenCharacters) {
  EXPECT_EQ(visible("plain text, ümlaut, 世界"), "plain text, ümlaut, 世界");
  EXPECT_EQ(visible("\x1b[2J\x07\x7f"), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(visible("a\nb\tc\r"), "a\\nb\\tc\\x0d");
  EXPECT_EQ(visible("\xc2\x9b"
                    "31m"),
            "\\x9b31m");  // CSI as one character of C1
  EXPECT_EQ(visible("a\xe2\x80\xae"
                    "b"),
            "a\\u202eb");  // right to left
  EXPECT_EQ(visible("a\xff"
                    "b\xc3"),
            "a\\xffb\\xc3");                                         // not UTF-8
  EXPECT_EQ(visible("\xe2\x80\x8b\xef\xbb\xbf"), "\\u200b\\ufeff");  // zero width
  EXPECT_EQ(visible(visible("\x1b")), visible("\x1b"));
}

TEST(VisibleText, IsMeasuredInColumns) {
  EXPECT_EQ(columns_of("abc"), 3u);
  EXPECT_EQ(columns_of("世界"), 4u);
  EXPECT_EQ(columns_of("e\xcc\x81"), 1u);  // a combining accent
  EXPECT_EQ(columns_of("\x1b"), 4u);
  EXPECT_EQ(left_aligned("ab", 4), "ab  ");
  EXPECT_EQ(right_aligned("ab", 4), "  ab");
  EXPECT_EQ(left_aligned("abcdef", 4), "abc~");
  EXPECT_EQ(left_aligned("世界世", 4), "世~ ");
  EXPECT_EQ(cut("abc", 0), "");
}

TEST(Lines, EscapeWhatTheyAreGivenAndKeepStylesApart) {
  Line line("a\x1b[31mb", Style::kRed);
  line.add(" tail");
  EXPECT_EQ(line.plain(), "a\\x1b[31mb tail");
  EXPECT_EQ(line.styled(), "\x1b[31ma\\x1b[31mb\x1b[0m tail");
  EXPECT_EQ(line.plain(5), "a\\x1~");
  EXPECT_EQ(Line("ab").to(4).add("c").plain(), "ab  c");
  EXPECT_EQ(plain_text({Line("a  "), Line()}), "a\n\n");
}

TEST(Tables, LeaveOutColumnsThatDoNotFit) {
  const std::vector<Column> columns = {
      {.title = "ID"}, {.title = "NUMBER", .right = true, .rank = 1}, {.title = "LONG", .columns_max = 6, .rank = 2}};
  const std::vector<Row> rows = {{{"one"}, {"1"}, {"abcdefgh"}}, {{"two"}, {"22"}, {""}}};
  EXPECT_EQ(plain_text(table_lines(columns, rows, 0)),
            "ID   NUMBER  LONG\n"
            "one       1  abcde~\n"
            "two      22\n");
  EXPECT_EQ(plain_text(table_lines(columns, rows, 12)), "ID   NUMBER\none       1\ntwo      22\n");
  EXPECT_EQ(plain_text(table_lines(columns, rows, 1)), "ID\none\ntwo\n");
}

TEST(Units, AreShortAndExact) {
  EXPECT_EQ(duration_text(850), "850 us");
  EXPECT_EQ(duration_text(12'345), "12.3 ms");
  EXPECT_EQ(duration_text(999'700), "1.00 s");
  EXPECT_EQ(duration_text(4'560'000), "4.56 s");
  EXPECT_EQ(duration_text(200e6), "3m20s");
  EXPECT_EQ(duration_text(8100e6), "2h15m");
  EXPECT_EQ(duration_text(76 * 3600e6), "3d4h");
  EXPECT_EQ(duration_text(std::nullopt), "-");
  EXPECT_EQ(duration_text(NAN), "-");
  EXPECT_EQ(count_text(17), "17");
  EXPECT_EQ(count_text(0.25), "0.25");
  EXPECT_EQ(count_text(12'345), "12.3k");
  EXPECT_EQ(count_text(4.5e6), "4.50M");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1'073'741'824), "1.07 GB");
  EXPECT_EQ(share_text(0.416), "42 %");
}

TEST(Units, TimesAreLocal) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(clock_text(1'764'043'927'123'456.0), "04:12:07.123");
  EXPECT_EQ(day_text(1'764'043'927'123'456.0), "2025-11-25 04:12:07.123");
  EXPECT_EQ(clock_text(-1), "-");
  EXPECT_EQ(clock_text(1e300), "-");
}

TEST(Units, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(*parse_duration("250us"), 250);
  EXPECT_EQ(*parse_duration("50"), 50'000);
  EXPECT_EQ(*parse_duration("1.5m"), 90e6);
  for (const char* wrong : {"", "fast", "-1s", "1 s", "1e3s", "nan"}) EXPECT_FALSE(parse_duration(wrong).ok()) << wrong;
  EXPECT_EQ(*parse_point("15m"), "-15m");
  EXPECT_EQ(*parse_point("-15m"), "-15m");
  EXPECT_EQ(*parse_point("2026-07-13T00:00:00Z"), "1783900800000000");
  EXPECT_EQ(*parse_point("2026-07-13"), "1783900800000000");
  EXPECT_EQ(*parse_point("1783900800000000"), "1783900800000000");
  for (const char* wrong : {"", "yesterday", "-", "15", "15x"}) EXPECT_FALSE(parse_point(wrong).ok()) << wrong;
}

TEST(Addresses, AreReadInAllForms) {
  EXPECT_EQ(parse_address("http://h:1")->text(), "http://h:1");
  EXPECT_EQ(parse_address("https://tuft.example/")->text(), "https://tuft.example:443");
  EXPECT_EQ(parse_address("localhost:80/tuft/")->text(), "http://localhost:80/tuft");
  EXPECT_EQ(parse_address("localhost")->text(), "http://localhost:10610");
  EXPECT_EQ(parse_address("http://[::1]:5")->host, "::1");
  EXPECT_EQ(parse_address("http://[::1]:5")->text(), "http://[::1]:5");
  for (const char* wrong :
       {"", "ftp://h", "http://", "http://h:0", "http://h:70000", "http://h:1x", "http://u@h", "h h"}) {
    EXPECT_FALSE(parse_address(wrong).ok()) << wrong;
  }
}

class Environment : public ::testing::Test {
 protected:
  Environment() {
    for (const char* name : {"TUFT_URL", "TUFT_API_KEY", "TINKER_API_KEY"}) ::unsetenv(name);
  }
};

TEST_F(Environment, NamesTheServerAfterTheFlag) {
  const TempDir home;
  EXPECT_EQ(find_server("", home.path())->text(), "http://127.0.0.1:10610");
  std::ofstream(home / "tuft_current_server") << "http://127.0.0.1:4242";
  EXPECT_EQ(find_server("", home.path())->text(), "http://127.0.0.1:4242");
  ::setenv("TUFT_URL", "https://h", 1);
  EXPECT_EQ(find_server("", home.path())->text(), "https://h:443");
  EXPECT_EQ(find_server("http://flag:1", home.path())->text(), "http://flag:1");
}

TEST_F(Environment, HoldsTheKey) {
  EXPECT_THAT(find_key().error().message, HasSubstr("TUFT_API_KEY"));
  EXPECT_THAT(find_key().error().message, HasSubstr("not taken from the command line"));
  ::setenv("TINKER_API_KEY", "tml-a", 1);
  EXPECT_EQ(*find_key(), "tml-a");
  ::setenv("TUFT_API_KEY", "tml-b", 1);
  EXPECT_EQ(*find_key(), "tml-b");
  ::setenv("TUFT_API_KEY", "tml-b\nX-Evil: 1", 1);
  EXPECT_FALSE(find_key().ok());
}

TEST(Queries, AreEncoded) {
  Query query;
  EXPECT_EQ(query.target("/p"), "/p");
  query.add("text", "a b&c=d/ü");
  query.add("empty", "");
  query.add("from", "-15m");
  EXPECT_EQ(query.target("/p"), "/p?text=a%20b%26c%3dd%2f%c3%bc&from=-15m");
}

TEST(Keys, AreTakenOneByOne) {
  std::string input = "\x1b[A\tq\x1b[99;5zr\x1bOB\x1b[5~\x1b";
  std::vector<std::string> keys;
  while (!input.empty()) keys.push_back(take_key(input));
  EXPECT_THAT(keys, ::testing::ElementsAre("up", "tab", "q", "", "r", "down", "pageup", ""));
}

}  // namespace
}  // namespace tuft::terminal
