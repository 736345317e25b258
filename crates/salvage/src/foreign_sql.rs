//! Foreign keys as SQL: statements behind all tables, so that a parent may follow its child. The
//! server looks up the rows of each key when it adds the key. Statements that may fail come last,
//! because a client stops at the first error.

use crate::definition::{Definition, ForeignKey};
use crate::sql;
use evenkeel_format::catalog::PartEntry;
use std::fmt::Write;

/// The tables that were written, with true if no row of the table is lost or set aside.
pub type Written<'a> = [(&'a Definition, bool)];

/// The statements that add the keys of the tables that were written.
pub fn statements(tables: &Written<'_>) -> String {
    let (mut sure, mut last) = (String::new(), String::new());
    for (def, _) in tables {
        for key in &def.foreign_keys {
            let add = sql::foreign_key(def, key);
            // Writing to a string cannot fail.
            let _ = match (impossible(def, key), doubt(tables, def, key)) {
                (Some(why), _) => writeln!(last, "-- Not added, because {why}: {add}"),
                // A server refuses a key without its parent unless the checks are off.
                _ if key.awaits => writeln!(sure, "{CHECKS_OFF}\n{add}\n{CHECKS_ON}"),
                (None, Some(why)) => {
                    let why = sql::without_breaks(&why);
                    writeln!(last, "-- The next statement may fail, because {why}.\n{add}")
                }
                (None, None) => writeln!(sure, "{add}"),
            };
        }
    }
    sure + &last
}

const CHECKS_OFF: &str = "SET SESSION foreign_key_checks = 0;";
const CHECKS_ON: &str = "SET SESSION foreign_key_checks = 1;";

/// Why MariaDB cannot have the key.
fn impossible(def: &Definition, key: &ForeignKey) -> Option<&'static str> {
    let is_blob = |name: &String| {
        let column = def.columns.iter().find(|column| column.name == *name);
        column.is_some_and(|column| sql::is_blob(column.entry.ty))
    };
    match key.is_known() {
        false => Some("the catalog has lost its parent or a column"),
        true => key.columns.iter().any(is_blob).then_some("its columns are BLOB or TEXT here"),
    }
}

/// Why the server may refuse the key.
fn doubt(tables: &Written<'_>, def: &Definition, key: &ForeignKey) -> Option<String> {
    let Some((parent, is_complete)) = tables.iter().find(|(def, _)| def.name == key.parent) else {
        return Some(format!("table {} is not among these", key.parent));
    };
    if !is_complete {
        return Some(format!("rows of {} may be lost", key.parent));
    }
    let is_collated = |def: &Definition, columns: &[String]| {
        let is_it = |part: &PartEntry| {
            part.collation.is_some() && columns.iter().any(|c| c == def.column_name(part.column))
        };
        let keys = def.indexes.iter().map(|index| &index.entry.parts).chain([&def.entry.primary]);
        keys.flatten().any(is_it)
    };
    let is_by_bytes = is_collated(def, &key.columns) || is_collated(parent, &key.parent_columns);
    is_by_bytes.then(|| "a collation compared its columns, which are bytes here".to_string())
}
