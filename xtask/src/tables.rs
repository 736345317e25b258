//! Reads the tables of the code: the entries `Name = A, "text", ...;` inside a macro call such as
//! `codes! { ... }`. They are read as text, because xtask depends on nothing of ours.

/// One entry: its name, the words and string literals after `=`, and the section it stands in.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last `// -- section` above it.
    pub section: String,
    /// The doc comment above it, one line.
    pub doc: String,
    /// What stands before `=`.
    pub name: String,
    /// What stands after it, split at commas, quotes removed.
    pub values: Vec<String>,
}

/// The entries of the first call of `name!` in `text`; each ends with `end`.
pub fn entries(text: &str, name: &str, end: char) -> Vec<Entry> {
    let start = format!("\n{name}! {{");
    let Some(at) = text.find(&start) else { return Vec::new() };
    let mut found = Vec::new();
    let (mut section, mut doc, mut entry) = (String::new(), String::new(), String::new());
    for line in text[at + start.len()..].lines() {
        let line = line.trim();
        if line == "}" {
            break;
        } else if let Some(title) = line.strip_prefix("// --") {
            section = title.trim().to_string();
        } else if let Some(text) = line.strip_prefix("///") {
            doc = format!("{doc} {}", text.trim()).trim().to_string();
        } else if !line.starts_with("//") && !line.is_empty() {
            entry = format!("{entry} {line}");
            if line.ends_with(end) {
                push(&mut found, &section, &mut doc, &mut entry);
            }
        }
    }
    found
}

fn push(found: &mut Vec<Entry>, section: &str, doc: &mut String, entry: &mut String) {
    let text = entry.trim().trim_end_matches([';', ',']).to_string();
    let Some((name, rest)) = text.split_once('=') else { return };
    found.push(Entry {
        section: section.to_string(),
        doc: std::mem::take(doc),
        name: name.trim().to_string(),
        values: values(rest),
    });
    entry.clear();
}

/// Splits at commas outside string literals and removes the quotes.
fn values(text: &str) -> Vec<String> {
    let (mut all, mut one, mut inside, mut escaped) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                one.push(c);
                escaped = false;
            }
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            ',' if !inside => all.push(std::mem::take(&mut one).trim().to_string()),
            _ => one.push(c),
        }
    }
    all.push(one.trim().to_string());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_entries_with_sections_and_commas_in_text() {
        let text = "macro\ncodes! {\n    // -- io\n    A = Io, \"a, b\", \"do c\";\n    // -- log\n\
                    B = Full,\n        \"text\", \"next\";\n}\nC = D, \"x\";\n";
        let found = entries(text, "codes", ';');
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].values, ["Io", "a, b", "do c"]);
        assert_eq!((found[1].section.as_str(), found[1].values.len()), ("log", 3));
    }

    #[test]
    fn reads_entries_that_end_with_a_comma() {
        let text = "\ncauses! {\n    /// For the log.\n    LogSync = \"log_sync\",\n}\n";
        let found = entries(text, "causes", ',');
        assert_eq!(
            (found[0].doc.as_str(), found[0].values[0].as_str()),
            ("For the log.", "log_sync")
        );
    }
}
