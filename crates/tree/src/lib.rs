//! The clustered B+tree over mini-transactions.
