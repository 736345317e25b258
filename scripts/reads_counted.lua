-- One statement over and over, as a prepared statement, for scripts/reads_counted.py:
-- sysbench reads_counted.lua --case=NAME --events=N run. The tables are those of sysbench's oltp tests, and two that
-- have a row for each insert: one refers to the first by a foreign key.
require("oltp_common")

sysbench.cmdline.options.case = {"Which statement", "point"}

local cases = {
   point = "SELECT c FROM sbtest1 WHERE id=?",
   simple = "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ?",
   sum = "SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN ? AND ?",
   order = "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c",
   distinct = "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c",
   keys = "SELECT k FROM sbtest1 WHERE k BETWEEN ? AND ?",
   rows = "SELECT c FROM sbtest1 WHERE k BETWEEN ? AND ?",
   update = "UPDATE sbtest1 SET k=k+1 WHERE id=?",
   alone = "INSERT INTO alone (parent) VALUES (?)",
   child = "INSERT INTO child (parent) VALUES (?)",
   update_c = "UPDATE sbtest1 SET c='a value of a column that no index has' WHERE id=?",
}
local statement, from, to

function thread_init()
   con = sysbench.sql.driver():connect()
   statement = con:prepare(cases[sysbench.opt.case])
   from = statement:bind_create(sysbench.sql.type.INT)
   to = statement:bind_create(sysbench.sql.type.INT)
   if cases[sysbench.opt.case]:find("BETWEEN") then
      statement:bind_param(from, to)
   else
      statement:bind_param(from)
   end
end

function thread_done()
   statement:close()
   con:disconnect()
end

function event()
   local id = sysbench.rand.uniform(1, sysbench.opt.table_size - 100)
   from:set(id)
   to:set(id + 99)
   statement:execute()
end
