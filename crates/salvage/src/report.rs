//! What was saved and what was lost, as text and as JSON.

use crate::picture::{Picture, Reason};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lost ranges of a table that are shown as text; the JSON has all of them.
const RANGES_SHOWN: usize = 20;

/// A range of keys of which rows may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// For people.
    pub text: String,
    /// The first key.
    pub low: Vec<u8>,
    /// The key behind the last one; none at the end of the table.
    pub high: Option<Vec<u8>>,
}

/// Rows that refer by a foreign key to rows that are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The name of the key, which is left out.
    pub key: String,
    /// How many rows.
    pub count: u64,
    /// The first of them, for people.
    pub rows: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct TableReport {
    /// Its name.
    pub name: String,
    /// Rows saved.
    pub rows: u64,
    /// Ranges of its clustered keys of which rows may be missing, ascending.
    pub lost: Vec<LostRange>,
    /// Rows set aside.
    pub aside: BTreeMap<Reason, u64>,
    /// Rows that break a foreign key, by key.
    pub orphans: Vec<Orphans>,
    /// Deleted or superseded rows on pages that are out of use.
    pub superseded: u64,
    /// What differs from the original, in sentences.
    pub notes: Vec<String>,
    /// The output has the table.
    pub is_made: bool,
}

fn push_line(text: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(args);
    text.push('\n');
}

impl TableReport {
    fn write(&self, text: &mut String) {
        let mut line = |args: std::fmt::Arguments<'_>| push_line(text, args);
        let aside: u64 = self.aside.values().sum();
        line(format_args!(
            "table {}: {} rows saved, lost ranges of keys: {}, rows set aside: {aside}",
            self.name,
            self.rows,
            self.lost.len()
        ));
        for lost in self.lost.iter().take(RANGES_SHOWN) {
            line(format_args!("  lost {}", lost.text));
        }
        if let Some(more) = self.lost.len().checked_sub(RANGES_SHOWN).filter(|n| *n > 0) {
            line(format_args!("  and {more} more ranges, which --json lists"));
        }
        for (reason, rows) in &self.aside {
            line(format_args!("  set aside {rows} rows: {}", reason.text()));
        }
        for Orphans { key, count, rows } in &self.orphans {
            line(format_args!("  {count} rows break foreign key {key}:"));
            for row in rows.iter().take(RANGES_SHOWN) {
                line(format_args!("    {row}"));
            }
            if rows.len() > RANGES_SHOWN {
                line(format_args!("    and more, which --json lists"));
            }
        }
        if self.superseded > 0 {
            line(format_args!("  {} old rows on pages out of use", self.superseded));
        }
        for note in &self.notes {
            line(format_args!("  {note}"));
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The damaged directory.
    pub directory: String,
    /// Tables, in the order of their ids.
    pub tables: Vec<TableReport>,
    /// Ranges of the catalog that are lost, and what is wrong with entries.
    pub catalog: Vec<String>,
    /// What is wrong elsewhere.
    pub problems: Vec<String>,
    /// Pages: in the files, right, replaced by their copy, damaged.
    pub pages: [u64; 4],
    /// The first damaged pages.
    pub bad_pages: Vec<u64>,
    /// The log: from, end, records, and how far it went once if its end is lost.
    pub log: Option<(u64, u64, u64, Option<u64>)>,
    /// Rows of trees without a table, by tree.
    pub unknown: BTreeMap<u32, u64>,
    /// Where rows that were set aside are.
    pub aside_in: Option<String>,
}

impl Report {
    /// What a picture says of the files.
    pub fn of(directory: String, picture: &Picture) -> Report {
        let damage = &picture.damage;
        let log = picture.reach.as_ref().map(|reach| {
            (reach.from.0, reach.end.0, reach.records, reach.lost_to.map(|lsn| lsn.0))
        });
        Report {
            directory,
            problems: picture.problems.clone(),
            pages: [damage.pages, damage.right, damage.copied, damage.bad.len() as u64],
            bad_pages: damage.bad.iter().map(|page| page.0).collect(),
            log,
            ..Report::default()
        }
    }

    /// True if no row of a table was lost or set aside, and none breaks a foreign key. Rows of
    /// trees without a table count only if the catalog is damaged: else their table was dropped.
    pub fn is_whole(&self) -> bool {
        let is_whole =
            |t: &TableReport| t.lost.is_empty() && t.aside.is_empty() && t.orphans.is_empty();
        let tables = self.tables.iter().all(is_whole);
        let log = self.log.is_some_and(|(.., lost)| lost.is_none());
        tables && log && self.catalog.is_empty()
    }

    /// Rows set aside.
    pub fn aside(&self) -> u64 {
        let tables = self.tables.iter().flat_map(|table| table.aside.values());
        tables.chain(self.unknown.values()).sum()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        let mut line = |args: std::fmt::Arguments<'_>| push_line(text, args);
        let [pages, right, copied, bad] = self.pages;
        line(format_args!(
            "{}: {pages} pages, {right} right, {copied} taken from the doublewrite file, {bad} \
             damaged",
            self.directory
        ));
        for problem in &self.problems {
            line(format_args!("{problem}"));
        }
        match self.log {
            None => line(format_args!(
                "log: not read; changes that were only in the log are not included"
            )),
            Some((from, end, records, None)) => {
                line(format_args!("log: {records} records from {from} to its end at {end}"));
            }
            Some((from, end, records, Some(lost))) => line(format_args!(
                "log: {records} records from {from} to {end}; damaged there: changes from {end} to \
                 {lost} that were only in the log are not included"
            )),
        }
        for problem in &self.catalog {
            line(format_args!("catalog: {problem}"));
        }
        self.tables.iter().for_each(|table| table.write(text));
        let mut line = |args: std::fmt::Arguments<'_>| push_line(text, args);
        for (tree, rows) in &self.unknown {
            line(format_args!(
                "tree {tree}: {rows} rows set aside: {}",
                Reason::UnknownTree.text()
            ));
        }
        if let Some(place) = &self.aside_in {
            line(format_args!("rows set aside are in {place}"));
        }
        line(format_args!(
            "{}",
            if self.is_whole() { "everything was saved" } else { "NOT everything was saved" }
        ));
    }

    /// For programs.
    pub fn json(&self) -> Value {
        use evenkeel_format::text::hex;
        let table = |table: &TableReport| {
            let lost: Vec<Value> = table
                .lost
                .iter()
                .map(|lost| {
                    json!({"text": lost.text, "low": hex(&lost.low),
                    "high": lost.high.as_ref().map(|high| hex(high))})
                })
                .collect();
            let aside: serde_json::Map<String, Value> = table
                .aside
                .iter()
                .map(|(reason, rows)| (reason.text().to_string(), json!(rows)))
                .collect();
            let orphans = |of: &Orphans| json!({"key": of.key, "count": of.count, "rows": of.rows});
            let orphans: Vec<Value> = table.orphans.iter().map(orphans).collect();
            json!({"name": table.name, "rows": table.rows, "lost": lost, "set_aside": aside,
                "orphans": orphans, "superseded": table.superseded, "notes": table.notes})
        };
        let log = self.log.map(|(from, end, records, lost)| {
            json!({"from": from, "end": end, "records": records, "lost_to": lost})
        });
        let [pages, right, copied, bad] = self.pages;
        json!({
            "directory": self.directory,
            "whole": self.is_whole(),
            "pages": {"all": pages, "right": right, "from_doublewrite": copied, "damaged": bad,
                "damaged_numbers": self.bad_pages},
            "log": log,
            "problems": self.problems,
            "catalog": self.catalog,
            "tables": self.tables.iter().map(table).collect::<Vec<_>>(),
            "unknown_trees": self.unknown.iter().map(|(tree, rows)| (tree.to_string(), json!(rows)))
                .collect::<serde_json::Map<_, _>>(),
            "set_aside_in": self.aside_in,
        })
    }
}
