#pragma once

// The file formats of CIFAR-10 and CIFAR-100. Does not use torch.

#include <cstdint>
#include <string>
#include <vector>

namespace keel::lab {

struct CifarFormat {
  const char *name, *folder;
  std::vector<std::string> train, test;
  /// A record has one byte for each kind of label, then the pixels.
  struct Labels {
    const char* kind;   ///< value of DataOptions::labels
    const char* names;  ///< the file with the class names
    std::int64_t classes;
  };
  std::vector<Labels> labels;
  /// The authors' archive: https://www.cs.toronto.edu/~kriz/cifar.html.
  struct Archive {
    const char *file, *url, *md5;
    std::int64_t size;
  } archive;

  std::int64_t record() const { return std::int64_t(labels.size()) + 3 * 32 * 32; }
  /// All files: images and names.
  std::vector<std::string> files() const;
};

/// `source` is cifar10 or cifar100.
CifarFormat cifar_format(const std::string& source);

}  // namespace keel::lab
