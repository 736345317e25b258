/* Inline members, read with the offsets this plugin was compiled with, are compared with what the
   server's own functions say of the same objects. */
#include "server.h"
#include "layout.h"

const char *layout_mismatch(THD *thd)
{
  if (strncmp(server_version, MYSQL_SERVER_VERSION, strlen(MYSQL_SERVER_VERSION)) != 0)
    return "the server's version is not the one this plugin was built for";
  if (!thd)
    return nullptr;
  if (thd_get_thread_id(thd) != thd->thread_id)
    return "THD::thread_id lies elsewhere";
  if (thd_sql_command(thd) != (int) thd->lex->sql_command)
    return "THD::lex lies elsewhere";
  if (thd_tx_isolation(thd) != (int) thd->tx_isolation)
    return "THD::tx_isolation lies elsewhere";
  if ((ulonglong) thd_test_options(thd, OPTION_NOT_AUTOCOMMIT) !=
      (thd->variables.option_bits & OPTION_NOT_AUTOCOMMIT))
    return "THD::variables lies elsewhere";
  return nullptr;
}
