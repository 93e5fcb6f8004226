/* Bad sectors for one process, loaded with LD_PRELOAD.
 *
 * $PACELINE_BAD_SECTORS names a directory. A file in it, called by the number of an inode, holds
 * "<first byte> <end>": reads of that inode answer EIO at such a byte, and give what lies before
 * it, as the kernel does. Its presence is looked up at every read, so a test can switch faults on
 * and off while the process runs. What is truncated away and written anew is on other sectors: the
 * file is removed then. What comes from a descriptor by other ways (mmap) is not covered.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int named(char *path, size_t size, ino_t inode) {
    const char *folder = getenv("PACELINE_BAD_SECTORS");
    if (!folder)
        return 0;
    snprintf(path, size, "%s/%llu", folder, (unsigned long long)inode);
    return 1;
}

/* Whether the file has bad bytes; which. */
static int bad(int fd, char *path, size_t size, long long *first, long long *end) {
    struct stat status;
    char text[64];
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || !named(path, size, status.st_ino))
        return 0;
    int faults = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (faults < 0)
        return 0;
    ssize_t count = syscall(SYS_read, faults, text, sizeof text - 1);
    syscall(SYS_close, faults);
    text[count > 0 ? count : 0] = 0;
    return sscanf(text, "%lld %lld", first, end) == 2;
}

/* How many of the bytes can be read; -1 with errno: not even the first. */
static ssize_t readable(int fd, size_t wanted, off64_t at) {
    int saved = errno;
    char path[4096];
    long long first, end;
    int struck = bad(fd, path, sizeof path, &first, &end);
    errno = saved;
    if (!struck || at >= end || at + (off64_t)wanted <= first || !wanted)
        return wanted;
    if (at < first)
        return first - at;
    struct stat status;
    if (!fstat(fd, &status) && at >= status.st_size)
        return wanted;
    errno = EIO;
    return -1;
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    ssize_t can = readable(fd, size, at);
    return can < 0 ? -1 : REAL(pread64)(fd, data, can, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at) { return pread64(fd, data, size, at); }

ssize_t read(int fd, void *data, size_t size) {
    off64_t at = lseek64(fd, 0, SEEK_CUR);
    ssize_t can = at < 0 ? (ssize_t)size : readable(fd, size, at);
    return can < 0 ? -1 : REAL(read)(fd, data, can);
}

/* A vector that touches a bad byte is cut to its first buffer, or to the part of it before. */
static ssize_t vector(int fd, const struct iovec *data, int count, off64_t at, int flags) {
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += data[i].iov_len;
    ssize_t can = readable(fd, size, at);
    if (can < 0)
        return -1;
    if ((size_t)can == size)
        return REAL(preadv64v2)(fd, data, count, at, flags);
    struct iovec part = data[0];
    if (part.iov_len > (size_t)can)
        part.iov_len = can;
    return REAL(preadv64v2)(fd, &part, 1, at, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *data, int count, off64_t at, int flags) {
    return vector(fd, data, count, at, flags);
}

ssize_t preadv64(int fd, const struct iovec *data, int count, off64_t at) {
    return vector(fd, data, count, at, 0);
}

ssize_t sendfile64(int out, int in, off64_t *at, size_t size) {
    off64_t from = at ? *at : lseek64(in, 0, SEEK_CUR);
    ssize_t can = readable(in, size, from);
    return can < 0 ? -1 : REAL(sendfile64)(out, in, at, can);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    ssize_t can = readable(in, size, from ? *from : lseek64(in, 0, SEEK_CUR));
    return can < 0 ? -1 : REAL(copy_file_range)(in, from, out, to, can, flags);
}

int ftruncate64(int fd, off64_t size) {
    int result = REAL(ftruncate64)(fd, size);
    int saved = errno;
    char path[4096];
    long long first, end;
    if (!result && bad(fd, path, sizeof path, &first, &end) && size <= first)
        unlink(path);
    errno = saved;
    return result;
}
