//! Secondary indexes: one memtable and sorted runs, flushed and merged in beats.
