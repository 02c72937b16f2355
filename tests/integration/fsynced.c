/* Loaded into a server before everything else: notes in $FSYNC_LOG how long each file was when it was last synced.
   What a power cut may take is whatever came after that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int noted(int fd, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    struct stat before;
    int is_known = fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
    int result = real(fd); /* the length from before: what is written meanwhile may be lost */
    const char *path = getenv("FSYNC_LOG");
    if (result == 0 && is_known && path != NULL) {
        char line[64];
        int size = snprintf(line, sizeof line, "%lu %lld\n", (unsigned long)before.st_ino, (long long)before.st_size);
        int log = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
        if (log >= 0) {
            if (write(log, line, (size_t)size) != size) _exit(1);
            close(log);
        }
    }
    return result;
}

int fsync(int fd) { return noted(fd, "fsync"); }
int fdatasync(int fd) { return noted(fd, "fdatasync"); }
