/* Loaded before libc: makes the engine's files fail while control files exist in $EVENKEEL_FAIL_DIR.
   full: files cannot grow (ENOSPC); sync: syncs fail (EIO); thread: no thread can be begun (EAGAIN);
   errno: "CALL NUMBER TIMES", where CALL is open, create, name, write, reserve or sync: so many of these calls
   of the engine's files fail with this number from when the file was made; each adds a line to `struck`;
   crash: the process ends, as by kill -9, in front of the Nth step of a DDL statement: a sync, rename or
   removal of a file of the engine, of the server's ddl_recovery.log or of a table's definition. The file
   holds N, counted from when it was made; with 0 nothing ends. Each step adds a line to `steps`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of the engine: the server names its directory from its own directory on, the system from the root. */
static int is_engines(const char *path)
{
  const char *found= strstr(path, "#evenkeel/");
  return found && (found == path || found[-1] == '/');
}

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
  return is_engines(path);
}

/* The path of an open file; empty if it has none. */
static void path_of(int fd, char *path, size_t size)
{
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t len= readlink(link, path, size - 1);
  path[len < 0 ? 0 : len]= 0;
}

/* Does this call fail with a number of `errno`, which is set then. */
static int meets(const char *call, const char *path)
{
  static pthread_mutex_t mutex= PTHREAD_MUTEX_INITIALIZER;
  static struct timespec made;
  static ino_t made_as;
  static int struck;
  char control[4096], text[64]= "", wanted[32]= "";
  struct stat st;
  int number= 0, times= 0, hit= 0;
  const char *dir= getenv("EVENKEEL_FAIL_DIR");
  if (!dir || !is_engines(path))
    return 0;
  snprintf(control, sizeof control, "%s/errno", dir);
  if (access(control, F_OK) != 0)
    return 0;
  pthread_mutex_lock(&mutex);
  FILE *file= fopen(control, "re");
  if (file && fstat(fileno(file), &st) == 0 && fgets(text, sizeof text, file) &&
      sscanf(text, "%31s %d %d", wanted, &number, &times) == 3 && strcmp(wanted, call) == 0)
  {
    if (st.st_ino != made_as || memcmp(&st.st_mtim, &made, sizeof made))
      struck= 0;
    made_as= st.st_ino;
    made= st.st_mtim;
    hit= struck < times;
    struck+= hit;
  }
  if (file)
    fclose(file);
  if (hit)
  {
    snprintf(control, sizeof control, "%s/struck", dir);
    if ((file= fopen(control, "ae")))
    {
      fprintf(file, "%s %d %s\n", call, number, path);
      fclose(file);
    }
  }
  pthread_mutex_unlock(&mutex);
  if (hit)
    errno= number;
  return hit;
}

static int meets_on(const char *call, int fd)
{
  char path[4096];
  path_of(fd, path, sizeof path);
  return meets(call, path);
}

static int ends_with(const char *path, const char *end)
{
  size_t len= strlen(path), of_end= strlen(end);
  return len >= of_end && strcmp(path + len - of_end, end) == 0;
}

/* A file of a DDL statement, by its path from the server's directory or from the root. */
static int is_of_ddl(const char *path)
{
  const char *slash= strrchr(path, '/'), *name= slash ? slash + 1 : path;
  return is_engines(path) || strcmp(name, "ddl_recovery.log") == 0 || ends_with(name, ".frm") ||
         ends_with(name, ".par") || ends_with(name, ".ibd");
}

/* One step of a statement, maybe the last of the process. */
static void step(const char *what, const char *of)
{
  static pthread_mutex_t mutex= PTHREAD_MUTEX_INITIALIZER;
  static struct timespec counted_from;
  static ino_t counted_by;
  static int steps;
  char path[4096], line[4200];
  struct stat st;
  const char *dir= getenv("EVENKEEL_FAIL_DIR");
  if (!dir || !is_of_ddl(of))
    return;
  snprintf(path, sizeof path, "%s/crash", dir);
  if (access(path, F_OK) != 0)
    return;
  pthread_mutex_lock(&mutex);
  int fd= open(path, O_RDONLY | O_CLOEXEC), last= 0;
  ssize_t len= -1;
  if (fd >= 0 && fstat(fd, &st) == 0 && (len= read(fd, line, 20)) > 0)
  {
    line[len]= 0;
    last= atoi(line);
    if (st.st_ino != counted_by || memcmp(&st.st_mtim, &counted_from, sizeof counted_from))
      steps= 0;
    counted_by= st.st_ino;
    counted_from= st.st_mtim;
    steps++;
  }
  if (fd >= 0)
    close(fd);
  if (len > 0)
  {
    snprintf(path, sizeof path, "%s/steps", dir);
    int log= open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    len= snprintf(line, sizeof line, "%d %s %s\n", steps, what, of);
    if (log < 0 || write(log, line, len) != len)
      abort();
    close(log);
    if (steps == last)
      _exit(137);
  }
  pthread_mutex_unlock(&mutex);
}

static void step_of(const char *what, int fd)
{
  char path[4096], link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len= readlink(link, path, sizeof path - 1);
  if (len < 0)
    return;
  path[len]= 0;
  step(what, path);
}

int rename(const char *from, const char *to)
{
  static int (*real)(const char *, const char *);
  if (!real)
    real= (int (*)(const char *, const char *)) dlsym(RTLD_NEXT, "rename");
  step("rename", to);
  if (meets("name", from))
    return -1;
  return real(from, to);
}

int unlink(const char *path)
{
  static int (*real)(const char *);
  if (!real)
    real= (int (*)(const char *)) dlsym(RTLD_NEXT, "unlink");
  step("remove", path);
  return real(path);
}

ssize_t pwrite64(int fd, const void *from, size_t len, off64_t at)
{
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real)
    real= (ssize_t (*)(int, const void *, size_t, off64_t)) dlsym(RTLD_NEXT, "pwrite64");
  struct stat64 st;
  if (meets_on("write", fd))
    return -1;
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
  if (meets_on("reserve", fd))
    return -1;
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
  step_of("sync", fd);
  if (meets_on("sync", fd))
    return -1;
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
  step_of("sync", fd);
  if (meets_on("sync", fd))
    return -1;
  if (fails(fd, "sync"))
  {
    errno= EIO;
    return -1;
  }
  return real(fd);
}

int open64(const char *path, int flags, ...)
{
  static int (*real)(const char *, int, ...);
  mode_t mode= 0;
  if (flags & (O_CREAT | O_TMPFILE))
  {
    va_list rest;
    va_start(rest, flags);
    mode= va_arg(rest, mode_t);
    va_end(rest);
  }
  if (!real)
    real= (int (*)(const char *, int, ...)) dlsym(RTLD_NEXT, "open64");
  if (strstr(path, "#evenkeel/") &&
      meets((flags & O_CREAT) && access(path, F_OK) != 0 ? "create" : "open", path))
    return -1;
  return real(path, flags, mode);
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
