//! Page space, buffer pool, mini-transactions, flushing, doublewrite, page redo.
