//! Circles of imports inside a crate: files of which each needs, in the end, each other. A circle
//! of up to three files is a noun and its parts; a larger one is code that nobody can read, test or
//! move by itself. `xtask/circles.tsv` lists the larger ones that exist, which may only shrink.
//!
//! Paths are resolved: `use crate::Name` counts as an import of the file that defines `Name`, and a
//! re-export by the crate's root is no import by the root. Tests are not looked at.

use crate::source::{Source, code};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Files that a circle may have without being listed.
const FILES_MAX: usize = 3;
const LIST: &str = "xtask/circles.tsv";

/// A module's path inside its crate: `["compaction", "job"]`; the root has none.
type Module = Vec<String>;

/// Modules of one crate that are files, without tests.
struct Crate<'s> {
    files: BTreeMap<Module, &'s Source>,
    code: BTreeMap<Module, ModuleCode>,
}

/// What a file imports.
struct ModuleCode {
    uses: Vec<Use>,
    /// The rest of the code.
    rest: String,
}

/// One path of a `use`, which binds a name.
struct Use {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// Circles beyond the list, listed ones that are smaller by now, and globs of a crate.
pub fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let list = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let mut problems = globs(sources);
    let mut found = BTreeMap::new();
    let crates: BTreeSet<&str> = sources.iter().map(Source::package).collect();
    for package in crates.into_iter().filter(|package| !package.is_empty()) {
        let circles = Crate::read(package, sources).circles();
        found.insert(package.to_string(), circles);
    }
    problems.extend(compare(&list, found));
    problems
}

/// Imports of everything that a crate has.
fn globs(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        for (i, line) in source.text.lines().enumerate() {
            let text = code(line).trim();
            let Some(path) = text.strip_suffix("::*;") else { continue };
            let of = path.rsplit(' ').next().unwrap_or("");
            if path.contains("use ") && (of == "crate" || of.starts_with("evenkeel")) {
                let place = format!("{}:{}", source.path, i + 1);
                if !of.contains("::") {
                    problems.push(format!("{place}: glob import of a crate: name what you use"));
                }
            }
        }
    }
    problems
}

/// What the list does not allow, or allows without need.
fn compare(list: &str, found: BTreeMap<String, Vec<BTreeSet<String>>>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.split('\t').collect::<Vec<_>>()[..] {
            [package, files, reason] if !reason.is_empty() => {
                listed.push((package, files.split(' ').collect()));
            }
            _ => problems.push(format!("{LIST}: not crate, files, reason: {line}")),
        }
    }
    let mut needed: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); listed.len()];
    for (package, circles) in &found {
        for circle in circles.iter().filter(|circle| circle.len() > FILES_MAX) {
            let has = |(of, files): &(&str, BTreeSet<&str>)| {
                of == package && circle.iter().all(|file| files.contains(file.as_str()))
            };
            match listed.iter().position(has) {
                Some(at) => needed[at].extend(circle.iter().map(String::as_str)),
                None => {
                    let files: Vec<&str> = circle.iter().map(String::as_str).collect();
                    let found = format!("a circle of imports of {} files", files.len());
                    let files = files.join(" ");
                    problems.push(format!("crates/{package}: {found}, not in {LIST}: {files}"));
                }
            }
        }
    }
    for ((package, files), needed) in listed.iter().zip(&needed) {
        for file in files.difference(needed) {
            problems.push(format!("{LIST}: crates/{package}: {file} is in the circle no more"));
        }
    }
    problems
}

impl<'s> Crate<'s> {
    fn read(package: &str, sources: &'s [Source]) -> Crate<'s> {
        let prefix = format!("crates/{package}/src/");
        let mut files = BTreeMap::new();
        for source in sources.iter().filter(|source| !source.is_test_file()) {
            let Some(name) = source.path.strip_prefix(&prefix) else { continue };
            let mut module: Module =
                name.trim_end_matches(".rs").split('/').map(str::to_string).collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            files.insert(module, source);
        }
        let of_tests: BTreeSet<Module> =
            files.iter().flat_map(|(module, source)| test_modules(module, &source.text)).collect();
        files.retain(|module, _| !of_tests.iter().any(|tests| module.starts_with(tests)));
        let code = files.iter().map(|(module, source)| (module.clone(), read(source))).collect();
        Crate { files, code }
    }

    /// The strongly connected files, by their names below `src`.
    fn circles(&self) -> Vec<BTreeSet<String>> {
        let modules: Vec<&Module> = self.files.keys().collect();
        let reach: Vec<BTreeSet<usize>> = modules
            .iter()
            .map(|module| {
                let imports = self.imports(module);
                (0..modules.len()).filter(|i| imports.contains(modules[*i])).collect()
            })
            .collect();
        let reach = closure(reach);
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for from in 0..modules.len() {
            let circle: Vec<usize> =
                reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                circles.push(circle.iter().map(|i| self.name(modules[*i])).collect());
            }
        }
        circles
    }

    fn name(&self, module: &Module) -> String {
        let path = &self.files[module].path;
        path.split_once("/src/").map_or(path.clone(), |(_, name)| name.to_string())
    }

    /// Modules whose files a module imports from.
    fn imports(&self, module: &Module) -> BTreeSet<Module> {
        let code = &self.code[module];
        // The root is a table of contents: what it passes on it does not use.
        let counts = |of: &&Use| !(module.is_empty() && of.is_public);
        let used = code.uses.iter().filter(counts).map(|of| of.path.clone());
        let inline = inline_paths(&code.rest);
        let mut found: BTreeSet<Module> =
            used.chain(inline).filter_map(|path| self.resolve(module, &path, 8)).collect();
        found.remove(module);
        found
    }

    /// The module whose file has what a path names from inside `module`.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = (module.clone(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {}
            first => {
                let child: Module = [&module[..], &[first.to_string()]].concat();
                self.files.get(&child)?;
            }
        }
        while let Some(("super", behind)) = rest.split_first().map(|(f, b)| (f.as_str(), b)) {
            at.pop();
            rest = behind;
        }
        while let Some((name, behind)) = rest.split_first() {
            let child: Module = [&at[..], std::slice::from_ref(name)].concat();
            if self.files.contains_key(&child) {
                (at, rest) = (child, behind);
                continue;
            }
            let passed = self.code.get(&at)?.uses.iter().find(|of| of.name == *name);
            return match passed {
                Some(of) if depth > 0 => self.resolve(&at, &of.path, depth - 1),
                _ => Some(at),
            };
        }
        Some(at)
    }
}

/// Whatever is reached over several steps, too.
fn closure(mut reach: Vec<BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    for over in 0..reach.len() {
        let beyond = reach[over].clone();
        for from in reach.iter_mut().filter(|from| from.contains(&over)) {
            from.extend(&beyond);
        }
    }
    reach
}

/// Modules that a file declares for tests only.
fn test_modules(module: &Module, text: &str) -> Vec<Module> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| **line == "#[cfg(test)]") {
        let declared = lines[i + 1..].iter().find(|line| !line.starts_with("#["));
        let name = declared.and_then(|line| line.split_once("mod ")?.1.strip_suffix(';'));
        if let Some(name) = name.filter(|_| !line.is_empty()) {
            found.push([&module[..], &[name.to_string()]].concat());
        }
    }
    found
}

fn read(source: &Source) -> ModuleCode {
    let (mut uses, mut rest) = (Vec::new(), String::new());
    let mut open: Option<(String, bool)> = None;
    for (_, line) in source.lines_outside_tests() {
        let line = code(line);
        if open.is_none() {
            let text = line.trim_start();
            let begin = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
            if let Some(begin) = begin.iter().find(|begin| text.starts_with(**begin)) {
                open = Some((text[begin.len()..].to_string(), *begin != "use "));
            }
        } else if let Some((text, _)) = &mut open {
            text.push_str(line.trim());
        }
        match open.take() {
            None => {
                rest.push_str(line);
                rest.push('\n');
            }
            Some((text, is_public)) => match text.trim_end().strip_suffix(';') {
                Some(tree) => expand(Vec::new(), tree, is_public, &mut uses),
                None => open = Some((text, is_public)),
            },
        }
    }
    ModuleCode { uses, rest }
}

/// The paths of a `use` with braces.
fn expand(before: Vec<String>, tree: &str, is_public: bool, uses: &mut Vec<Use>) {
    let tree = tree.trim();
    if let Some((head, inner)) = tree.split_once('{') {
        let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
        let mut before = before;
        before.extend(segments(head));
        parts(inner).for_each(|part| expand(before.clone(), part, is_public, uses));
        return;
    }
    let (path, name) = match tree.split_once(" as ") {
        Some((path, name)) => (path, Some(name.trim().to_string())),
        None => (tree, None),
    };
    let mut before = before;
    before.extend(segments(path));
    if before.len() > 1 && matches!(before.last().map(String::as_str), Some("self" | "*")) {
        before.pop();
    }
    let last = before.last().cloned().unwrap_or_default();
    uses.push(Use { path: before, name: name.unwrap_or(last), is_public });
}

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_string)
}

/// What stands between the commas that are in no inner braces.
fn parts(inner: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let split = move |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    };
    inner.split(split).map(str::trim).filter(|part| !part.is_empty())
}

/// Paths in code outside `use`.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !part(c)).filter(|word| word.contains("::"));
    words.map(|word| segments(word).collect()).filter(|path: &Vec<String>| path.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: format!("crates/a/src/{path}"), text: text.to_string() }
    }

    fn circles(sources: &[Source]) -> Vec<Vec<String>> {
        let found = Crate::read("a", sources).circles();
        found.into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn a_circle_is_found_over_re_exports_parents_and_inline_paths() {
        let sources = [
            source("lib.rs", "mod one;\nmod two;\nmod three;\npub use one::One;\n"),
            source("one.rs", "use crate::{\n    two::{self, Two as T},\n};\n"),
            source("two.rs", "mod four;\nfn f() { four::five() }\n"),
            source("two/four.rs", "use super::super::three;\n"),
            source("three.rs", "fn f(x: &crate::One) {}\n"),
        ];
        assert_eq!(circles(&sources), [["one.rs", "three.rs", "two.rs", "two/four.rs"]]);
    }

    #[test]
    fn tests_comments_and_the_table_of_contents_make_no_circle() {
        let sources = [
            source("lib.rs", "pub use one::One;\npub const N: u8 = 1;\n#[cfg(test)]\nmod help;\n"),
            source(
                "one.rs",
                "// crate::two\nuse crate::N;\n#[cfg(test)]\nmod t {\nuse crate::two;\n}\n",
            ),
            source("two.rs", "use crate::One;\n"),
            source("help.rs", "use crate::two;\n"),
            source("one_tests.rs", "use crate::two;\n"),
        ];
        assert!(circles(&sources).is_empty());
    }

    #[test]
    fn listed_circles_may_only_shrink() {
        let circle = |files: &[&str]| files.iter().map(|f| f.to_string()).collect();
        let found = |files: &[&str]| BTreeMap::from([("a".to_string(), vec![circle(files)])]);
        let list = "# head\na\t1 2 3 4 5\tfor now\n";
        assert!(compare(list, found(&["1", "2", "3", "4", "5"])).is_empty());
        assert!(compare("", found(&["1", "2", "3"])).is_empty(), "small");
        assert_eq!(compare(list, found(&["1", "2", "3", "4"])).len(), 1, "5 left");
        assert_eq!(compare(list, found(&["1", "2", "3", "4", "5", "6"])).len(), 6, "6 joined");
        assert_eq!(compare(list, BTreeMap::new()).len(), 5, "gone");
        assert_eq!(compare("a\t1 2 3 4\t\n", BTreeMap::new()).len(), 1, "no reason");
    }

    #[test]
    fn globs_of_a_crate_are_found() {
        let text = "use crate::*;\nuse evenkeel_io::*;\nuse crate::one::*;\npub use evenkeel::*;\n\
                    // use crate::*;\nuse super::*;\n";
        assert_eq!(globs(&[source("a_tests.rs", text)]).len(), 3);
    }
}
