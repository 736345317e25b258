/* SHOW STATUS and SHOW ENGINE EVENKEEL STATUS: every counter and gauge of the engine, waits by cause, and index
   builds that are under way. */
#include "status.h"
#include "alter.h"
#include "backup.h"
#include "entry.h"
#include "retention.h"
#include "transaction.h"
#include <list>
#include <vector>

struct Figure
{
  std::string name, unit;
  ulonglong value;
};

static void figure(void *context, ek_bytes name, ek_bytes unit, uint64_t value)
{
  std::vector<Figure> *figures= static_cast<std::vector<Figure> *>(context);
  figures->push_back({std::string((const char *) name.ptr, name.len),
                      std::string((const char *) unit.ptr, unit.len), value});
}

/* The values of one SHOW STATUS: the server reads them after `show_figures` has returned, in the same thread. */
struct Shown
{
  std::vector<Figure> figures;
  std::vector<SHOW_VAR> variables;
  std::string last_backup;
};
static thread_local Shown shown;

static int show_figures(MYSQL_THD, SHOW_VAR *to, void *, struct system_status_var *,
                        enum enum_var_type)
{
  shown.figures.clear();
  shown.variables.clear();
  const Database_use use;
  if (use)
    calling_back([&] { ek_figures(evenkeel_db, &shown.figures, callback<figure>); });
  uint64_t builds= 0;
  each_build([&builds](const Build_figures &b) { builds+= !b.is_copy; });
  shown.figures.push_back({"index_builds", "count", builds});
  const bool stopped= use && ek_writes_stopped(evenkeel_db);
  shown.figures.push_back({"chunks_expired", "count", retention_drops()});
  shown.figures.push_back({"writes_stopped", "0 or 1", stopped});
  for (Figure &f : shown.figures)
    shown.variables.push_back({f.name.c_str(), (char *) &f.value, SHOW_ULONGLONG});
  shown.last_backup= last_backup();
  shown.variables.push_back({"backup_last", shown.last_backup.data(), SHOW_CHAR});
  shown.variables.push_back({"backup_state", const_cast<char *>(backup_state()), SHOW_CHAR});
  shown.variables.push_back({NullS, NullS, SHOW_LONG});
  to->type= SHOW_ARRAY;
  to->value= (char *) shown.variables.data();
  return 0;
}

static SHOW_VAR figures_variable(const char *name)
{
  SHOW_VAR variable= {name, NullS, SHOW_FUNC};
  variable.value= (void *) +entry<show_figures, 1>;
  return variable;
}

st_mysql_show_var status_variables[]= {figures_variable("Evenkeel"), {NullS, NullS, SHOW_LONG}};

static void wait_line(void *context, ek_bytes cause, uint64_t count, uint64_t over_1ms, uint64_t us,
                      uint64_t max_us)
{
  if (count == 0)
    return;
  char line[160];
  snprintf(line, sizeof line, "%-16.*s %14llu %14llu %16.1f %14.1f\n", (int) cause.len,
           (const char *) cause.ptr, (ulonglong) count, (ulonglong) over_1ms, us / 1000.0,
           max_us / 1000.0);
  *static_cast<std::string *>(context)+= line;
}

struct Txns
{
  std::string text;
  uint64_t count, prepared;
};

static void txn_line(void *context, uint64_t id, uint8_t prepared, uint64_t operations, ek_bytes,
                     uint64_t waits_for, uint64_t tag)
{
  Txns *txns= static_cast<Txns *>(context);
  txns->count++;
  txns->prepared+= prepared;
  /* Of very many transactions the first 50 are shown. */
  if (txns->count > 50)
    return;
  char line[160];
  snprintf(line, sizeof line, "%llu: %llu row operations%s", (ulonglong) id, (ulonglong) operations,
           prepared ? ", prepared" : "");
  txns->text+= line;
  if (const uint64_t connection= connection_of(tag))
  {
    snprintf(line, sizeof line, ", connection %llu", (ulonglong) connection);
    txns->text+= line;
  }
  if (waits_for)
  {
    snprintf(line, sizeof line, ", waits for %llu", (ulonglong) waits_for);
    txns->text+= line;
  }
  txns->text+= '\n';
}

static std::string status_text()
{
  std::vector<Figure> figures;
  calling_back([&] { ek_figures(evenkeel_db, &figures, callback<figure>); });
  std::string out= "FIGURES\n";
  char line[200];
  for (const Figure &f : figures)
  {
    if (f.name.compare(0, 5, "wait_") == 0)
      continue;
    snprintf(line, sizeof line, "%-36s %20llu %s\n", f.name.c_str(), f.value, f.unit.c_str());
    out+= line;
  }
  out+= "\nWAITS (cause, count, over 1 ms, all ms, longest ms)\n";
  calling_back([&] { ek_waits(evenkeel_db, &out, callback<wait_line>); });
  out+= "\nINDEX BUILDS AND COPIES OF TABLES\n";
  each_build([&out](const Build_figures &b) {
    char build[200];
    snprintf(build, sizeof build, "connection %llu: %s", (ulonglong) b.thread_id,
             b.is_copy ? "copy into " : "");
    out+= build + b.table + " (" + b.indexes + "): " + b.phase;
    snprintf(build, sizeof build, ", %llu of about %llu rows, %u %% done", (ulonglong) b.rows_done,
             (ulonglong) b.rows_total, b.done_ppm / 10000);
    out+= build;
    if (b.left_s != EK_UNKNOWN_S)
      out+= ", about " + std::to_string(b.left_s) + " s left";
    out+= "\n";
  });
  Txns txns= {std::string(), 0, 0};
  calling_back([&] { ek_txns(evenkeel_db, &txns, callback<txn_line>); });
  snprintf(line, sizeof line, "\nTRANSACTIONS (%llu, %llu of them prepared)\n",
           (ulonglong) txns.count, (ulonglong) txns.prepared);
  out+= line + txns.text;
  if (ek_writes_stopped(evenkeel_db))
    out+= "\nWRITES HAVE STOPPED: a write or sync failed, see the server's log. Reads go on; the "
          "next start recovers.\n";
  return out;
}

bool evenkeel_show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type what)
{
  if (what != HA_ENGINE_STATUS)
    return false;
  std::string text;
  {
    const Database_use use;
    if (!use)
    {
      warn_not_open(thd);
      return false;
    }
    text= status_text();
  }
  return print(thd, STRING_WITH_LEN("EVENKEEL"), STRING_WITH_LEN(""), text.data(),
               (uint) text.size());
}
