#include "library.h"
#include "server.h"
#include "sql_class.h"
#include "sql_plugin.h"

extern struct st_maria_plugin _maria_plugin_declarations_[];

static my_bool keep(THD *thd, plugin_ref plugin, void *)
{
  for (const st_maria_plugin *ours= _maria_plugin_declarations_; ours->info; ours++)
    if (plugin_decl(plugin) == ours)
      plugin_lock(thd, plugin);
  return FALSE;
}

void keep_uninstalled_plugins()
{
  THD *thd= current_thd;
  if (!thd)
    return;
  for (int type : {MYSQL_STORAGE_ENGINE_PLUGIN, MYSQL_INFORMATION_SCHEMA_PLUGIN, MariaDB_FUNCTION_PLUGIN})
    plugin_foreach_with_mask(thd, keep, type, PLUGIN_IS_DELETED, nullptr);
}
