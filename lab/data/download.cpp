#include "lab/data/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "keel/version.h"

namespace keel::lab {
namespace {

constexpr int kMostAnswers = 20;  // incomplete answers before giving up
constexpr long kOk = 200, kPart = 206, kNoSuchPart = 416;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

bool has_scheme(const std::string& url, const char* scheme) {
  return lower(url).rfind(std::string(scheme) + "://", 0) == 0;
}

/// "bytes 100-199/200" or "bytes */200". A part that is not a number is empty.
struct ContentRange {
  std::optional<std::int64_t> begin, total;
};

ContentRange parse_content_range(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stopped, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stopped == digits.data() || value < 0) return {};
    return value;
  };
  ContentRange range;
  const auto unit = text.find("bytes"), slash = text.find('/');
  if (unit == text.npos || slash == text.npos) return range;
  const auto first = text.find_first_of("0123456789", unit);
  if (first != text.npos && first < slash) range.begin = number(text.substr(first, slash - first));
  range.total = number(text.substr(slash + 1));
  return range;
}

/// Hosts that are asked without a proxy: the environment's list, and this machine itself.
std::string asked_directly() {
  const std::string own = "localhost,127.0.0.1,::1";
  const char* given = std::getenv("no_proxy");
  if (given == nullptr) given = std::getenv("NO_PROXY");
  if (given == nullptr || *given == '\0') return own;
  return given == std::string("*") ? given : given + ("," + own);
}

/// The partial file.
class Part {
 public:
  explicit Part(const std::filesystem::path& file)
      : file_(file),
        descriptor_(
            ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)) {
    struct stat about {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) fail("cannot open ");
    size_ = about.st_size;
  }
  /// Removes an empty file, which has nothing to continue.
  ~Part() {
    if (size_ == 0) ::unlink(file_.c_str());
    ::close(descriptor_);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  std::int64_t size() const { return size_; }

  void append(const char* bytes, std::size_t count) {
    while (count > 0) {
      const ssize_t now = ::pwrite(descriptor_, bytes, count, size_);
      if (now < 0 && errno == EINTR) continue;
      if (now < 0) fail("cannot write ");
      bytes += now;
      count -= std::size_t(now);
      size_ += now;
    }
  }

  void clear() {
    if (::ftruncate(descriptor_, 0) != 0) fail("cannot write ");
    size_ = 0;
  }

 private:
  [[noreturn]] void fail(const char* doing) const {
    throw std::system_error(errno, std::generic_category(), doing + file_.string());
  }

  const std::filesystem::path file_;
  int descriptor_;
  std::int64_t size_ = 0;
};

/// One request after another, with the answers appended to the partial file.
class Transfer {
 public:
  Transfer(const std::string& url, const DownloadOptions& options, Part& part)
      : url_(url), options_(options), part_(part), curl_(curl_easy_init(), curl_easy_cleanup) {
    if (curl_ == nullptr) throw DownloadError("keel: libcurl cannot start");
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_ERRORBUFFER, words_);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 10L);
    allow_protocols();
    set(CURLOPT_NOPROXY, asked_directly().c_str());
    set(CURLOPT_USERAGENT, "keel/" KEEL_VERSION);
    set(CURLOPT_CONNECTTIMEOUT, long(options.timeout));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, long(options.timeout));
    set(CURLOPT_BUFFERSIZE, 1L << 18);
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, this);
  }

  enum class End { kWhole, kBroken, kFailed, kStopped };

  /// Requests the missing bytes. kBroken: the connection ended early. kFailed: retrying is useless. Throws errors of
  /// the disk.
  End ask() {
    begin_ = has_scheme(url_, "file") ? 0 : part_.size();
    if (begin_ == 0) part_.clear();
    const std::string rest = fmt::format("{}-", begin_);
    set(CURLOPT_RANGE, begin_ > 0 ? rest.c_str() : nullptr);
    begun_ = stopped_ = false;
    range_ = {};
    why_.clear();
    words_[0] = '\0';
    const CURLcode code = curl_easy_perform(curl_.get());
    if (fault_) std::rethrow_exception(fault_);
    if (stopped_) return End::kStopped;
    if (!why_.empty()) return End::kFailed;
    return code == CURLE_OK ? ended() : broken(code);
  }

  /// Why it was broken or failed.
  const std::string& why() const { return why_; }
  /// Whether the last answer continued the partial file.
  bool continued() const { return begin_ > 0; }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(curl_.get(), option, value);
  }

  void allow_protocols() {
    const bool secure = has_scheme(url_, "https");
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "http,https,file");
    set(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    set(CURLOPT_PROTOCOLS, long(CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE));
    set(CURLOPT_REDIR_PROTOCOLS, long(secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  }

  long status() const {
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  /// The file size that the server reports; 0 if it does not.
  std::int64_t total() const {
    if (range_.total) return *range_.total;
    curl_off_t length = -1;
    curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return length > 0 ? begin_ + length : 0;
  }

  std::int64_t most() const { return options_.size > 0 ? options_.size : options_.most; }

  End ended() {
    if (options_.size > 0 && part_.size() < options_.size) {
      why_ = fmt::format("ended after {} of {} bytes", part_.size(), options_.size);
      return End::kBroken;
    }
    if (part_.size() > 0) return End::kWhole;
    why_ = "an empty answer";
    return End::kFailed;
  }

  End broken(CURLcode code) {
    if (code == CURLE_HTTP_RETURNED_ERROR && status() == kNoSuchPart && begin_ > 0) {
      if (range_.total == begin_) return End::kWhole;
      part_.clear();  // longer than the server's file, so of another version
      return ask();
    }
    if (code == CURLE_HTTP_RETURNED_ERROR)
      why_ = fmt::format("the server answers with status {}", status());
    else if (code == CURLE_OPERATION_TIMEDOUT)
      why_ = fmt::format("nothing came for {} s", options_.timeout);
    else if (code == CURLE_PARTIAL_FILE)
      why_ = fmt::format("the connection ended after {} of {} bytes", part_.size(), total());
    else
      why_ = words_[0] != '\0' ? words_ : curl_easy_strerror(code);
    return End::kBroken;
  }

  /// Called with the first bytes of an answer. Checks that they belong to the file and where, before an error page
  /// can replace what is already there.
  bool begin(std::string_view bytes) {
    begun_ = true;
    const bool part = status() == kPart;
    if (part && range_.begin != begin_) {
      why_ = "the server answers with another part than the one it was asked for";
      return false;
    }
    if (!part && status() == kOk && begin_ > 0) begin_ = 0;  // the server does not support ranges
    const std::size_t seen = std::min(bytes.size(), options_.magic.size());
    if (begin_ == 0 && bytes.substr(0, seen) != options_.magic.substr(0, seen)) {
      const char* type = nullptr;
      curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_TYPE, &type);
      why_ = fmt::format("expected an archive, the server sent something else{}",
                         type != nullptr ? fmt::format(" ({})", type) : "");
      return false;
    }
    const std::int64_t all = total();
    if (all > 0 && (options_.size > 0 ? all != options_.size : all > options_.most)) {
      why_ = fmt::format("expected {}{} bytes, the server has {}",
                         options_.size > 0 ? "" : "at most ", most(), all);
      return false;
    }
    if (begin_ == 0) part_.clear();
    return true;
  }

  std::size_t take(const char* bytes, std::size_t count) noexcept {
    try {
      if (!begun_ && !begin({bytes, count})) return 0;
      if (std::int64_t(count) > most() - part_.size()) {
        why_ = fmt::format("the server sends more than {} bytes", most());
        part_.clear();
        return 0;
      }
      part_.append(bytes, count);
      return count;
    } catch (...) {
      fault_ = std::current_exception();
      return 0;
    }
  }

  static std::size_t on_bytes(char* bytes, std::size_t, std::size_t count, void* transfer) {
    return static_cast<Transfer*>(transfer)->take(bytes, count);
  }

  static std::size_t on_header(char* bytes, std::size_t, std::size_t count, void* transfer) {
    auto& self = *static_cast<Transfer*>(transfer);
    const std::string_view line(bytes, count), name = "content-range:";
    if (line.substr(0, 5) == "HTTP/") self.range_ = {};  // a redirection's headers came before
    if (lower(std::string(line.substr(0, name.size()))) == name)
      self.range_ = parse_content_range(line.substr(name.size()));
    return count;
  }

  static int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& self = *static_cast<Transfer*>(transfer);
    try {
      if (self.begun_)
        self.options_.progress(self.part_.size(),
                               self.options_.size > 0 ? self.options_.size : self.total());
      self.stopped_ = self.options_.stop();
    } catch (...) {
      self.fault_ = std::current_exception();
    }
    return self.stopped_ || self.fault_ ? 1 : 0;
  }

  const std::string& url_;
  const DownloadOptions& options_;
  Part& part_;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  char words_[CURL_ERROR_SIZE] = {};
  std::int64_t begin_ = 0;  ///< position of the answer in the file
  bool begun_ = false, stopped_ = false;
  ContentRange range_;
  std::string why_;
  std::exception_ptr fault_;
};

}  // namespace

Downloaded download(const std::string& url, const std::filesystem::path& file,
                    const DownloadOptions& options) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) throw DownloadError("keel: libcurl cannot start");
  Part part(file);
  if (options.size > 0 && part.size() > options.size) part.clear();  // of another version
  if (options.size > 0 && part.size() == options.size) return Downloaded::kInPieces;
  Transfer transfer(url, options, part);
  bool in_pieces = false;
  for (int answer = 1;; ++answer) {
    const std::int64_t before = part.size();
    const auto end = transfer.ask();
    in_pieces = in_pieces || transfer.continued();
    using End = Transfer::End;
    if (end == End::kStopped) return Downloaded::kStopped;
    if (end == End::kWhole) {
      options.progress(part.size(), part.size());
      return in_pieces ? Downloaded::kInPieces : Downloaded::kAtOnce;
    }
    if (end == End::kFailed || part.size() <= before || answer == kMostAnswers)
      throw DownloadError(fmt::format("keel: {}: {}", url, transfer.why()));
    options.say(fmt::format("{}: {}; going on from there", url, transfer.why()));
  }
}

}  // namespace keel::lab
