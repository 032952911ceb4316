//! The alert rules and the dashboard: their metrics are those of the documents, which another test compares with what `/metrics` prints.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::printed::folder;
use crate::tools;

fn read(name: &str) -> String {
    let path = folder().join("monitoring").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As Prometheus knows them: a histogram by its three parts.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(folder().join("../docs/operations.md")).unwrap();
    let (_, section) = page.split_once("\n### Metrics\n").unwrap();
    let rows = section.split("\n#").next().unwrap().lines();
    let rows = rows.filter(|line| line.starts_with("| `"));
    let mut names = BTreeSet::new();
    for row in rows {
        let name = row.split('`').nth(1).unwrap();
        match row.split('|').nth(2).unwrap().trim() {
            "histogram" => {
                let parts = ["_bucket", "_sum", "_count"];
                names.extend(parts.map(|part| format!("{name}{part}")));
            }
            _ => {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 10, "{names:?}");
    names
}

/// The words of expressions that are names of our metrics, or would be.
fn used(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| word.starts_with("soloist_") || word.starts_with("leader_election_");
    words.filter(ours).collect()
}

fn rules() -> Vec<Value> {
    let all: Value = serde_saphyr::from_str(&read("alerts.yaml")).unwrap();
    let groups = all["groups"].as_array().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    rules.cloned().collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("dashboard.json")).unwrap()
}

/// All expressions, with the variables that Grafana replaces.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let texts = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    texts.collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist_and_each_that_exists_is_used() {
    let documented = documented();
    let mut asked = BTreeSet::new();
    for rule in rules() {
        let text = rule["expr"].as_str().unwrap();
        let found = used(text);
        assert!(!found.is_empty(), "{text}");
        asked.extend(found.into_iter().map(str::to_owned));
    }
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].to_string();
    for text in expressions(&dashboard).iter().chain([&variables]) {
        let found = used(text);
        assert!(!found.is_empty(), "{text}");
        asked.extend(found.into_iter().map(str::to_owned));
    }
    for name in &asked {
        assert!(documented.contains(name), "there is no metric {name}");
    }
    for name in &documented {
        let is_part = name.ends_with("_sum") || name.ends_with("_count");
        assert!(is_part || asked.contains(name), "nothing shows {name}");
    }
}

#[test]
fn each_alert_is_documented_and_says_what_to_do() {
    let page = fs::read_to_string(folder().join("../docs/operations.md")).unwrap();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is not in docs/operations.md"
        );
        for text in ["summary", "description"] {
            assert!(
                rule["annotations"][text].as_str().is_some(),
                "{name}: {text}"
            );
        }
        assert!(rule["labels"]["severity"].as_str().is_some(), "{name}");
    }
}

#[test]
fn no_two_panels_are_in_one_place() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|of| panel["gridPos"][of].as_u64().unwrap());
        assert!(x + w <= 24, "{title}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title} is over another");
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
    }
}

fn promtool(program: &Path, words: &[&str], file: &Path) {
    let output = Command::new(program)
        .args(words)
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

/// What promtool says of rules holds for the dashboard's expressions, too: each as a rule.
#[test]
fn promtool_accepts_the_rules_their_cases_and_the_dashboards_expressions() {
    let Some(program) = tools::find("promtool", "the alert rules by promtool") else {
        return;
    };
    let files = folder().join("monitoring");
    promtool(&program, &["check", "rules"], &files.join("alerts.yaml"));
    promtool(
        &program,
        &["test", "rules"],
        &files.join("alerts.test.yaml"),
    );
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, text) in expressions(&dashboard()).iter().enumerate() {
        let text = text.replace("$__rate_interval", "1m").replace(['$'], "");
        let text = serde_json::to_string(&text).unwrap();
        writeln!(rules, "  - {{record: \"panel:{number}\", expr: {text}}}").unwrap();
    }
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("dashboard.yaml");
    fs::write(&file, rules).unwrap();
    promtool(&program, &["check", "rules"], &file);
}

/// A rule without a case may never fire, or always.
#[test]
fn each_alert_has_a_case_in_which_it_fires() {
    let cases: Value = serde_saphyr::from_str(&read("alerts.test.yaml")).unwrap();
    let tests = cases["tests"].as_array().unwrap();
    let checks = tests
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let firing = checks.filter(|check| check["exp_alerts"].is_array());
    let firing: BTreeSet<String> = firing
        .map(|check| check["alertname"].as_str().unwrap().to_owned())
        .collect();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(
            firing.contains(name),
            "{name} never fires in alerts.test.yaml"
        );
    }
}
