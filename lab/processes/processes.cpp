#include "lab/processes/processes.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "lab/storage/json.h"

namespace keel::lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kProcesses = "keel::lab::Processes";
constexpr int kPatience = 10;  ///< timeouts to wait at a barrier for a live process

std::string words_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torchs != nullptr ? torchs->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return words_of(known);
  } catch (...) {
    return "an unknown error";
  }
}

std::string in_seconds(milliseconds time) {
  return fmt::format("{:g} s", double(time.count()) / 1e3);
}

void end_process(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
  _exit(6);  // the waiting thread cannot be unwound
}

}  // namespace

Processes::Processes(const Place& place, const JoinOptions& options)
    : place_(place), options_(options) {
  if (!options_.lost) options_.lost = end_process;
  try {
    store_ = open_store(place_, options_.timeout);
    mailbox_ = store_->mailbox();
    const auto lost = [process = place_.process, end = options_.lost](const std::string& why) {
      end(fmt::format("{}: process {} stops: {}", kProcesses, process, why));
    };
    heart_ = std::make_unique<Heartbeat>(
        store_->mailbox(),
        Heartbeat::Options{.process = place_.process,
                           .size = place_.size,
                           .timeout = options_.timeout,
                           .keeper = place_.store_is_kept ? "the agent at " + place_.store()
                                                          : "process 0 at " + place_.store(),
                           .lost = lost});
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw ProcessError(
        place_.process == 0 && !place_.store_is_kept
            ? fmt::format(
                  "{}: process 0 cannot open the store at {} (MASTER_ADDR, MASTER_PORT; is the "
                  "port taken?): {}",
                  kProcesses, place_.store(), words_of(error))
            : fmt::format(
                  "{}: process {} found no store at {} (MASTER_ADDR, MASTER_PORT) within {}: is "
                  "process 0 there? {}",
                  kProcesses, place_.process, place_.store(), in_seconds(options_.timeout),
                  words_of(error)));
  }
  try {
    join();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_at_store(words_of(error));
  }
}

Processes::~Processes() = default;

void Processes::join() {
  // A process that has not started yet gives no sign of life, but is not lost. A store that does not answer is lost,
  // so the heartbeat watches each request separately.
  const auto ask = [&](const auto& question) {
    const Heartbeat::Waiting waiting(*heart_);
    return question();
  };
  const auto key = [](auto process) { return fmt::format("joined/{}", process); };
  const auto told_by = [&](auto process) {
    return ask([&] { return mailbox_->get(key(process)); });
  };

  if (ask([&] { return mailbox_->add(fmt::format("count/{}", process()), 1); }) > 1)
    fail(fmt::format("two processes say they are process {} (RANK)", process()));
  ask([&] { mailbox_->set(key(process()), std::to_string(size())); });
  const auto deadline = Clock::now() + options_.timeout;
  for (std::int64_t other = 0; other < size();) {
    const auto told = told_by(other);
    if (!told) {
      if (const auto why = heart_->alarm(); !why.empty()) fail(why);
      if (Clock::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(5));
        continue;
      }
      std::string missing;
      for (std::int64_t i = 0; i < size(); ++i)
        if (!told_by(i)) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
      fail(fmt::format("expected {} processes (WORLD_SIZE) within {}, without process {}", size(),
                       in_seconds(options_.timeout), missing));
    }
    if (*told != std::to_string(size()))
      fail(fmt::format("process {} was told WORLD_SIZE {}, process {} was told {}", other, *told,
                       process(), size()));
    ++other;
  }
}

void Processes::fail(const std::string& why) {
  heart_->raise_alarm(why);
  throw ProcessError(fmt::format("{}: process {} stops: {}", kProcesses, process(), why));
}

void Processes::fail_at_store(const std::string& what) {
  const std::string why = heart_->blame(/*stuck=*/false);
  fail(fmt::format("{} ({})", why.empty() ? "the store at " + place_.store() + " failed" : why,
                   what));
}

std::pair<std::int64_t, std::int64_t> Processes::part_of(std::int64_t count) const {
  return {count * process() / size(), count * (process() + 1) / size()};
}

void Processes::require_same(const nlohmann::json& settings) {
  if (is_first()) mailbox_->set("settings", settings.dump());
  meet();
  const auto firsts =
      parse_json(mailbox_->get("settings").value_or("{}"), "what process 0 was told");
  for (const auto& [name, value] : settings.items())
    if (!firsts.contains(name) || firsts[name] != value)
      fail(fmt::format("process {} was given {} {}, process 0 {}", process(), name, value.dump(),
                       firsts.value(name, nlohmann::json()).dump()));
  meet();
}

void Processes::meet() {
  const Heartbeat::Waiting waiting(*heart_);
  const std::string here = fmt::format("meeting/{}", ++meetings_), seen = here + "/seen";
  const auto wait_for = [&](const std::string& key, std::int64_t count) {
    auto pause = milliseconds(1);
    auto deadline = Clock::now() + options_.timeout;
    for (int patience = kPatience; mailbox_->add(key, 0) < count;) {
      if (const auto why = heart_->alarm(); !why.empty()) fail(why);
      if (Clock::now() > deadline) {
        const std::string why = heart_->blame(/*stuck=*/--patience == 0);
        if (!why.empty()) fail(why);
        if (patience == 0) fail(fmt::format("not all came to meeting {}", meetings_));
        deadline = Clock::now() + options_.timeout;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, milliseconds(20));
    }
  };
  try {
    mailbox_->add(here, 1);
    wait_for(here, size());
    // Rank 0 leaves last, because it may host the store.
    if (is_first())
      wait_for(seen, size() - 1);
    else
      mailbox_->add(seen, 1);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_at_store(words_of(error));
  }
}

void Processes::connect(torch::Device device) {
  meet();
  try {
    // The rest of the timeout is reserved for finding out which process is to blame.
    collectives_ = store_->collectives(place_, device, options_.timeout - heart_->longest_blame());
  } catch (const Error&) {
    throw;
  } catch (...) {
    sum_failed_ = true;
    explain(std::current_exception());
  }
}

void Processes::run(void (Collectives::*collective)(torch::Tensor&), torch::Tensor& tensor) {
  const Heartbeat::Waiting waiting(*heart_);
  heart_->begin_sum();
  try {
    (*collectives_.*collective)(tensor);
  } catch (...) {
    sum_failed_ = true;
    throw;
  }
}

void Processes::sum(torch::Tensor& tensor) { run(&Collectives::sum, tensor); }

void Processes::broadcast(torch::Tensor& tensor) { run(&Collectives::broadcast, tensor); }

std::unique_ptr<GradientSum> Processes::gradient_sum(const std::vector<torch::Tensor>& parameters) {
  return collectives_->gradient_sum(
      parameters, {[this] { heart_->begin_sum(); }, [this] { sum_failed_ = true; }});
}

keel::nn::ProcessGroup Processes::group() {
  return {process(), size(), [this](torch::Tensor& tensor) { sum(tensor); }};
}

std::vector<bool> Processes::any(const std::vector<bool>& here, torch::Device device) {
  torch::Tensor flags = torch::tensor(std::vector<float>(here.begin(), here.end())).to(device);
  sum(flags);
  flags = flags.cpu();
  const float* const first = flags.data_ptr<float>();
  return std::vector<bool>(first, first + here.size());  // not zero: true
}

void Processes::explain(std::exception_ptr error) {
  const std::string what = words_of(error);
  // A live process that is behind can only be to blame for a failed collective.
  const std::string why = heart_->blame(/*stuck=*/sum_failed_);
  if (!why.empty()) {
    heart_->raise_alarm(why);
    throw ProcessError(fmt::format("{}: process {} stops after step {}: {}. What it met: {}",
                                   kProcesses, process(), step_, why, what));
  }
  heart_->raise_alarm(fmt::format("process {} stopped after step {}: {}", process(), step_, what));
  std::rethrow_exception(error);
}

}  // namespace keel::lab
