//! Every message that names a cause is in docs/exit-codes.md, with the test in which it is said.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One line of the table: what is said, in which test.
struct Row {
    said: String,
    file: String,
    test: String,
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/exit-codes.md")).unwrap();
    let (_, text) = page
        .split_once("\n## Messages that name a cause\n")
        .unwrap();
    let text = text.split("\n## ").next().unwrap();
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let [said, test] = line.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("not two cells: {line}");
        };
        let words: Vec<&str> = test.split('`').collect();
        Row {
            said: said.trim().trim_matches('`').to_owned(),
            file: words[1].to_owned(),
            test: words[3].to_owned(),
        }
    };
    lines.map(row).collect()
}

/// As it is in the program: without the marks of a text of Rust that goes on in the next line.
fn as_said(source: &str) -> String {
    let mut text = String::new();
    for (number, part) in source.split("\\\n").enumerate() {
        text.push_str(if number == 0 { part } else { part.trim_start() });
    }
    text.replace("\\\"", "\"")
}

#[test]
fn each_message_of_the_table_is_said_in_its_test() {
    let rows = rows();
    assert!(rows.len() > 100, "{}", rows.len());
    for Row { said, file, test } in rows {
        let text = match fs::read_to_string(root().join("crates/soloist/tests").join(&file)) {
            Ok(text) => text,
            Err(_) => {
                fs::read_to_string(root().join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"))
            }
        };
        let begin = text.find(&format!("fn {test}()"));
        let begin = begin.unwrap_or_else(|| panic!("{file} has no test {test}"));
        let line = text[..begin].rfind('\n').unwrap() + 1;
        let indent = text[line..].len() - text[line..].trim_start().len();
        let end = format!("\n{}}}\n", " ".repeat(indent));
        let body = as_said(text[begin..].split(&end).next().unwrap());
        assert!(body.contains(&said), "no {said:?} in {test} of {file}");
    }
}

/// What nobody is made to say here, or what only stands around a cause: the message and the reason.
const NOT_IN_THE_TABLE: &[(&str, &str)] = &[
    ("cannot be a file", "the command line takes no empty path"),
    ("another child is alive", "the demo's own proof has failed"),
    ("cannot become the reaper of orphans", "Linux before 3.4"),
    ("cannot listen to SIGCHLD", "the system has nothing left"),
    ("it is no list", "what came before has refused it"),
    ("it is no map", "what came before has refused it"),
    (
        "a YAML alias (*) stands where something has to be added",
        "YAML aliases of a whole container are refused before",
    ),
    (
        "not understood: ",
        "our reader of YAML gives no other event",
    ),
    ("some processes do not end", "SIGKILL has not killed them"),
    ("has not come in", "the demo's own time is over"),
    (
        "the control sockets cannot be looked for in /proc",
        "there is no /proc/net/unix",
    ),
    (
        "who is neither we nor root",
        "another user has taken the very name of a socket of ours",
    ),
    (
        "Name a port that this user may have",
        "root may have all ports, and so may everybody in a container",
    ),
    (
        "the feed has seen a higher token",
        "the demo's own proof has failed",
    ),
    (
        "soloist handover failed: ",
        "the demo has ordered what cannot be",
    ),
    (
        "the lease changed again and again",
        "a race that is lost again and again",
    ),
    (
        "there is no guard: ",
        "stands before what failed; that is in replicas/starting.rs",
    ),
    (
        "`soloist_process::guard::run_if_guard` must be called",
        "our own mistake",
    ),
    (
        "the elector cannot start",
        "of the library, matched by its type in crates/elector/tests",
    ),
    (
        "the elector has been shut down",
        "of the library, matched by its type in crates/elector/tests",
    ),
    (
        "the elector's task died",
        "of the library, matched by its type in crates/elector/tests",
    ),
    (
        "the value of the key ",
        "stands before a reason; that is in testbed/tests/etcd/watches.rs",
    ),
    (
        "keeps the two in different",
        "takes an API server with two etcds",
    ),
];

/// Words that stand before a cause that has a row of its own.
const FRAMES: [&str; 9] = [
    "no answer",
    "lost the race: ",
    "refused: ",
    "unavailable: ",
    "no answer: ",
    "the watch ended: ",
    "the watch was refused: ",
    "no answer within ",
    "; it asks us to wait for ",
];

#[test]
fn every_message_of_the_program_that_names_a_cause_is_in_the_table() {
    let rows = rows();
    let mut sources = Vec::new();
    for folder in ["core", "elector", "process", "soloist"] {
        collect(
            &root().join("crates").join(folder).join("src"),
            &mut sources,
        );
    }
    let (mut found, mut missing) = (0, Vec::new());
    for (path, text) in &sources {
        for message in messages(text) {
            let fixed = fixed_parts(&message);
            if fixed.is_empty() || fixed.iter().all(|part| FRAMES.contains(&part.as_str())) {
                continue;
            }
            found += 1;
            let is_known = rows.iter().any(|row| says(&fixed, &row.said))
                || NOT_IN_THE_TABLE.iter().any(|(said, _)| says(&fixed, said));
            if !is_known {
                missing.push(format!("{}: {message}", path.display()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "neither in docs/exit-codes.md nor in NOT_IN_THE_TABLE: {missing:#?}"
    );
    assert!(found > 140, "{found}");
}

#[test]
fn what_is_not_in_the_table_is_still_said_by_the_program() {
    let mut sources = Vec::new();
    for folder in ["core", "elector", "process", "soloist"] {
        collect(
            &root().join("crates").join(folder).join("src"),
            &mut sources,
        );
    }
    for (said, _) in NOT_IN_THE_TABLE {
        let is_said = sources.iter().any(|(_, text)| as_said(text).contains(said));
        assert!(is_said, "nobody says {said:?}");
    }
}

/// What a message says whatever is put into it.
fn fixed_parts(message: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for character in message
        .replace("{{", "\u{1}")
        .replace("}}", "\u{2}")
        .chars()
    {
        match character {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                parts.push(String::new());
            }
            _ if depth > 0 => {}
            '\u{1}' => parts.last_mut().unwrap().push('{'),
            '\u{2}' => parts.last_mut().unwrap().push('}'),
            other => parts.last_mut().unwrap().push(other),
        }
    }
    parts.retain(|part| part.trim().len() > 6);
    parts
}

/// A row has a part of the message, or the message with something put into it.
fn says(fixed: &[String], said: &str) -> bool {
    fixed
        .iter()
        .any(|part| part.contains(said) || said.contains(part.trim()))
}

/// The texts of errors: what `thiserror` shows, and what is refused on the spot. What `context` says is what was being done: the cause stands
/// behind it.
fn messages(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut messages = Vec::new();
    for opening in ["#[error(", "bail!(", "ensure!(", "anyhow!(", "refused("] {
        for rest in source.split(opening).skip(1) {
            messages.extend(first_text(rest).map(|text| as_said(&text)));
        }
    }
    messages
}

/// Of the arguments, up to the closing bracket: the first text that is a sentence.
fn first_text(call: &str) -> Option<String> {
    let mut depth = 1;
    let mut text: Option<String> = None;
    let mut characters = call.chars();
    while let Some(character) = characters.next() {
        match (&mut text, character) {
            (Some(found), '"') if found.contains(' ') => return text,
            (Some(_), '"') => text = None,
            (Some(found), '\\') => {
                found.push('\\');
                found.extend(characters.next());
            }
            (Some(found), other) => found.push(other),
            (None, '"') => text = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    return None;
                }
            }
            (None, _) => {}
        }
    }
    None
}

fn collect(folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    // Only for tests of others, or tests themselves.
    let is_of_tests = |name: &str| {
        ["testing", "testing.rs", "memory.rs", "tests", "tests.rs"].contains(&name)
            || name.ends_with("_tests.rs")
            || name == "strange_input.rs"
    };
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if is_of_tests(path.file_name().unwrap().to_str().unwrap()) {
            continue;
        }
        match path.is_dir() {
            true => collect(&path, sources),
            false => sources.push((path.clone(), fs::read_to_string(path).unwrap())),
        }
    }
}
