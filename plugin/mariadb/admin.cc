/* CHECK, ANALYZE and OPTIMIZE TABLE. */
#include "ha_evenkeel.h"
#include "entry.h"
#include "transaction.h"

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
  sql_print_error("EVENKEEL: CHECK TABLE %s: %s", check->table.c_str(), text.c_str());
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
  if (ek_analyze(evenkeel_db, name(), &wait, &error))
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
