//! Checks names of metrics in `dashboards`. `mysqld_exporter` serves numeric status variables of
//! a server as `mysql_global_status_` and the name in lower case. So each name that begins with
//! `mysql_global_status_evenkeel_` is a row of `docs/reference/metrics.md`, which is generated.
//! `plugin/mariadb/tests/test_dashboards.py` compares them with what the exporter really serves.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PREFIX: &str = "mysql_global_status_evenkeel_";
const FILES: &[&str] = &["grafana.json", "alerts.yml", "alerts_test.yml"];

/// Names that no server has, and files without any name.
pub fn check(root: &Path) -> Vec<String> {
    let page = fs::read_to_string(root.join("docs/reference/metrics.md")).unwrap_or_default();
    let served = served(&page);
    let mut problems = Vec::new();
    for file in FILES {
        let text = fs::read_to_string(root.join("dashboards").join(file)).unwrap_or_default();
        if used(&text).is_empty() {
            problems.push(format!("dashboards/{file}: names no metric"));
        }
        let unknown = used(&text).into_iter().filter(|name| !served.contains(*name));
        problems.extend(unknown.map(|name| format!("dashboards/{file}: no such metric: {name}")));
    }
    problems
}

/// The numeric status variables of the page, without `evenkeel_`.
fn served(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut of_causes = false;
    for line in page.lines() {
        if line.starts_with("## ") {
            of_causes = line.contains("Waits by cause");
        }
        let Some((name, rest)) = line.strip_prefix("| `").and_then(|l| l.split_once("` | ")) else {
            continue;
        };
        if of_causes && name != "idle" {
            names.extend(["count", "us", "max_us"].map(|what| format!("wait_{name}_{what}")));
        } else if !of_causes && !rest.starts_with("text |") {
            names.insert(name.to_string());
        }
    }
    names
}

fn used(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(PREFIX).skip(1);
    names.map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_served_names_are_known() {
        let page = "## io\n| `file_reads` | count | Reads |\n\
                    ## Waits by cause\n| `log_sync` | For. |\n| `idle` | Not. |\n\
                    ## Status variables of MariaDB\n| `backup_last` | text | A. |\n";
        let served = served(page);
        let known = |name: &str| served.contains(name);
        assert!(known("file_reads") && known("wait_log_sync_us") && known("wait_log_sync_max_us"));
        assert!(!known("log_sync") && !known("wait_idle_us") && !known("backup_last"));
        assert_eq!(served.len(), 4);
    }

    #[test]
    fn a_wrong_name_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(check(&root), Vec::<String>::new());
        let text = fs::read_to_string(root.join("dashboards/grafana.json")).expect("the board");
        let page = fs::read_to_string(root.join("docs/reference/metrics.md")).expect("the page");
        let wrong = text.replacen("evenkeel_commits", "evenkeel_comits", 1);
        let served = served(&page);
        let unknown: Vec<_> = used(&wrong).into_iter().filter(|n| !served.contains(*n)).collect();
        assert_eq!(unknown, ["comits"]);
    }
}
