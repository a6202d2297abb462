// A folder of classes: DIR/train/CLASS/* and DIR/test/CLASS/*, or DIR/CLASS/*, which this file splits.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "lab/data/sources.h"
#include "lab/random.h"
#include "lab/storage/json.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

struct Listing {
  std::vector<fs::path> files;
  std::vector<std::int64_t> labels;

  void add(const fs::path& file, std::int64_t label) {
    files.push_back(file);
    labels.push_back(label);
  }
  Listing limited_to(std::int64_t limit, std::uint64_t seed) const {
    Listing result;
    for (std::int64_t i : limited(labels, limit, seed))
      result.add(files[std::size_t(i)], labels[std::size_t(i)]);
    return result;
  }
};

bool hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

bool named_as_image(const fs::path& file) {
  std::string extension = file.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return char(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// The names of the subfolders, sorted, so that class numbers do not depend on the order on disk.
std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && !hidden(entry)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  // Names are written to JSON, for example in checkpoints, and must read back unchanged.
  for (const std::string& name : names)
    require_of(folder / name, is_utf8(name), "expected a name in UTF-8");
  return names;
}

struct Skipped {
  std::int64_t count = 0;
  fs::path first;
};

std::vector<fs::path> images_in(const fs::path& folder, Skipped& skipped) {
  std::vector<fs::path> files, others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (hidden(entry)) continue;
    (!entry.is_directory() && named_as_image(entry) ? files : others).push_back(entry);
  }
  std::ranges::sort(files);
  require_of(folder, !files.empty(),
             "expected JPEG or PNG images (.jpg, .jpeg, .png) of a class, found none");
  if (!others.empty()) {
    if (skipped.count == 0) skipped.first = *std::ranges::min_element(others);
    skipped.count += std::int64_t(others.size());
  }
  return files;
}

Listing list_classes(const fs::path& folder, const std::vector<std::string>& classes,
                     Skipped& skipped) {
  Listing listing;
  for (std::size_t c = 0; c < classes.size(); ++c)
    for (const fs::path& file : images_in(folder / classes[c], skipped))
      listing.add(file, std::int64_t(c));
  return listing;
}

/// A tenth of each class for testing, chosen by a hash of the file names. Adding a file moves at most one other.
std::pair<Listing, Listing> split(const fs::path& folder, const std::vector<std::string>& classes,
                                  std::uint64_t seed, Skipped& skipped) {
  Listing train, test;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    std::vector<std::pair<std::uint64_t, fs::path>> drawn;
    for (const fs::path& file : images_in(folder / classes[c], skipped)) {
      std::uint64_t lot = seed;
      for (unsigned char letter : classes[c] + "/" + file.filename().string())
        lot = hashed(lot, letter);
      drawn.emplace_back(lot, file);
    }
    require_of(folder / classes[c], drawn.size() >= 2,
               "expected at least 2 images of a class, to train and to test on, got 1");
    std::ranges::sort(drawn);
    const std::size_t tests = std::max<std::size_t>(1, drawn.size() / 10);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      (i < tests ? test : train).add(drawn[i].second, std::int64_t(c));
  }
  return {train, test};
}

/// The name of the folder beside `train` with the test images, or an empty text.
std::string test_folder(const std::vector<std::string>& names) {
  const auto has = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  if (has("train"))
    for (const char* name : {"test", "val", "valid", "validation"})
      if (has(name)) return name;
  return "";
}

using Sizes = std::set<std::pair<std::int64_t, std::int64_t>>;

/// Decodes all files into one tensor and collects the original sizes in `sizes`.
Images decode_all(const std::string& what, const Listing& listing, std::int64_t size, Sizes& sizes,
                  const Progress& progress) {
  const std::int64_t count = std::int64_t(listing.files.size());
  std::int64_t height = size, width = size;
  if (size == 0) {
    const Image first = read_image(listing.files[0]);
    height = first.height, width = first.width;
  }
  Images images{torch::empty({count, 3, height, width}, torch::kUInt8),
                torch::tensor(listing.labels, torch::kLong)};
  std::vector<std::pair<std::int64_t, std::int64_t>> found(listing.files.size());
  const auto read = [&](std::int64_t i) {
    const fs::path& file = listing.files[std::size_t(i)];
    const Image image = read_image(file);
    found[std::size_t(i)] = {image.height, image.width};
    torch::Tensor planes = planes_of(image).unsqueeze(0);
    if (size > 0) planes = squared(planes, size);
    require_of(file, planes.size(2) == height && planes.size(3) == width,
               "expected {} x {} pixels as in {}, got {} x {} (size 0 takes images as "
               "they are; any other size scales them)",
               height, width, listing.files[0].string(), image.height, image.width);
    images.pixels.narrow(0, i, 1).copy_(planes);
  };
  in_parallel(what, count, read, progress);
  sizes.insert(found.begin(), found.end());
  return images;
}

}  // namespace

DataSet load_folder(const DataOptions& options, const Progress& progress) {
  const fs::path& folder = options.path;
  require_of(folder, fs::is_directory(folder), "expected a folder of classes");
  std::vector<std::string> names = folders_in(folder);
  require_of(folder, !names.empty(),
             "expected a folder for each class (or train and test), found no folders");

  DataSet data;
  data.name = fs::canonical(folder).filename().string();
  require_of(folder, is_utf8(data.name), "expected a name in UTF-8");
  Listing train, test;
  Skipped skipped;
  if (const std::string held_out = test_folder(names); !held_out.empty()) {
    data.classes = folders_in(folder / "train");
    require_of(folder / "train", !data.classes.empty(), "expected a folder for each class");
    for (const std::string& name : folders_in(folder / held_out))
      require_of(folder / held_out / name, std::ranges::binary_search(data.classes, name),
                 "expected the classes of {}, which has none of this name",
                 (folder / "train").string());
    for (const std::string& name : data.classes)
      require_of(folder / held_out / name, fs::is_directory(folder / held_out / name),
                 "expected a folder for this class as in {}", (folder / "train").string());
    train = list_classes(folder / "train", data.classes, skipped);
    test = list_classes(folder / held_out, data.classes, skipped);
  } else {
    data.classes = std::move(names);
    std::tie(train, test) = split(folder, data.classes, options.seed, skipped);
    data.notes.push_back(fmt::format(
        "{} has no train and test folders: of each class a tenth is kept for testing ({} to train "
        "on, {} to test on)",
        folder.string(), train.files.size(), test.files.size()));
  }
  if (skipped.count > 0)
    data.notes.push_back(
        fmt::format("{} files or folders that are no .jpg, .jpeg or .png were left "
                    "out, the first {}",
                    skipped.count, skipped.first.string()));

  Sizes sizes;
  data.train =
      decode_all("decoding training images", train.limited_to(options.train_limit, options.seed),
                 options.size, sizes, progress);
  const std::int64_t size = options.size;
  data.test = decode_all("decoding test images", test.limited_to(options.test_limit, options.seed),
                         size, sizes, progress);
  require_of(folder, data.test.pixels.sizes().slice(1) == data.train.pixels.sizes().slice(1),
             "expected test images of {} x {} pixels as the training images, got {} x {}",
             data.train.pixels.size(2), data.train.pixels.size(3), data.test.pixels.size(2),
             data.test.pixels.size(3));
  if (size > 0 && (sizes.size() > 1 || *sizes.begin() != std::pair(size, size)))
    data.notes.push_back(fmt::format("images of {} {} were scaled to {} x {}", sizes.size(),
                                     sizes.size() == 1 ? "size" : "sizes", size, size));
  measure(data);
  return data;
}

}  // namespace keel::lab
