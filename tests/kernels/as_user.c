// as_user UID COMMAND...: runs a command as this user, in no group but its own, without capabilities. What busybox lacks.
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: as_user UID COMMAND...\n");
    return 64;
  }
  uid_t user = atoi(arguments[1]);
  // Changing from root to another user drops all capabilities.
  if (setgroups(0, NULL) || setgid(user) || setuid(user) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
    perror("as_user");
    return 70;
  }
  execvp(arguments[2], arguments + 2);
  perror(arguments[2]);
  return 127;
}
