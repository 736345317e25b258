//! The check of foreign keys: each row's parent is looked up at the snapshot of the check.

use super::{Checker, PROBLEMS_MAX, hex};
use crate::foreign::{KeyOf, Link};
use crate::foreign_rows::{parent_key, values_of};
use crate::range::ByteRange;
use crate::row::Row;
use evenkeel_base::Result;
use evenkeel_runs::KeyRange;
use evenkeel_tree::Direction;
use std::sync::Arc;

impl Checker<'_> {
    pub(super) fn foreign_keys(&mut self) -> Result<()> {
        let table = self.table.clone();
        // Rows may break a key that is still being added.
        for link in table.links.own().iter().filter(|link| !link.is_provisional()) {
            match &link.key.awaited {
                Some(awaited) => self.awaiting(link, &awaited.table)?,
                None => self.foreign_key(link)?,
            }
        }
        Ok(())
    }

    /// Without a parent every row that refers to something refers to nothing.
    fn awaiting(&mut self, link: &Arc<Link>, parent: &str) -> Result<()> {
        let mut rows = 0;
        self.rows(&mut |check, row| {
            let values = values_of(link, &check.state, |pair| pair.0, &|at| row.value(at))?;
            rows += usize::from(values.is_some());
            Ok(())
        })?;
        if rows > 0 {
            let name = &link.key.name;
            self.problem(format!(
                "foreign key {name}: {rows} rows refer to rows of table {parent}, which does not \
                 exist"
            ));
        }
        self.report.rows_without_parent += rows as u64;
        Ok(())
    }

    fn foreign_key(&mut self, link: &Arc<Link>) -> Result<()> {
        let parent = link.parent()?;
        let state = parent.state();
        let layout = &state.layout;
        let of = link.key.parent_key(&layout.def).unwrap_or(KeyOf::Clustered);
        let parts = layout.key_parts(of);
        let (name, parent_name) = (&link.key.name, &layout.def.name);
        if parts.iter().take(link.key.columns.len()).any(|part| part.part.form.is_missing()) {
            let table = &self.name;
            self.report.notes.push(format!(
                "table {table}: foreign key {name}: weights of a collation cannot be made here: \
                 its rows were not looked up"
            ));
            return Ok(());
        }
        let (mut found, mut missing) = (Row::new(), 0);
        self.rows(&mut |check, row| {
            let own = check.state.clone();
            let value = |at: usize| row.value(at);
            let Some(values) = values_of(link, &own, |pair| pair.0, &value)? else {
                return Ok(());
            };
            let is_there = match parent_key(link, &state, &values)? {
                None => false,
                Some((_, KeyOf::Clustered, key)) if link.key.columns.len() == parts.len() => {
                    check.txn.get_by_key(&parent, &key, &mut found)?
                }
                Some((_, KeyOf::Clustered, key)) => {
                    let (under, forward) = (ByteRange::under(&key), Direction::Forward);
                    check.txn.scan_bytes(&parent, under, forward)?.next(&mut found)?
                }
                Some((_, KeyOf::Index(at), key)) => {
                    let (index, range) = (layout.indexes[at].id, KeyRange::prefix(&key));
                    let (runs, forward) = (&check.store.runs, evenkeel_runs::Direction::Forward);
                    let mut cursor = runs.cursor(index, range, forward, check.snapshot)?;
                    cursor.next()?.is_some()
                }
            };
            if !is_there {
                missing += 1;
                if missing <= PROBLEMS_MAX {
                    let pk = hex(row.key());
                    check.problem(format!(
                        "foreign key {name}: row of pk {pk} refers to no row of {parent_name}"
                    ));
                }
            }
            Ok(())
        })?;
        if missing > PROBLEMS_MAX {
            self.problem(format!(
                "foreign key {name}: {missing} rows refer to no row of {parent_name}"
            ));
        }
        self.report.rows_without_parent += missing as u64;
        Ok(())
    }
}
