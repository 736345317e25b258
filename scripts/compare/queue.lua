-- sysbench: a queue. Each client inserts a block of rows at the high end, deletes its oldest block
-- at the low end, and now and then looks for the lowest row. Of the rows that are there the blocks
-- are the clients' in turn; one who is ahead of the others waits, so that there is one low end.
-- Of each second a client writes to --dir what its statements took: the second, what, then pairs of
-- a bucket and a count; bucket n has what took at most 1.02^n us. At its end it writes its blocks,
-- and the next run goes on with them.

local ffi = require("ffi")
ffi.cdef [[
struct queue_time { long s, ns; };
int clock_gettime(int clock, struct queue_time *now);
int usleep(unsigned us);
]]

local MONOTONIC, BLOCK, MIN_EVERY, AHEAD, REST_US = 1, 10, 4, 8, 1000
local STEP, PAD = math.log(1.02), string.rep("@", 100)

sysbench.cmdline.options = {
   tables = {"Always 1", 1},
   table_size = {"Live rows, the same number of blocks for each client", 80000},
   mysql_storage_engine = {"Storage engine", "innodb"},
   dir = {"Where the clients' files are", "."},
}

-- The first ids of its blocks, by their numbers from `low` to before `high`.
local blocks, low, high = {}, 0, 0
-- The lowest row of all clients when it was last looked for.
local con, out, live, lowest
local now, second, counts = ffi.new("struct queue_time"), nil, {}

local function file(what, mode)
   return io.open(string.format("%s/%d.%s", sysbench.opt.dir, sysbench.tid, what), mode)
end

local function clock()
   ffi.C.clock_gettime(MONOTONIC, now)
   return tonumber(now.s), tonumber(now.s) * 1e6 + tonumber(now.ns) / 1e3
end

local function flush()
   for what, buckets in pairs(counts) do
      out:write(second, " ", what)
      for bucket, count in pairs(buckets) do
         out:write(" ", bucket, " ", count)
      end
      out:write("\n")
   end
   counts = {}
end

local function timed(what, statement)
   local _, begun = clock()
   local found = con:query_row(statement)
   local at, ended = clock()
   if at ~= second then
      flush()
      second = at
   end
   local bucket = math.ceil(math.log(math.max(ended - begun, 1)) / STEP)
   counts[what] = counts[what] or {}
   counts[what][bucket] = (counts[what][bucket] or 0) + 1
   return found
end

local function insert()
   local rows = {}
   for n = 1, BLOCK do
      rows[n] = string.format("(%d,%d,'%s')", sysbench.rand.uniform(0, 1000002), os.time(),
                              sysbench.rand.string(PAD))
   end
   con:query("insert into queue (k, came, pad) values " .. table.concat(rows, ","))
   blocks[high] = tonumber(con:query_row("select last_insert_id()"))
   high = high + 1
end

function thread_init()
   con = sysbench.sql.driver():connect()
   out = assert(file("times", "w"))
   live = sysbench.opt.table_size / (BLOCK * sysbench.opt.threads)
   local before = file("blocks", "r")
   local function next_block()
      if before then
         return before:read("*n")
      end
      return high < live and (high * sysbench.opt.threads + sysbench.tid) * BLOCK + 1
   end
   for first in next_block do
      if not first then break end
      blocks[high], high = first, high + 1
   end
   lowest = blocks[low]
end

-- One that met an error is begun again.
function event()
   local ahead = AHEAD * BLOCK * sysbench.opt.threads
   if blocks[low] - lowest > ahead or low % MIN_EVERY == 0 then
      lowest = tonumber(timed("min", "select min(id) from queue"))
   end
   if blocks[low] - lowest > ahead then
      ffi.C.usleep(REST_US)
      return
   end
   if high - low <= live then
      insert()
   end
   timed("delete", string.format("delete from queue where id between %d and %d", blocks[low],
                                 blocks[low] + BLOCK - 1))
   blocks[low] = nil
   low = low + 1
end

function thread_done()
   flush()
   out:close()
   local after = assert(file("blocks", "w"))
   for n = low, high - 1 do
      after:write(blocks[n], "\n")
   end
   after:close()
   con:disconnect()
end
