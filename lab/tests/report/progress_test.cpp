#include "lab/report/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

/// What `body` prints, with or without a terminal.
template <typename Body>
std::string printed(bool terminal, const Body& body, std::size_t width = 80) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  {
    StatusLine line(stream, terminal, width);
    body(line);
  }
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

RunInfo info() {
  RunInfo info;
  info.options.epochs = 2;
  info.steps_per_epoch = 10;
  info.steps = 20;
  return info;
}

StepRecord step() {
  StepRecord record;
  record.step = 10;
  record.loss = 1.25;
  record.error = 0.5;
  record.images_per_second = 1234;
  return record;
}

TEST(Progress, NamesGiveTheTerminalNoOrders) {
  for (const auto& [text, safe] : std::vector<std::pair<std::string, std::string>>{
           {"plain, caf\xc3\xa9\t\xe6\x9d\xbe\n\xf0\x9f\x90\x9f",
            "plain, caf\xc3\xa9\t\xe6\x9d\xbe\n\xf0\x9f\x90\x9f"},
           {"\x1b[2J\r\a", "\\x1b[2J\\x0d\\x07"},
           {std::string("\0\x7f", 2), "\\x00\\x7f"},
           {"\xc2\x9b"
            "2J",
            "\\u009b2J"},  // the same order in one character
           {"\x9b"
            "2J",
            "\\x9b2J"},                                              // and in one byte
           {"\xe2\x80\xaetxt.exe", "\\u202etxt.exe"},                // shows exe.txt
           {"\xc0\x9b \xe0\x80\x9b", "\\xc0\\x9b \\xe0\\x80\\x9b"},  // longer than they need be
           {"\xed\xa0\x80 \xf4\x90\x80\x80 \xff", "\\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xff"},
           {"cut \xe6\x9d", "cut \\xe6\\x9d"}})
    EXPECT_EQ(harmless(text), safe);
  EXPECT_EQ(printed(true, [](StatusLine& line) { line.show("\x1b[2J"); }),
            "\r\033[K\\x1b[2J\r\033[K");
  EXPECT_EQ(printed(false, [](StatusLine& line) { line.print("\x1b[2J"); }), "\\x1b[2J\n");
}

TEST(Progress, ATerminalSeesABarThatGoesAway) {
  const auto text = printed(true, [](StatusLine& line) {
    ProgressPrinter printer(line);
    printer.on_start(info());
    printer.on_step(step());
  });
  EXPECT_NE(text.find("epoch 1/2 [##########..........] loss 1.250  error 50.0 %  1234 images/s"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.substr(text.size() - 4), "\r\033[K");
}

TEST(Progress, ALogSeesPlainLinesOnly) {
  const auto text = printed(false, [](StatusLine& line) {
    ProgressPrinter printer(line);
    printer.on_start(info());
    printer.on_step(step());
    EpochRecord epoch;
    epoch.test_error = 0.125;
    printer.on_epoch(epoch);
    epoch.epoch = 1;
    epoch.test_error = std::nan("");
    printer.on_epoch(epoch);
  });
  EXPECT_EQ(text.find("test loss"), text.rfind("test loss")) << text;  // not of the second
  EXPECT_NE(text.find("epoch 2/2"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("epoch 1/2"), std::string::npos) << text;
  EXPECT_NE(text.find("12.50 %"), std::string::npos) << text;
}

TEST(Progress, TheBarNeverWraps) {
  const auto text = printed(
      true, [](StatusLine& line) { line.show(std::string(200, 'x').append("±")); }, 40);
  EXPECT_NE(text.find(std::string(39, 'x')), std::string::npos);
  EXPECT_EQ(text.find(std::string(40, 'x')), std::string::npos);
}

}  // namespace
}  // namespace keel::lab::report
