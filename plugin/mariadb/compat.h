/* What differs between the servers that the plugin is compiled for: here and in no other file. server.h includes it.

   docs/guide/versions.md lists the servers with which the plugin was compiled and run. Other series are refused here,
   for what compiles with them by chance was never tried. To port the plugin: compile it with EVENKEEL_UNTRIED_SERVER=1
   (build.sh), put what differs here, run `make test` on that server, then change the limits below and the page. */
#ifndef EVENKEEL_COMPAT_H
#define EVENKEEL_COMPAT_H
#include <mysql_version.h>

#define EVENKEEL_FIRST_SERVER 101100
#define EVENKEEL_BEFORE_SERVER 101200
#if !defined(EVENKEEL_UNTRIED_SERVER) \
    && (MYSQL_VERSION_ID < EVENKEEL_FIRST_SERVER || MYSQL_VERSION_ID >= EVENKEEL_BEFORE_SERVER)
#error "Evenkeel was not tried with this series of MariaDB: docs/guide/versions.md lists those that were"
#endif

/* The default of the server's innodb_snapshot_isolation, which ours follows, changed with 11.6.2. */
static constexpr bool SNAPSHOT_ISOLATION_BY_DEFAULT= MYSQL_VERSION_ID >= 110602;

/* Servers without it do not parse REPAIR TABLE ... FORCE. */
template <class CheckOptions> static inline bool is_forced_repair(const CheckOptions *options)
{
#ifdef TT_FORCE
  return options->sql_flags & TT_FORCE;
#else
  (void) options;
  return false;
#endif
}
#endif
