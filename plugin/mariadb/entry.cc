/* Exceptions at the plugin's border. */
#include "entry.h"
#include "errors.h"
#include <exception>
#include <new>

static thread_local std::exception_ptr kept;

void keep_exception() noexcept
{
  if (!kept)
    kept= std::current_exception();
}

void throw_kept()
{
  if (likely(!kept))
    return;
  const std::exception_ptr thrown= std::exchange(kept, nullptr);
  std::rethrow_exception(thrown);
}

static int said(const char *what, int number, uint client, bool at_once) noexcept
{
  THD *thd= current_thd;
  sql_print_error("EVENKEEL: %s", what);
  if (at_once && thd && !thd->get_stmt_da()->is_error())
  {
    if (number == HA_ERR_OUT_OF_MEM)
      my_error(client, MYF(0));
    else
      my_printf_error(client, "EVENKEEL: %s", MYF(0), what);
  }
  return number;
}

int said_exception(bool at_once) noexcept
{
  try
  {
    throw;
  }
  catch (const std::bad_alloc &)
  {
    return said("a statement fails for want of memory", HA_ERR_OUT_OF_MEM, ER_OUT_OF_RESOURCES, at_once);
  }
  catch (const std::exception &e)
  {
    ek_error error;
    make_error(&error, CODE_Internal, EK_INTERNAL, "internal error (what=%s); this is a bug: report it with the "
               "message and the log [Internal]", e.what());
    if (THD *thd= current_thd)
      return at_once ? raise_error(thd, error) : handler_error(thd, error);
    return said(error.text, HA_ERR_GENERIC, ER_GET_ERRMSG, at_once);
  }
  catch (...)
  {
    return said("internal error: an unknown exception", HA_ERR_GENERIC, ER_GET_ERRMSG, at_once);
  }
}
