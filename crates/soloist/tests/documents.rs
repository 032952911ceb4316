//! The documents: their commands work, their links lead somewhere, and the log has the lines that they explain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of a document's blocks of commands.
fn commands(path: &str) -> Vec<String> {
    let text = read(path);
    let blocks = text.split("```console\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

/// The same command with the program of these tests, and with a lease that is nobody else's.
fn here(command: &str, lease: &Path) -> String {
    let soloist = env!("CARGO_BIN_EXE_soloist");
    let store = format!("--store file:{}", lease.display());
    let command = command.replace("target/debug/soloist", soloist);
    let command = command.replace(" --store file", "");
    let named = ["--name quick-start", "--name nightly"];
    named.iter().fold(command, |command, name| {
        command.replace(name, &format!("{name} {store}"))
    })
}

fn run(command: &str) -> Output {
    Command::new("bash")
        .args(["-c", command])
        .current_dir(root())
        .output()
        .unwrap()
}

#[test]
fn the_quick_starts_commands_do_what_it_says() {
    let commands = commands("docs/quick-start.md");
    let [build, demo, try_out, replica, once, doctor] = &commands[..] else {
        panic!("a command without a test: {commands:?}");
    };
    // It has been: these tests run what it builds.
    assert_eq!(build, "cargo build -p soloist");
    let shown = run(&demo.replace("target/debug/soloist", env!("CARGO_BIN_EXE_soloist")));
    let said = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.status.success() && said.contains("The proof holds."),
        "{shown:?}"
    );
    let folder = tempfile::tempdir().unwrap();
    let lease = folder.path().join("lease");
    let done = run(&here(once, &lease));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success() && said.contains("done under token "),
        "{done:?}"
    );
    if run("command -v python3").stdout.is_empty() {
        eprintln!("skipped: there is no python3 here, which the other commands run");
        return;
    }
    let tried = run(&here(try_out, &lease));
    // It says READY=1, which nobody has asked for here: a warning.
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    leads_and_is_well(&here(replica, &lease), &here(doctor, &lease));
}

fn leads_and_is_well(replica: &str, doctor: &str) {
    let mut leader = Command::new("bash")
        .args(["-c", &format!("exec {replica}")])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut printed = std::io::BufReader::new(leader.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut printed, &mut line).unwrap();
    let examined = run(doctor);
    kill_process(
        Pid::from_raw(leader.id().cast_signed()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = leader.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(40) {
            leader.kill().unwrap();
            leader.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(line.starts_with("piece 1 under token "), "{line}");
    assert_eq!(status.code(), Some(0));
    assert!(examined.status.success(), "{examined:?}");
}

/// Every command of every page is run as it stands there, or is named here with the reason.
#[test]
fn every_command_of_the_documents_is_run_by_a_test() {
    // Each of these goes through all commands of its page, and knows what each should do.
    let tests = [
        (
            "docs/quick-start.md",
            "",
            "crates/soloist/tests/documents.rs",
            "the_quick_starts_commands_do_what_it_says",
        ),
        (
            "docs/switches.md",
            "soloist ",
            "crates/soloist/tests/documents.rs",
            "the_commands_for_planned_switches_do_what_they_say",
        ),
        (
            "docs/switches.md",
            "kubectl ",
            "crates/soloist/tests/deploy/documents.rs",
            "orders_by_hand_can_be_typed_in_as_they_stand_and_are_understood",
        ),
        (
            "docs/kubernetes.md",
            "",
            "crates/soloist/tests/deploy/documents.rs",
            "what_the_guide_to_kubernetes_says_can_be_typed_in_as_it_stands",
        ),
    ];
    for (page, _, file, test) in tests {
        let text = read(file);
        let body = text.split(&format!("fn {test}()")).nth(1);
        let body = body.unwrap_or_else(|| panic!("{file} has no test {test}"));
        let body = body.split("\n}\n").next().unwrap();
        assert!(body.contains(page), "{test} is not about {page}");
    }
    // Elsewhere: the line, and who runs it or why nobody does.
    let elsewhere = [
        (
            "cargo run -p soloist -- demo ",
            ".ci/run, from the text of README.md",
        ),
        (
            "cargo run -p soloist -- run -- ",
            ".ci/run, from the text of README.md",
        ),
        ("cargo test --workspace", ".ci/run"),
        (
            "soloist inject < deployment.yaml | kubectl apply -f -",
            "the test of docs/kubernetes.md, which has it too",
        ),
        (
            "helm test feed --namespace shop",
            "helm_installs_the_chart_and_its_test_passes_and_one_of_three_leads, on nodes: a Pod has to run to its end",
        ),
        (
            "SOLOIST_LEADER_CHANGES=100 cargo test -p feed --test under_soloist whatever_happens",
            "a quarter of an hour long: the same test with fewer changes is among all tests",
        ),
        // testbed/feed/README.md, with what they print.
        (
            "$ feed-server ",
            "it takes one certain port, which may be somebody else's: testbed/feed/tests run all three programs on free ones",
        ),
        ("feed-server: listening on ", "as above"),
        (
            "$ soloist run --ready notify --health notify -- feed-worker ",
            "as above",
        ),
        ("$ feed-verify output", "as above"),
        ("term ", "as above"),
        ("right: every message ", "as above"),
        (
            "$ grpcurl ",
            "there is no grpcurl for the tests: testbed/feed/tests/server ask the same calls",
        ),
    ];
    let mut pages = vec!["README.md".to_owned(), "README.ja.md".to_owned()];
    for folder in [
        "docs",
        "testbed",
        "testbed/feed",
        "bench",
        "examples",
        "deploy",
    ] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names = names.filter(|name| name.ends_with(".md"));
        pages.extend(names.map(|name| format!("{folder}/{name}")));
    }
    let mut known = 0;
    for page in &pages {
        for line in commands(page) {
            let is_tested = tests
                .iter()
                .any(|(of, start, ..)| of == page && line.starts_with(start));
            let is_elsewhere = elsewhere.iter().any(|(start, _)| line.starts_with(start));
            assert!(
                is_tested || is_elsewhere,
                "a command without a test: {page}: {line}"
            );
            known += 1;
        }
    }
    assert!(known > 30, "{known}");
}

/// Replicas on one lease file, which the commands find by their variables.
struct Replicas {
    folder: tempfile::TempDir,
    running: Vec<Child>,
}

impl Replicas {
    fn start(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut replicas = Self {
            folder,
            running: Vec::new(),
        };
        for name in names {
            let line = format!("exec soloist run --name demo --identity {name} -- sleep 1000");
            let mut command = replicas.command(&line);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            replicas.running.push(child.unwrap());
        }
        replicas
    }

    fn command(&self, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_soloist")).parent().unwrap();
        let mut command = Command::new("bash");
        command
            .args(["-c", line])
            .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
            .env(
                "SOLOIST_STORE",
                format!("file:{}", self.folder.path().join("demo").display()),
            );
        command
    }

    fn works(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Until a name is there, other than the former one's.
    fn wait_leader(&self, former: &str) -> String {
        let begun = Instant::now();
        loop {
            let output = self
                .command("soloist status --name demo --output json")
                .output()
                .unwrap();
            let status: serde_json::Value =
                serde_json::from_slice(&output.stdout).unwrap_or_default();
            match status["leader"].as_str() {
                Some(leader) if leader != former => return leader.to_owned(),
                _ => assert!(begun.elapsed() < Duration::from_secs(60), "{output:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for child in &self.running {
            let pid = Pid::from_child(child);
            let _ = kill_process(pid, Signal::TERM);
        }
        for child in &mut self.running {
            let _ = child.wait();
        }
    }
}

/// What stands in brackets may be left out: each line without all of it, then with it.
#[test]
fn the_commands_for_planned_switches_do_what_they_say() {
    let replicas = Replicas::start(&["one", "two"]);
    let mut leader = replicas.wait_leader("");
    let mut tested = 0;
    for line in commands("docs/switches.md") {
        if line.starts_with("kubectl ") {
            continue;
        }
        tested += 1;
        let plain = line.split(" [").next().unwrap().to_owned();
        let heir = if leader == "one" { "two" } else { "one" };
        let full = line.replace(['[', ']'], "").replace("REPLICA", heir);
        match plain.split_whitespace().nth(1).unwrap() {
            "status" => {
                assert!(replicas.works(&plain).contains(&leader));
                // It goes on until it is ended.
                let full = full.replace(" --watch", "");
                assert!(
                    replicas
                        .works(&full)
                        .contains(&format!("\"leader\": \"{leader}\""))
                );
            }
            "handover" => {
                let said = replicas.works(&full);
                assert!(said.contains(&format!("{heir} leads in term")), "{said}");
                replicas.works(&plain);
                leader = replicas.wait_leader(heir);
            }
            "pause" => {
                replicas.works(&plain);
                assert!(
                    replicas
                        .works("soloist status --name demo")
                        .contains("PAUSED")
                );
                replicas.works(&full);
                let said = replicas.works("soloist status --name demo");
                assert!(
                    said.contains("PAUSED") && !said.contains(&format!("{leader} leads")),
                    "{said}"
                );
            }
            "resume" => {
                assert_eq!(plain, line);
                replicas.works(&plain);
                replicas.wait_leader("");
            }
            _ => panic!("a command without a test: {line}"),
        }
    }
    assert_eq!(tested, 4);
}

/// What cannot be run is at least understood: the program reads all words up to its help.
#[test]
fn every_command_of_the_documents_has_flags_that_exist() {
    let mut read = 0;
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let docs = docs.filter(|name| name.ends_with(".md"));
    let mut pages: Vec<String> = docs.map(|name| format!("docs/{name}")).collect();
    pages.extend(["README.md", "README.ja.md"].map(str::to_owned));
    for page in pages {
        for line in commands(&page) {
            let Some(words) = words_of_soloist(&line) else {
                continue;
            };
            read += 1;
            let output = Command::new(env!("CARGO_BIN_EXE_soloist"))
                .args(&words)
                .arg("--help")
                .output()
                .unwrap();
            assert!(output.status.success(), "{page}: {line}: {output:?}");
        }
    }
    assert!(read > 15, "{read}");
}

/// What follows `soloist` in a command, without brackets around what may be left out, up to the program that is run.
fn words_of_soloist(line: &str) -> Option<Vec<String>> {
    let line = line.replace("cargo run -p soloist -- ", "soloist ");
    let words = line
        .split_whitespace()
        .skip_while(|word| !["soloist", "target/debug/soloist"].contains(word));
    let words = words
        .skip(1)
        .take_while(|word| !["--", "|", ">", "<", "#", "&&"].contains(word));
    let words: Vec<String> = words
        .map(|word| word.trim_matches(['[', ']', '`']).to_owned())
        .collect();
    (!words.is_empty()).then_some(words)
}

#[test]
fn every_page_is_in_the_book_and_every_link_leads_somewhere() {
    let summary = read("docs/SUMMARY.md");
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(
                summary.contains(&format!("({name})")),
                "{name} is not in docs/SUMMARY.md"
            );
        }
        if name.ends_with(".md") {
            links_lead_somewhere(&format!("docs/{name}"));
        }
    }
    for page in ["README.md", "README.ja.md"] {
        links_lead_somewhere(page);
    }
}

fn links_lead_somewhere(page: &str) {
    let folder = root().join(page).parent().unwrap().to_owned();
    let text = read(page);
    let prose: String = text.split("```").step_by(2).collect();
    for link in prose
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap())
    {
        if link.contains("://") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() {
            root().join(page)
        } else {
            folder.join(file)
        };
        assert!(target.exists(), "{link} in {page}");
        if !anchor.is_empty() {
            let found = fs::read_to_string(&target).unwrap();
            let headings = found.lines().filter(|line| line.starts_with('#'));
            assert!(
                headings.map(anchor_of).any(|name| name == anchor),
                "{link} in {page}"
            );
        }
    }
}

/// As GitHub and mdBook make it.
fn anchor_of(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines of the log that operations.md explains, each without what follows.
fn explained() -> Vec<String> {
    let operations = read("docs/operations.md");
    let table = operations.split_once("## Each line of the log").unwrap().1;
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let lines: Vec<_> = rows
        .map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect();
    assert!(lines.len() > 20);
    lines
}

/// What can be in the log of `soloist run`.
fn sources() -> String {
    let mut sources = String::new();
    for folder in [
        "crates/soloist/src",
        "crates/process/src",
        "crates/elector/src/etcd",
        "crates/elector/src/file",
        "crates/elector/src/kubernetes",
    ] {
        collect(&root().join(folder), &mut sources);
    }
    sources
}

#[test]
fn the_log_has_the_lines_that_are_explained() {
    let sources = sources();
    for line in explained() {
        assert!(
            sources.contains(&format!("\"{line}")),
            "nobody says {line:?}"
        );
    }
}

#[test]
fn each_line_of_the_log_is_explained() {
    let (explained, sources) = (explained(), sources());
    let (mut said, mut missing) = (0, Vec::new());
    for level in ["info!(", "warn!(", "error!("] {
        for call in sources.split(level).skip(1) {
            let Some(line) = longest_text(call) else {
                continue;
            };
            // A sentence that others have made: of the store, of a panic.
            if line.starts_with('{') {
                continue;
            }
            said += 1;
            if !explained.iter().any(|known| line.starts_with(known)) {
                missing.push(line);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "not in docs/operations.md: {missing:#?}"
    );
    assert!(said > 40, "{said}");
}

/// Of the arguments up to the closing bracket.
fn longest_text(call: &str) -> Option<String> {
    let mut depth = 1;
    let (mut texts, mut text): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut characters = call.chars();
    while let Some(c) = characters.next() {
        match (&mut text, c) {
            (Some(_), '"') => texts.extend(text.take()),
            // A line that goes on below, or a quoted character.
            (Some(text), '\\') => text.extend(characters.next().filter(|c| *c != '\n')),
            (Some(text), c) => text.push(c),
            (None, '"') => text = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') if depth == 1 => break,
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
    }
    texts.into_iter().max_by_key(String::len)
}

fn collect(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, sources),
            false => sources.push_str(&fs::read_to_string(path).unwrap()),
        }
    }
}

/// As the table of the timeouts says.
#[test]
fn the_presets_times_are_those_of_the_program() {
    let text = read("docs/timeouts.md");
    for (preset, words) in [
        ("standard", "3.5s"),
        ("high-availability", "1s"),
        ("low-load", "9s"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("file:{}", folder.path().join("lease").display());
        let output = Command::new(env!("CARGO_BIN_EXE_soloist"))
            .args([
                "run", "--preset", preset, "--store", &store, "--once", "--", "true",
            ])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = format!("a lost lease leaves the child {words} between");
        assert!(log.contains(&said), "{log}");
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| `{preset}`")))
            .unwrap();
        assert!(
            row.ends_with(&format!("| {} s |", words.trim_end_matches('s'))),
            "{row}"
        );
    }
}
