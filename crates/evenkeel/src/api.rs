//! What users see: the database, transactions, tables and indexes, options, figures.

pub(crate) mod chunks;
pub(crate) mod database;
mod foreign;
pub(crate) mod index_ref;
pub(crate) mod inspect;
pub(crate) mod options;
pub(crate) mod records;
mod repair;
pub(crate) mod scan;
pub(crate) mod settings;
pub(crate) mod statistics;
pub(crate) mod stats;
pub(crate) mod table_ref;
mod transact;
pub(crate) mod txn;
