#include "lab/report/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(Progress, OneStepIsSingular) {
  for (const auto& [steps, expected] :
       {std::pair{1, "finished after 1 step,"}, std::pair{2, "finished after 2 steps,"}}) {
    const auto text = printed(false, [count = steps](StatusLine& line) {
      Result result;
      result.status = "finished";
      result.steps = count;
      ProgressPrinter(line).on_finish(result);
    });
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  }
}

TEST(Progress, TheBarNeverWraps) {
  const auto text = printed(
      true, [](StatusLine& line) { line.show(std::string(200, 'x').append("±")); }, 40);
  EXPECT_NE(text.find(std::string(39, 'x')), std::string::npos);
  EXPECT_EQ(text.find(std::string(40, 'x')), std::string::npos);
}

TEST(Progress, BarsOfAnyPart) {
  EXPECT_EQ(bar(0.5, 4), "[##..]");
  EXPECT_EQ(bar(7, 4), "[####]");
  EXPECT_EQ(bar(-1, 4), "[....]");
  EXPECT_EQ(bar(0.0 / 0.0, 4), "[....]");
}

}  // namespace
}  // namespace keel::lab::report
