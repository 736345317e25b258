//! Reads the tables of the code: the entries `Name = A, "text", ...;` inside a macro call such as
//! `codes! { ... }`. They are parsed as text, because xtask does not depend on the other crates.

/// One entry: its name, the words and string literals after `=`, and the section that contains it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last `// -- section` above it.
    pub section: String,
    /// The doc comment above it, one line.
    pub doc: String,
    /// The text before `=`.
    pub name: String,
    /// The values after it, split at commas, without quotes.
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

/// The structures `Name { field: value, ... }` between `start` and a line `];`, field by field.
pub fn structures(text: &str, start: &str) -> Vec<Vec<(String, String)>> {
    let Some((_, behind)) = text.split_once(start) else { return Vec::new() };
    // A string literal that continues on the next line.
    let joined: Vec<&str> = behind.lines().map(str::trim).take_while(|l| *l != "];").collect();
    let joined = joined.join("\n").replace("\\\n", "");
    let mut found: Vec<Vec<(String, String)>> = Vec::new();
    for line in joined.lines() {
        if line.ends_with('{') {
            found.push(Vec::new());
        } else if let (Some(fields), Some((name, value))) = (found.last_mut(), line.split_once(':'))
        {
            let value = value.trim().trim_end_matches(',').trim_matches('"');
            fields.push((name.to_string(), value.to_string()));
        } else if let (Some(value), true) = (last_value(&mut found), line.starts_with('"')) {
            // A literal on the line below its field name.
            *value = line.trim_end_matches(',').trim_matches('"').to_string();
        }
    }
    found
}

fn last_value(found: &mut [Vec<(String, String)>]) -> Option<&mut String> {
    found.last_mut()?.last_mut().map(|field| &mut field.1)
}

/// The constants `pub const NAME: Type = value;` with their doc comments.
pub fn constants(text: &str) -> Vec<Entry> {
    let (mut found, mut doc) = (Vec::new(), String::new());
    for line in text.lines() {
        if let Some(text) = line.strip_prefix("///") {
            doc = format!("{doc} {}", text.trim()).trim().to_string();
        } else if let Some(rest) = line.strip_prefix("pub const ")
            && let Some((name, value)) = rest.trim_end_matches(';').split_once(" = ")
        {
            let name = name.split(':').next().unwrap_or("").to_string();
            let (section, doc) = (String::new(), std::mem::take(&mut doc));
            found.push(Entry { section, doc, name, values: vec![value.to_string()] });
        }
    }
    found
}

/// A number in readable form, from an expression such as `16 * MIB`, `64 << 10` or `u32::MAX`.
pub fn number(expression: &str) -> Option<String> {
    let word = |w: &str| match w.replace('_', "").as_str() {
        "MIB" => Some(1 << 20),
        "u32::MAX" => Some(u64::from(u32::MAX)),
        other => other.parse().ok(),
    };
    let words: Vec<&str> = expression.split(' ').collect();
    let value: u64 = match words[..] {
        [a] => word(a)?,
        [a, "*", b] => word(a)?.checked_mul(word(b)?)?,
        [a, "<<", b] => word(a)?.checked_shl(u32::try_from(word(b)?).ok()?)?,
        _ => return None,
    };
    let digits = value.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    Some(grouped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_structures_constants_and_numbers() {
        let text = "const S: &[S] = &[\n    S {\n        a: \"x, y\",\n        b: 2 * MIB,\n     \
                    doc: \"one \\\n            two: 2.\",\n    },\n];\n";
        let found = structures(text, "const S: &[S] = &[");
        let field = |i: usize| (found[0][i].0.as_str(), found[0][i].1.as_str());
        assert_eq!([field(0), field(1)], [("a", "x, y"), ("b", "2 * MIB")]);
        assert_eq!((field(2), found.len()), (("doc", "one two: 2."), 1));
        let found = constants("/// The most.\npub const A_MAX: u16 = 64 << 10;\n");
        assert_eq!((found[0].name.as_str(), found[0].doc.as_str()), ("A_MAX", "The most."));
        assert_eq!(number(&found[0].values[0]).as_deref(), Some("65,536"));
        assert_eq!(number("16 * MIB").as_deref(), Some("16,777,216"));
        assert_eq!(number("f(x)"), None);
    }

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
