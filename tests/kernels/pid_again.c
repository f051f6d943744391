// pid_again SOCKET DAEMON ROUNDS: tries to be taken for a process that has the pid of one which has connected.
//
// In each round the daemon is stopped. A process connects, leaves the connection to a child, and exits; then another
// process gets its pid. Now the daemon goes on, accepts, and looks who has connected. The child says what the first
// process was to say, and answers whatever it is asked. Every third round the first process has answered ahead, every
// third nobody answers. A round counts if the pid was had again.
//
// The pid is chosen where ns_last_pid(5) may be written, else awaited: a small kernel.pid_max makes that quick. One below
// 300 does not come round again: the kernel keeps those for what runs since the boot.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELLO = 32, CHALLENGE = 16, ANSWER_AT = 13, ASKS = 6, FORKS_MAX = 1000, ANSWER_MS = 10000 };
enum how { CHILD_ANSWERS, ANSWERED_AHEAD, NOBODY_ANSWERS, HOWS };

// A client's hello of protocol version 2 with the codec JSON-RPC (proto/PROTOCOL.md).
static const unsigned char hello[HELLO] = {'m', 'c', 'p', 's', 'e', 's', 's', 'd', 0, 2, 0, 0, 2, 0, 0, 0, 0, 64};

static void fail(const char *what) {
  perror(what);
  exit(2);
}

static char state_of(pid_t pid) {
  char path[64], text[512] = {0};
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY);
  if (file < 0 || read(file, text, sizeof text - 1) < 0) fail("the daemon's /proc/PID/stat");
  close(file);
  char *name_end = strrchr(text, ')');
  return name_end ? name_end[2] : 0;
}

static void read_whole(int from, void *to, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t now = read(from, (char *)to + got, size - got);
    if (now <= 0) _exit(1);
    got += now;
  }
}

// The child: what the daemon has answered at last; 255 where it has hung up.
static int answer_of(int daemon, enum how how) {
  unsigned char theirs[HELLO], challenge[CHALLENGE];
  for (;;) {
    struct pollfd ready = {.fd = daemon, .events = POLLIN};
    if (poll(&ready, 1, ANSWER_MS) != 1) return 254;
    for (size_t got = 0; got < HELLO;) {
      ssize_t now = read(daemon, theirs + got, HELLO - got);
      if (now <= 0) return 255;
      got += now;
    }
    if (theirs[ANSWER_AT] != ASKS) return theirs[ANSWER_AT];
    read_whole(daemon, challenge, CHALLENGE);
    if (how == NOBODY_ANSWERS) return 253;
    if (how == CHILD_ANSWERS && write(daemon, challenge, CHALLENGE) != CHALLENGE) return 255;
  }
}

// Connects, leaves the connection to a child whose exit status says what came of it, and exits.
static void connect_and_leave(const char *path, enum how how, int told) {
  int daemon = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (connect(daemon, (struct sockaddr *)&address, sizeof address)) _exit(1);
  if (write(daemon, hello, HELLO) != HELLO) _exit(1);
  unsigned char guess[CHALLENGE] = {0};
  if (how == ANSWERED_AHEAD && write(daemon, guess, CHALLENGE) != CHALLENGE) _exit(1);
  pid_t child = fork();
  if (child < 0) _exit(1);
  if (!child) {
    unsigned char answer = answer_of(daemon, how);
    if (write(told, &answer, 1) != 1) _exit(1);
    _exit(0);
  }
  _exit(0);
}

// A process that has this pid, and waits to be killed. 0: somebody else has it.
static pid_t have_again(pid_t wanted) {
  int last = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
  for (int forks = 0; forks < FORKS_MAX; forks++) {
    char text[16];
    int length = snprintf(text, sizeof text, "%d", wanted - 1);
    if (last >= 0 && pwrite(last, text, length, 0) < 0) {
      close(last);
      last = -1;
    }
    pid_t pid = fork();
    if (pid < 0 && errno != EAGAIN) fail("fork");
    if (!pid) {
      // The one with the pid stays.
      while (getpid() == wanted) pause();
      _exit(0);
    }
    if (pid == wanted) {
      if (last >= 0) close(last);
      return pid;
    }
    if (pid > 0) waitpid(pid, NULL, 0);
  }
  if (last >= 0) close(last);
  return 0;
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: pid_again SOCKET DAEMON ROUNDS\n");
    return 64;
  }
  pid_t daemon = atoi(arguments[2]);
  int wanted = atoi(arguments[3]), rounds = 0, tried = 0, believed = 0, refused = 0, hung_up = 0, unanswered = 0;
  // What a first process leaves becomes ours to reap.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  while (rounds < wanted && tried < 3 * wanted) {
    enum how how = tried++ % HOWS;
    int told[2];
    if (pipe(told)) fail("pipe");
    if (kill(daemon, SIGSTOP)) fail("kill the daemon with SIGSTOP");
    while (state_of(daemon) != 'T') usleep(100);
    pid_t first = fork();
    if (first < 0) fail("fork");
    if (!first) connect_and_leave(arguments[1], how, told[1]);
    close(told[1]);
    int status = 0;
    if (waitpid(first, &status, 0) != first || status) fail("it has not connected");
    pid_t later = have_again(first);
    kill(daemon, SIGCONT);
    unsigned char answer = 252;
    if (read(told[0], &answer, 1) != 1) fail("the child has said nothing");
    close(told[0]);
    if (later) {
      rounds++;
      believed += answer == 0;
      refused += answer > 0 && answer < 250;
      hung_up += answer == 255;
      unanswered += answer >= 250 && answer < 255;
      kill(later, SIGKILL);
    }
    while (waitpid(-1, NULL, 0) > 0) {
    }
  }
  printf("%d rounds in which the pid was had again: %d believed, %d refused, %d hung up on, %d asked in vain\n", rounds,
         believed, refused, hung_up, unanswered);
  return believed > 0 || rounds < wanted;
}
