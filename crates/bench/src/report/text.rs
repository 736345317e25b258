//! Numbers and names as the report shows them.

/// Text that is safe in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with three digits and a decimal suffix.
pub fn count(n: f64) -> String {
    let (value, suffix) = match n.abs() {
        a if a >= 1e9 => (n / 1e9, "G"),
        a if a >= 1e6 => (n / 1e6, "M"),
        a if a >= 1e3 => (n / 1e3, "k"),
        _ => (n, ""),
    };
    format!("{}{suffix}", digits(value))
}

/// Bytes: KB is 1,000.
pub fn bytes(n: f64) -> String {
    let text = count(n);
    match text.strip_suffix('k') {
        Some(number) => format!("{number} KB"),
        None if text.ends_with(['M', 'G']) => {
            format!("{} {}B", &text[..text.len() - 1], &text[text.len() - 1..])
        }
        None => format!("{text} B"),
    }
}

/// A time given in microseconds.
pub fn micros(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{} s", digits(us / 1e6)),
        _ if us >= 1e3 => format!("{} ms", digits(us / 1e3)),
        _ => format!("{} \u{b5}s", digits(us)),
    }
}

/// A ratio, or a dash.
pub fn ratio(r: Option<f64>) -> String {
    r.map_or("\u{2013}".to_string(), |r| format!("{r:.2}"))
}

fn digits(n: f64) -> String {
    match n.abs() {
        a if a >= 100.0 || a == 0.0 || (a.fract() == 0.0) => format!("{n:.0}"),
        a if a >= 10.0 => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let counts = [(0.0, "0"), (7.0, "7"), (1234.0, "1.23k"), (52_345.0, "52.3k"), (3e6, "3M")];
        for (n, text) in counts {
            assert_eq!(count(n), text);
        }
        assert_eq!(
            (bytes(12.0), bytes(4096.0), bytes(3e9)),
            ("12 B".into(), "4.10 KB".into(), "3 GB".into())
        );
        assert_eq!(
            (micros(5.0), micros(1500.0), micros(2e6)),
            ("5 µs".into(), "1.50 ms".into(), "2 s".into())
        );
        assert_eq!(escape("<a b=\"c&d\">"), "&lt;a b=&quot;c&amp;d&quot;&gt;");
    }
}
