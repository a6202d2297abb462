#pragma once

// What the binary sets of CIFAR-10 and CIFAR-100 are made of. No torch here.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace keel::lab {

struct CifarFormat {
  const char *name, *folder;
  std::vector<std::string> train, test;
  /// A record has a byte for each kind of label, and the pixels.
  struct Labels {
    const char* kind;   ///< of DataOptions::labels
    const char* names;  ///< the file with the names of the classes
    std::int64_t classes;
  };
  std::vector<Labels> labels;
  /// As its makers publish it: https://www.cs.toronto.edu/~kriz/cifar.html.
  struct Archive {
    const char *file, *url, *md5;
    std::int64_t size;
  } archive;

  std::int64_t record() const { return std::int64_t(labels.size()) + 3 * 32 * 32; }
  /// All of them: images and names.
  std::vector<std::string> files() const;
};

/// `source`: cifar10 or cifar100.
CifarFormat cifar_format(const std::string& source);

}  // namespace keel::lab
