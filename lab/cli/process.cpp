// What the process needs before anything else: run by the loader ahead of all libraries' own starts, to which
// it would be too late in main(). The C library is not ready either: system calls, and nothing that allocates.

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

/// Where one of these is closed, the next file that is opened takes its number, and gets what is printed.
void open_standard_files() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // takes the lowest number free
}

/// OpenMP's threads spin while they wait, milliseconds unless told otherwise, and so take the cores of whoever else is at
/// work there: other runs, for one. Without any spinning a small network's steps, whose parts take microseconds, wait for
/// threads to wake up. So they spin for the tenth of a millisecond that such parts take (GCC's OpenMP counts; others
/// do not spin at all). How to wait is read when the library starts: so the program starts once more with that said.
/// What a user has set stays.
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
  ::execve(program, argv, more);  // where it fails, this process does as well
}

void prepare(int, char** argv, char** environment) {
  open_standard_files();
  spin_shortly(argv, environment);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = prepare;

}  // namespace
