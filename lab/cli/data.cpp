#include <fmt/format.h>
#include <torch/types.h>

#include "keel/torch/threads.h"
#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/data/data_set.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/storage/files.h"

namespace keel::cli {
namespace {

using lab::report::put;

void print_summary(const lab::DataSet& data) {
  const auto& pixels = data.train.pixels;
  put(stdout, "{}: {} training and {} test images of {} x {}, {} classes\n", data.name,
      data.train.count(), data.test.count(), pixels.size(2), pixels.size(3), data.classes.size());
  put(stdout, "mean {:.4f} {:.4f} {:.4f}, deviation {:.4f} {:.4f} {:.4f}\n", data.mean[0],
      data.mean[1], data.mean[2], data.deviation[0], data.deviation[1], data.deviation[2]);
  const auto classes = std::int64_t(data.classes.size());
  const auto train = torch::bincount(data.train.labels, {}, classes);
  const auto test = torch::bincount(data.test.labels, {}, classes);
  lab::report::Table table({"class", "training", "test"});
  for (std::int64_t i = 0; i < classes; ++i)
    table.add({data.classes[std::size_t(i)], std::to_string(train[i].item<std::int64_t>()),
               std::to_string(test[i].item<std::int64_t>())});
  put(stdout, "\n{}", table.aligned());
}

}  // namespace

int data(const std::vector<std::string>& arguments) {
  std::string packed;
  lab::TrainOptions options;
  const auto app =
      make_app("data", "Prints what is in a data set, or packs it into one file that loads fast.");
  app->add_option("--pack", packed, "write the packed form to this file, in place of what it was")
      ->type_name("FILE");
  add_options(*app, options, lab::options_about({lab::About::data, lab::About::place}));
  if (const auto code = parse(*app, arguments)) return *code;
  keel::use_all_cores();
  of_the_command_line([&] { validate(options.data); });
  if (!packed.empty()) lab::check_writable(packed);
  const lab::DataSet set = lab::load(options.data);
  print_summary(set);
  if (!packed.empty()) {
    lab::pack(set, packed);
    put(stdout, "\n{}: {} bytes; `keel train --source packed --path {}` reads it\n", packed,
        std::filesystem::file_size(packed), for_shell(packed));
  }
  return kDone;
}

}  // namespace keel::cli
