-- sysbench: a queue. Each client inserts a block of rows at the high end, deletes its oldest block
-- at the low end, and now and then looks for the lowest row. Blocks are of the clients in turn; one
-- who is ahead of the others waits for them, so that there is one low end and one high end.
-- Of each second a client writes to --dir what its statements took: the second, what, then pairs of
-- a bucket and a count; bucket n has what took at most 1.02^n us. At its end it writes where it was,
-- and the next run goes on there.

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

local con, out, live, low, high
-- The block of the lowest row, of any client, when it was last looked for.
local lowest
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

-- The first id of a client's nth block.
local function first_of(n)
   return (n * sysbench.opt.threads + sysbench.tid) * BLOCK + 1
end

local function insert()
   local rows, first = {}, first_of(high)
   for id = first, first + BLOCK - 1 do
      rows[#rows + 1] = string.format("(%d,%d,%d,'%s')", id, id * 7919 % 1000003,
                                      math.floor(id / 100), sysbench.rand.string(PAD))
   end
   con:query("insert into queue values " .. table.concat(rows, ","))
   high = high + 1
end

function thread_init()
   con = sysbench.sql.driver():connect()
   out = assert(file("times", "w"))
   live = sysbench.opt.table_size / (BLOCK * sysbench.opt.threads)
   low, high = 0, live
   local before = file("ends", "r")
   if before then
      low, high = before:read("*n", "*n")
      before:close()
   end
   lowest = low
end

-- One that met an error is begun again.
function event()
   if low - lowest > AHEAD or low % MIN_EVERY == 0 then
      local id = timed("min", "select min(id) from queue")
      lowest = math.floor((tonumber(id) - 1) / (BLOCK * sysbench.opt.threads))
   end
   if low - lowest > AHEAD then
      ffi.C.usleep(REST_US)
      return
   end
   if high - low <= live then
      insert()
   end
   local first = first_of(low)
   timed("delete", string.format("delete from queue where id between %d and %d", first,
                                 first + BLOCK - 1))
   low = low + 1
end

function thread_done()
   flush()
   out:close()
   local ends = assert(file("ends", "w"))
   ends:write(low, " ", high, "\n")
   ends:close()
   con:disconnect()
end
