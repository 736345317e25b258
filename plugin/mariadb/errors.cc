/* Errors of the engine, in the server's and the clients' numbers. */
#include "errors.h"
#include "fault_injection.h"
#include <stdarg.h>

namespace {

enum Text { SERVER_TEXT, OWN_TEXT };

struct Answer
{
  int handler;
  uint client;
  Text text;
};

const Answer answers[]= {
#define ANSWER(code, handler, client, number, text) {handler, client, text},
#include "errors.def"
#undef ANSWER
};

#define ANSWER(code, handler, client, number, text) \
  static_assert(client == number, #client " has another number in this server");
#include "errors.def"
#undef ANSWER

/* The error of this thread's statement, until it is printed or another statement begins. */
struct Failure
{
  const THD *thd= nullptr;
  query_id_t query= 0;
  int handler= 0;
  bool is_printed= false;
  ek_error error;
};

thread_local Failure failure;

}  // namespace

static const Answer &answer(const ek_error &error)
{
  if (error.code == CODE_RowReferenced && plant("ReferencedToldAsMissing"))
    return answers[CODE_ParentRowMissing];
  const bool is_known= error.code >= 0 && error.code < CODES;
  return answers[is_known ? error.code : CODE_Internal];
}

void make_error(ek_error *error, Code code, ek_kind kind, const char *format, ...)
{
  va_list values;
  va_start(values, format);
  error->kind= kind;
  error->code= code;
  error->index[0]= 0;
  vsnprintf(error->text, sizeof error->text, format, values);
  va_end(values);
}

uint client_number(const ek_error &error) { return answer(error).client; }

/* Tells the server what to do with the transaction. */
static void mark_transaction(THD *thd, const ek_error &error)
{
  if (error.kind == EK_CONFLICT || error.kind == EK_DEADLOCK)
    thd->mark_transaction_to_rollback(true);
  else if (error.kind == EK_LOCK_TIMEOUT)
    thd->mark_transaction_to_rollback(false);
}

int handler_error_as(THD *thd, const ek_error &error, int number)
{
  mark_transaction(thd, error);
  if (error.kind == EK_CORRUPT)
    sql_print_error("EVENKEEL: %s", error.text);
  failure.thd= thd;
  failure.query= thd->query_id;
  failure.handler= number;
  failure.is_printed= false;
  failure.error.kind= error.kind;
  failure.error.code= error.code;
  strmake_buf(failure.error.index, error.index);
  if (answer(error).text == OWN_TEXT)
    strmake_buf(failure.error.text, error.text);
  return number;
}

int handler_error(THD *thd, const ek_error &error)
{
  return handler_error_as(thd, error, answer(error).handler);
}

/* Prints the engine's text, with the name of the table if the text names none. */
static void print_own(const ek_error &error, const TABLE_SHARE *share, myf flags)
{
  const uint number= answer(error).client;
  /* A full disk concerns the administrator. */
  if (number == ER_RECORD_FILE_FULL)
    flags|= ME_ERROR_LOG;
  if (share && share->table_name.str && !strstr(error.text, "table="))
    my_printf_error(number, "EVENKEEL: table '%s.%s': %s", flags, share->db.str, share->table_name.str,
                    error.text);
  else
    my_printf_error(number, "EVENKEEL: %s", flags, error.text);
}

int raise_error(THD *thd, const ek_error &error)
{
  const int number= handler_error(thd, error);
  failure.is_printed= true;
  if (thd->get_stmt_da()->is_error())
    return number;
  if (error.kind == EK_CANCELLED)
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  else
    print_own(error, nullptr, MYF(0));
  return number;
}

void warn_of_error(THD *thd, const ek_error &error)
{
  if (error.kind == EK_CORRUPT)
    sql_print_error("EVENKEEL: %s", error.text);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, client_number(error), "EVENKEEL: %s", error.text);
}

bool failed_key(THD *thd, int error, std::string *name, std::string *child)
{
  const ek_error &said= failure.error;
  if (failure.thd != thd || failure.query != thd->query_id || failure.handler != error ||
      (said.code != CODE_ParentRowMissing && said.code != CODE_RowReferenced))
    return false;
  const char *tab= strchr(said.index, '\t');
  if (!tab)
    return false;
  name->assign(said.index, tab);
  child->assign(tab + 1);
  return true;
}

bool print_failure(THD *thd, const TABLE_SHARE *share, int error, myf flags)
{
  if (failure.thd != thd || failure.query != thd->query_id || failure.handler != error)
    return false;
  if (failure.is_printed)
    return true;
  const ek_error &said= failure.error;
  /* The server would print nothing for a statement that ended without a KILL, such as a build that another statement
     cancelled. */
  if (said.kind == EK_CANCELLED && thd_kill_level(thd) == THD_IS_NOT_KILLED)
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  else if (answer(said).text == SERVER_TEXT)
    return false;
  else
    print_own(said, share, thd->transaction_rollback_request ? flags & ~(ME_WARNING | ME_NOTE) : flags);
  return true;
}
