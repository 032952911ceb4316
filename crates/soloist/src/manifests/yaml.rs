//! Scalars and lists as YAML, for texts that are written by hand for their comments.

use serde_json::json;

/// A string: plain where no reader of YAML, old or new, could take it for something else.
pub(crate) fn string(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| plain(c) || c == ':')
        && !text.ends_with(':')
        && !MEANS_SOMETHING.contains(&text.to_ascii_lowercase().as_str());
    match is_plain {
        true => text.to_owned(),
        false => json!(text).to_string(),
    }
}

/// What YAML 1.1 or 1.2 takes for a truth value or nothing.
const MEANS_SOMETHING: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// A list of strings in one line.
pub(crate) fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|item| json!(item.as_ref()).to_string())
        .collect();
    format!("[{}]", items.join(", "))
}

/// `text` with every line that is not empty indented.
pub(crate) fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines()
        .map(|line| match line {
            "" => "\n".to_owned(),
            line => format!("{indent}{line}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_misread_is_quoted() {
        for plain in ["my-program", "/bin/sh", "a/b:1.2", "soloist"] {
            assert_eq!(string(plain), plain);
        }
        for quoted in [
            "", "yes", "No", "null", "12", "1e3", "0x1", "a: b", "a:", "- a", "a #b", "~", "é",
            "{a}", "*a",
        ] {
            assert_eq!(string(quoted), json!(quoted).to_string());
        }
    }

    #[test]
    fn a_list_is_one_line_whatever_is_in_it() {
        assert_eq!(list(&["a", "b\n\"c\""]), r#"["a", "b\n\"c\""]"#);
    }
}
