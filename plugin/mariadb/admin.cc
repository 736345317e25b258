/* CHECK, REPAIR, ANALYZE and OPTIMIZE TABLE. */
#include "ha_evenkeel.h"
#include "entry.h"
#include "index_build.h"
#include "transaction.h"
#include <my_check_opt.h>

struct Check
{
  THD *thd;
  const std::string &table;
  int32_t stage;
};

/* The texts of SHOW PROCESSLIST, by stage. */
static const char *const stages[]= {"checking pages", "reading rows", "checking indexes"};

static void problem(void *context, ek_bytes line)
{
  const Check *check= static_cast<const Check *>(context);
  const std::string text((const char *) line.ptr, line.len);
  /* Rows that refer to nothing, written without checks, are no damage. */
  const bool is_orphan= text.find(": foreign key ") != std::string::npos;
  (is_orphan ? sql_print_warning : sql_print_error)("EVENKEEL: CHECK TABLE %s: %s", check->table.c_str(),
                                                    text.c_str());
  push_warning_printf(check->thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "%s",
                      text.c_str());
}

/* Reports the progress to others; nonzero ends the check. */
static int32_t watch(void *context, int32_t stage, uint32_t done_ppm)
{
  Check *check= static_cast<Check *>(context);
  if (stage != check->stage)
  {
    for (; check->stage < stage; check->stage++)
      thd_progress_next_stage(check->thd);
    thd_proc_info(check->thd, stages[stage]);
  }
  thd_progress_report(check->thd, done_ppm, 1000000);
  return thd_kill_level(check->thd) != THD_IS_NOT_KILLED;
}

/* Checks the structure of the tree, the files of the indexes, and each index against the rows in both directions, at
   one snapshot. Writers continue. */
int ha_evenkeel::check(THD *thd, HA_CHECK_OPT *)
{
  ek_error error;
  Check check= {thd, m_name, EK_CHECK_PAGES};
  thd_progress_init(thd, array_elements(stages));
  thd_proc_info(thd, stages[EK_CHECK_PAGES]);
  const int64_t found= calling_back([&] {
    return ek_check_table(evenkeel_db, name(), &check, callback<problem>, callback<watch>, &error);
  });
  thd_progress_end(thd);
  if (found < 0 && error.kind == EK_CANCELLED)
    return HA_ADMIN_FAILED;
  if (found < 0)
  {
    report("CHECK TABLE", error);
    if (error.kind == EK_CORRUPT)
    {
      problem(&check, {(const uint8_t *) error.text, strlen(error.text)});
      return HA_ADMIN_CORRUPT;
    }
    warn_of_error(thd, error);
    return HA_ADMIN_FAILED;
  }
  return found ? HA_ADMIN_CORRUPT : HA_ADMIN_OK;
}

/* A row of the statement's result, and a line of the log. The server names the table of a row, but not the
   partition. */
static void tell(THD *thd, const std::string &table, bool is_bad, const std::string &what)
{
  const size_t partition= table.find("#P#");
  const bool is_named= partition == std::string::npos || what.find(table) != std::string::npos;
  const std::string line= is_named ? what : "partition " + table.substr(partition + 3) + ": " + what;
  /* A warning of a printed format would be cut. */
  if (is_bad)
    sql_print_warning("EVENKEEL: REPAIR TABLE %s: %s", table.c_str(), line.c_str());
  else
    sql_print_information("EVENKEEL: REPAIR TABLE %s: %s", table.c_str(), line.c_str());
  push_warning(thd, is_bad ? Sql_condition::WARN_LEVEL_WARN : Sql_condition::WARN_LEVEL_NOTE,
               is_bad ? ER_NOT_KEYFILE : ER_UNKNOWN_ERROR, line.c_str());
}

/* Whether rows that cannot be read may be given up: REPAIR TABLE ... EXTENDED, and ... FORCE where the server has it. */
static bool gives_up_rows(const HA_CHECK_OPT *options)
{
  return is_forced_repair(options) || options->flags & T_EXTEND;
}

/* Builds damaged indexes anew from the rows. The server keeps others out of the table. */
int ha_evenkeel::repair(THD *thd, HA_CHECK_OPT *options)
{
  Build build(thd);
  build.tables.push_back({m_name, {}});
  build.repair.reset(new Build::Repair);
  build.repair->gives_up_rows= gives_up_rows(options);
  thd_progress_init(thd, 1);
  build.start(thd);
  const bool failed= build.wait(thd, EK_BUILD_DONE);
  thd_progress_end(thd);
  if (failed && build.error.kind == EK_CANCELLED)
    return HA_ADMIN_FAILED;
  bool rows_damaged= false;
  for (const auto &[kind, line] : build.repair->lines)
  {
    tell(thd, m_name, kind != EK_REPAIR_REBUILT, line);
    rows_damaged|= kind == EK_REPAIR_ROWS;
  }
  if (failed)
  {
    report("REPAIR TABLE", build.error);
    warn_of_error(thd, build.error);
    return build.error.kind == EK_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  }
  if (rows_damaged)
    tell(thd, m_name, true, "nothing was repaired, because rows are damaged: restore a backup, or give the damaged "
         "rows up by REPAIR TABLE ... EXTENDED, or save the undamaged rows by evenkeel salvage DIR --to NEW");
  /* New indexes come behind older ones. */
  m_in_order= checks_in_order();
  return build.repair->problems ? HA_ADMIN_CORRUPT : HA_ADMIN_OK;
}

/* CHECK TABLE ... FOR UPGRADE: keys made by another version of a collation cannot be compared with keys of this
   version. ALTER TABLE ... FORCE makes them anew. */
int ha_evenkeel::check_for_upgrade(HA_CHECK_OPT *)
{
  ek_error error;
  switch (ek_needs_rebuild(evenkeel_db, name(), &error))
  {
  case 0: return HA_ADMIN_OK;
  case 1: return HA_ADMIN_NEEDS_ALTER;
  default:
    report("CHECK TABLE ... FOR UPGRADE", error);
    warn_of_error(ha_thd(), error);
    return HA_ADMIN_FAILED;
  }
}

/* Samples rows and keeps their statistics of the keys for `info`. */
int ha_evenkeel::analyze(THD *thd, HA_CHECK_OPT *)
{
  ek_error error;
  const ek_schema_wait wait= schema_wait(thd);
  if (m_chunked)
    push_warning(thd, Sql_condition::WARN_LEVEL_NOTE, ER_UNKNOWN_ERROR,
                 "EVENKEEL keeps no statistics of the keys of a chunked table");
  else if (ek_analyze(evenkeel_db, name(), &wait, &error))
  {
    if (error.kind != EK_CANCELLED)
    {
      report("ANALYZE TABLE", error);
      warn_of_error(thd, error);
    }
    return HA_ADMIN_FAILED;
  }
  return info(HA_STATUS_CONST | HA_STATUS_VARIABLE) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

/* The background compacts indexes; only a copy of the table makes its leaves full again. */
int ha_evenkeel::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }
