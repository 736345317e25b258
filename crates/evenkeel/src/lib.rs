//! Evenkeel: a storage engine that keeps an even keel under sustained writes.
