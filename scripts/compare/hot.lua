-- sysbench: all clients want one row (--mode=update), each a row of its own (--mode=own), or each
-- the first row that is free (--mode=skip, SKIP LOCKED). Each client writes to --dir how many
-- transactions it has done and what the longest took, in us.

local ffi = require("ffi")
ffi.cdef [[
struct hot_time { long s, ns; };
int clock_gettime(int clock, struct hot_time *now);
]]

local MONOTONIC = 1

sysbench.cmdline.options = {
   tables = {"Always 1", 1},
   table_size = {"Rows", 1000},
   mysql_storage_engine = {"Storage engine", "innodb"},
   mode = {"update, own or skip", "update"},
   dir = {"Where the clients' files are", "."},
}

local con, out, done, longest, row = nil, nil, 0, 0, 1
local now = ffi.new("struct hot_time")

local function clock()
   ffi.C.clock_gettime(MONOTONIC, now)
   return tonumber(now.s) * 1e6 + tonumber(now.ns) / 1e3
end

function thread_init()
   con = sysbench.sql.driver():connect()
   if sysbench.opt.mode == "own" then
      row = sysbench.tid + 1
   end
   out = assert(io.open(string.format("%s/%d.hot", sysbench.opt.dir, sysbench.tid), "w"))
end

local function first_free()
   con:query("begin")
   local id = con:query_row("select id from hot where id > 1 order by id limit 1 for update skip locked")
   con:query("update hot set v = v + 1 where id = " .. id)
   con:query("commit")
end

function event()
   local begun = clock()
   if sysbench.opt.mode == "skip" then
      first_free()
   else
      con:query("update hot set v = v + 1 where id = " .. row)
   end
   done, longest = done + 1, math.max(longest, clock() - begun)
end

function thread_done()
   out:write(done, " ", longest, "\n")
   out:close()
   con:disconnect()
end
