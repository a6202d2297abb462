// The first byte selects the set and the file that the other bytes replace. The other files are good.

#include <torch/types.h>

#include "lab/data/data_set.h"
#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::cifar {

constexpr std::size_t kPixels = 3072;

struct Set {
  const char* source;
  std::size_t labels;  ///< bytes in a record
  std::vector<const char*> files;
};

const Set kSets[] = {{"cifar10",
                      1,
                      {"data_batch_1.bin", "test_batch.bin", "batches.meta.txt", "data_batch_2.bin",
                       "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}},
                     {"cifar100", 2, {"train.bin", "test.bin", "fine_label_names.txt"}}};
constexpr std::size_t kNames = 2;  // index in `files`

void attack(const std::string& bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<unsigned char>(bytes[0]);
  const Set& set = kSets[choice % 2];
  const auto where = folder() / kHostile / set.source;
  for (std::size_t i = 0; i < set.files.size(); ++i)
    if (i != kNames)
      testing::write_bytes(where / set.files[i], std::string(set.labels + kPixels, '\1'));
  std::filesystem::remove(where / set.files[kNames]);
  testing::write_bytes(where / set.files[choice / 2 % 3], bytes.substr(1));

  const auto data = lab::load({.source = set.source, .path = where, .size = 4, .train_limit = 2});
  expect(data.train.labels.min().item<std::int64_t>() >= 0 &&
             data.train.labels.max().item<std::int64_t>() < std::int64_t(data.classes.size()),
         "labels of classes");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (char choice = 0; choice < 4; ++choice) {
    const std::size_t record = kSets[choice % 2].labels + kPixels;
    all.push_back(std::string(1, choice) + std::string(record, '\2') + std::string(record, '\3'));
  }
  for (const int set : {0, 1}) {
    std::string names(1, char(2 * kNames + set));
    for (int i = 0; i < (set == 0 ? 10 : 100); ++i) names += "n\r\n";
    all.push_back(names);
  }
  return all;
}

const Registration registration({"cifar", attack, seeds});

}  // namespace keel::fuzz::cifar
