// A folder of images from a table of contents. The first letter says whether to scale. Each further line makes one
// thing: p a PNG, j a JPEG, x a file that is neither, e an empty file, d a folder, l a dangling link, f a FIFO.

#include <sys/stat.h>
#include <torch/types.h>

#include <sstream>

#include "lab/data/data_set.h"
#include "lab/tests/data/pictures.h"
#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::image_folder {

namespace fs = std::filesystem;

void make(char kind, const fs::path& path) {
  static const std::string kPng = lab::png(lab::smooth_picture(4, 4)),
                           kJpeg = lab::jpeg(lab::smooth_picture(6, 5));
  std::error_code ignored;  // names that are too long or exist already are skipped
  fs::create_directories(kind == 'd' ? path : path.parent_path(), ignored);
  if (kind == 'd' || fs::exists(fs::symlink_status(path, ignored))) return;
  if (kind == 'l') return fs::create_symlink("nowhere", path, ignored);
  if (kind == 'f') return void(::mkfifo(path.c_str(), 0600));
  std::ofstream(path, std::ios::binary) << (kind == 'p'   ? kPng
                                            : kind == 'j' ? kJpeg
                                            : kind == 'x' ? "neither"
                                                          : "");
}

void attack(const std::string& bytes) {
  const fs::path where = folder() / kHostile;
  fs::remove_all(where);
  fs::create_directories(where);
  std::istringstream contents(bytes);
  const bool scale = contents.get() == 's';
  int made = 0;
  for (std::string line; made < 16 && std::getline(contents, line); ++made) {
    const fs::path name =
        fs::path(line.substr(std::min<std::size_t>(1, line.size()))).relative_path();
    bool outside = name.empty() || line.find('\0') != std::string::npos;
    for (const fs::path& part : name) outside = outside || part == "..";
    if (!outside) make(line[0], where / name);
  }
  const auto data = lab::load({.source = "folder", .path = where, .size = scale ? 4 : 0});
  expect(data.train.count() > 0 && data.test.count() > 0, "images of both kinds");
}

std::vector<std::string> seeds() {
  return {"spa/1.png\nja/2.jpg\njb/1.jpeg\nxb/read me\npb/2.PNG\n",
          "0ptrain/a/1.png\nptest/a/1.png\nptrain/b/1.png\npval/b/2.png\nptest/b/3.png\n",
          "sptrain/a/1.png\npvalid/a/1.png\nlvalid/a/2.png\n", "spa/1.png\nea/2.png\n",
          "sda\nfa/1.png\npa/2.png\n"};
}

const Registration registration({"folder", attack, seeds});

}  // namespace keel::fuzz::image_folder
