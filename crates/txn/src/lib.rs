//! Transactions: stamps, snapshots, undo, locks, savepoints, prepared transactions.
