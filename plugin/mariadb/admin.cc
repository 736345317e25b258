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

/* What SHOW PROCESSLIST says, by stage. */
static const char *const stages[]= {"checking pages", "reading rows", "checking indexes"};

static void problem(void *context, ek_bytes line)
{
  const Check *check= static_cast<const Check *>(context);
  const std::string text((const char *) line.ptr, line.len);
  sql_print_error("EVENKEEL: CHECK TABLE %s: %s", check->table.c_str(), text.c_str());
  push_warning_printf(check->thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "%s",
                      text.c_str());
}

/* How far it is, for others to see; is it to end. */
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

/* The structure of the tree, the files of the indexes, and each index against the rows, both
   directions, at one snapshot: writers go on. */
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

/* CHECK TABLE ... FOR UPGRADE: keys that another version of a collation made cannot be compared with
   those of this one; ALTER TABLE ... FORCE makes them anew. */
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

/* Rows are drawn, and what they say of the keys is kept for `info`. */
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

/* Indexes are merged in the background; leaves become full again by copying the table. */
int ha_evenkeel::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }
