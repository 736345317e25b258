//! Catalog, row and key codecs, table operations, constraints, online DDL.
