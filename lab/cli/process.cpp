// Start-up code that must run before any library's initialisers; main() would be too late. The loader calls it before
// even the C library is initialised, so use only system calls and do not allocate.

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstring>

namespace {

bool is_set(char** environment, const char* name) {
  const std::size_t length = std::strlen(name);
  for (; *environment != nullptr; ++environment)
    if (std::strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') return true;
  return false;
}

/// Opens /dev/null for a closed standard stream. Otherwise the next opened file would get its number and receive what
/// is printed.
void open_standard_files() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // gets the lowest free number
}

/// By default OpenMP's threads spin for milliseconds while they wait, which takes cores from other runs on the
/// machine. Without any spinning, the steps of a small network, whose parts take microseconds, wait for threads to
/// wake up. So let them spin for about a tenth of a millisecond (in GCC's OpenMP; others then do not spin at all).
/// OpenMP reads this setting when it is loaded, so the program restarts itself with it. A user's own setting is kept.
void spin_shortly(char** argv, char** environment) {
  constexpr std::size_t kMost = 4096;
  static char passive[] = "OMP_WAIT_POLICY=passive", spins[] = "GOMP_SPINCOUNT=3000";
  static char* more[kMost + 3] = {passive, spins};
  static char program[PATH_MAX];
  if (is_set(environment, "OMP_WAIT_POLICY") || is_set(environment, "GOMP_SPINCOUNT")) return;
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count)
    if (count < kMost) more[count + 2] = environment[count];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
  if (count > kMost || length <= 0) return;
  ::execve(program, argv, more);  // if this fails, continue without the setting
}

void prepare(int, char** argv, char** environment) {
  open_standard_files();
  spin_shortly(argv, environment);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = prepare;

}  // namespace
