//! Checks names that are used as strings: metrics, causes of waits, laws with their inputs and
//! outputs, tables of the information schema, settings. `docs/reference/names.md` is generated from
//! the tables in the code. Every name `Evenkeel_...` in scripts, pages and the plugin must be on
//! it; otherwise a script would show a renamed metric as zero.

use crate::source::Source;
use crate::tables::entries;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Words behind the prefix that are no metric, setting or table: programs, files, tests.
const OTHER: &[&str] = &[
    "init", "deinit", "db", "plugin", "capi", "test", "bench", "sim", "mtr", "so", "user", "root",
];

/// Groups of names, each with a title.
struct Names(Vec<(&'static str, Vec<String>)>);

impl Names {
    fn of(root: &Path) -> Names {
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        let values = |file: &str, table: &str, end: char| -> Vec<String> {
            let all = entries(&read(file), table, end);
            all.iter().filter_map(|entry| entry.values.first().cloned()).collect()
        };
        let metrics = values("crates/base/src/metrics.rs", "metrics", ';');
        let causes = match values("crates/base/src/wait_event.rs", "causes", ',') {
            found if !found.is_empty() => found,
            _ => values("crates/base/src/wait_event.rs", "causes", ','),
        };
        let waits = causes
            .iter()
            .filter(|cause| *cause != "idle")
            .flat_map(|cause| ["count", "us", "max_us"].map(|what| format!("wait_{cause}_{what}")));
        let waits = waits.collect();
        let (laws, fields) = laws(&read("crates/base/src/journal.rs"));
        Names(vec![
            ("Metrics", metrics),
            ("Causes of waits", causes),
            ("Waits among the status variables", waits),
            ("Other status variables", status(&crate::docs::PLUGIN_FIGURES.replace('\r', ""))),
            ("Laws", laws),
            ("Inputs and outputs of laws", fields),
            ("Settings of the server", settings(&read("plugin/mariadb/settings.cc"))),
            ("Tables of the information schema", schema(&read("plugin/mariadb/engine.cc"))),
        ])
    }
}

/// The generated page.
pub fn page(root: &Path) -> String {
    let mut page = "# Names used as strings\n\nGenerated from the tables in the code by `cargo \
                    xtask docs`; do not edit. `cargo xtask tidy` refuses\nany other name behind \
                    `Evenkeel_` in scripts, pages and tests of the plugin.\n"
        .to_string();
    for (title, names) in Names::of(root).0 {
        let _ = write!(page, "\n## {title}\n\n");
        for name in names {
            let _ = writeln!(page, "- `{name}`");
        }
    }
    page
}

/// The names of the laws, and the names of their inputs and outputs.
fn laws(journal: &str) -> (Vec<String>, Vec<String>) {
    let end = journal.find("/// A decision.").unwrap_or(journal.len());
    let (mut laws, mut fields) = (Vec::new(), BTreeSet::new());
    for line in journal[..end].lines().map(|line| line.split("//").next().unwrap_or("")) {
        let law = line.contains("=> \"");
        for name in line.split('"').skip(1).step_by(2) {
            match law {
                true => laws.push(name.to_string()),
                false => drop(fields.insert(name.to_string())),
            }
        }
    }
    (laws, fields.into_iter().collect())
}

fn status(table: &str) -> Vec<String> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).map(str::to_string).collect()
}

fn settings(plugin: &str) -> Vec<String> {
    let marks = ["MYSQL_SYSVAR_", "MYSQL_THDVAR_"];
    let lines = plugin.lines().filter(|line| marks.iter().any(|mark| line.contains(mark)));
    let names = lines.filter_map(|line| line.split_once('(')?.1.split(',').next());
    names.map(str::to_string).collect()
}

fn schema(engine: &str) -> Vec<String> {
    let names = engine.split('"').skip(1).step_by(2);
    let tables = names.filter_map(|name| name.strip_prefix("EVENKEEL_"));
    let found: BTreeSet<String> = tables.map(str::to_lowercase).collect();
    found.into_iter().collect()
}

/// Names behind `Evenkeel_` that are in no group.
pub fn check(root: &Path) -> Vec<String> {
    let names = Names::of(root).0;
    let mut problems = Vec::new();
    for (title, group) in &names {
        if group.is_empty() {
            problems.push(format!("xtask/src/string_names.rs: nothing found of: {title}"));
        }
    }
    let known: BTreeSet<&str> = names.iter().flat_map(|(_, g)| g).map(String::as_str).collect();
    let mut files = Vec::new();
    for top in ["scripts", "plugin/mariadb", "docs/user"] {
        walk(root, &root.join(top), &mut files);
    }
    files.iter().for_each(|source| find(source, &known, &mut problems));
    problems
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(root, &path, found);
        } else if let (Ok(text), Ok(short)) = (fs::read_to_string(&path), path.strip_prefix(root)) {
            found.push(Source { path: short.to_string_lossy().into_owned(), text });
        }
    }
}

fn find(source: &Source, known: &BTreeSet<&str>, problems: &mut Vec<String>) {
    for (i, line) in source.text.lines().enumerate() {
        // The plugin looks up figures of the engine: `figure == "NAME"`.
        for name in line.split("figure == \"").skip(1).filter_map(|rest| rest.split('"').next()) {
            if !known.contains(name) {
                let place = format!("{}:{}", source.path, i + 1);
                problems.push(format!("{place}: {name} is on no list of names"));
            }
        }
        // With a capital E a status variable. With a small one only if the line queries the server.
        let asked = ["show ", "global_status", "status like"];
        let small = asked.iter().any(|word| line.to_lowercase().contains(word));
        for (at, prefix) in line.match_indices("venkeel_") {
            let capital = line[..at].ends_with('E');
            let is_name = capital || (small && line[..at].ends_with('e'));
            if !is_name {
                continue;
            }
            let part = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            let rest = &line[at + prefix.len()..];
            let end = rest.find(part).unwrap_or(rest.len());
            let (name, behind) = (&rest[..end], &rest[end..]);
            // `Evenkeel_wait_%` and f"Evenkeel_{name}" are prefixes of names.
            let open = name.is_empty() || name.ends_with('_') || behind.starts_with(['%', '{']);
            let begins = || known.iter().any(|known| known.starts_with(name));
            let is_known = known.contains(name) || OTHER.contains(&name) || (open && begins());
            if !is_known {
                let place = format!("{}:{}", source.path, i + 1);
                problems.push(format!("{place}: Evenkeel_{name} is on no list of names"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_table_has_are_found() {
        let known = BTreeSet::from(["log_syncs", "wait_log_sync_us"]);
        let text = "'Evenkeel_log_syncs', 'Evenkeel_wal_syncs'\nEvenkeel_wait_%\nEvenkeel_{name}\n\
                    show status like 'evenkeel_gone'\nmy_evenkeel_dir\nEvenkeel_none_%\n\
                    if (figure == \"log_syncs\" || figure == \"gone\")\n";
        let source = Source { path: "scripts/a.py".into(), text: text.into() };
        let mut problems = Vec::new();
        find(&source, &known, &mut problems);
        let lines: Vec<&str> = problems.iter().filter_map(|p| p.split(':').nth(1)).collect();
        assert_eq!(lines, ["1", "4", "6", "7"]);
    }

    #[test]
    fn laws_and_their_fields_are_read() {
        let text = "Law::Flush => \"flush\",\n&[\"a\", \"b\"],\n/// A decision.\n\"c\"\n";
        let (laws, fields) = laws(text);
        assert_eq!((laws.len(), fields.len()), (1, 2));
        assert_eq!(settings("static MYSQL_SYSVAR_UINT(page_size, x"), ["page_size"]);
        assert_eq!(schema("\"EVENKEEL_TRX\", \"other\""), ["trx"]);
    }
}
