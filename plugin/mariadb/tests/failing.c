/* Loaded before libc: makes the engine's files fail while control files exist in $EVENKEEL_FAIL_DIR.
   full: files cannot grow (ENOSPC); sync: syncs fail (EIO); thread: no thread can be begun (EAGAIN). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fails(int fd, const char *how)
{
  char path[4096], link[64];
  const char *dir= getenv("EVENKEEL_FAIL_DIR");
  if (!dir)
    return 0;
  snprintf(path, sizeof path, "%s/%s", dir, how);
  if (access(path, F_OK) != 0)
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len= readlink(link, path, sizeof path - 1);
  if (len < 0)
    return 0;
  path[len]= 0;
  return strstr(path, "/#evenkeel/") != NULL;
}

ssize_t pwrite64(int fd, const void *from, size_t len, off64_t at)
{
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real)
    real= (ssize_t (*)(int, const void *, size_t, off64_t)) dlsym(RTLD_NEXT, "pwrite64");
  struct stat64 st;
  if (fails(fd, "full") && fstat64(fd, &st) == 0 && at + (off64_t) len > st.st_size)
  {
    errno= ENOSPC;
    return -1;
  }
  return real(fd, from, len, at);
}

int fallocate64(int fd, int mode, off64_t at, off64_t len)
{
  static int (*real)(int, int, off64_t, off64_t);
  if (!real)
    real= (int (*)(int, int, off64_t, off64_t)) dlsym(RTLD_NEXT, "fallocate64");
  if (!(mode & FALLOC_FL_PUNCH_HOLE) && fails(fd, "full"))
  {
    errno= ENOSPC;
    return -1;
  }
  return real(fd, mode, at, len);
}

int fallocate(int fd, int mode, off_t at, off_t len) { return fallocate64(fd, mode, at, len); }

int fdatasync(int fd)
{
  static int (*real)(int);
  if (!real)
    real= (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
  if (fails(fd, "sync"))
  {
    errno= EIO;
    return -1;
  }
  return real(fd);
}

int fsync(int fd)
{
  static int (*real)(int);
  if (!real)
    real= (int (*)(int)) dlsym(RTLD_NEXT, "fsync");
  if (fails(fd, "sync"))
  {
    errno= EIO;
    return -1;
  }
  return real(fd);
}

int pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*run)(void *), void *with)
{
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  char path[4096];
  const char *dir= getenv("EVENKEEL_FAIL_DIR");
  if (!real)
    real= (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)) dlsym(
      RTLD_NEXT, "pthread_create");
  snprintf(path, sizeof path, "%s/thread", dir ? dir : "");
  if (dir && access(path, F_OK) == 0)
    return EAGAIN;
  return real(to, attr, run, with);
}
