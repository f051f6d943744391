// Preloaded into a daemon: after every fsync and fdatasync of a file in the directory WITNESS_OF, a copy of the file as it
// is then appears in the directory WITNESS_IN. So a test can cut files back to what a loss of power would leave at least.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void witness(int fd) {
  const char *of = getenv("WITNESS_OF"), *in = getenv("WITNESS_IN");
  char link[64], path[PATH_MAX], copy[PATH_MAX + 8], final[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = of && in ? readlink(link, path, sizeof path - 1) : -1;
  if (length < 0) return;
  path[length] = 0;
  size_t directory = strlen(of);
  if (strncmp(path, of, directory) || path[directory] != '/') return;
  snprintf(final, sizeof final, "%s/%s", in, path + directory + 1);
  snprintf(copy, sizeof copy, "%s.new", final);
  int from = open(path, O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  static char buffer[1 << 20];
  ssize_t got;
  while ((got = read(from, buffer, sizeof buffer)) > 0)
    if (write(to, buffer, got) != got) abort();
  close(from);
  close(to);
  // Whole or not at all: the daemon may be killed in here.
  if (rename(copy, final)) abort();
}

int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  int done = real(fd), error = errno;
  if (!done) witness(fd);
  errno = error;
  return done;
}

int fdatasync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
  int done = real(fd), error = errno;
  if (!done) witness(fd);
  errno = error;
  return done;
}
