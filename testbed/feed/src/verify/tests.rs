use super::*;
use crate::payload::Recipe;

const SEED: u64 = 5;

fn line(position: u64, token: u64) -> String {
    let recipe = Recipe::try_new(SEED, 12).unwrap();
    let payload = recipe.payload(position);
    let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{position} {token} {} {digits}\n", token - 14)
}

fn lines(positions: &[u64]) -> String {
    positions
        .iter()
        .map(|&position| line(position, 17))
        .collect()
}

fn verify(text: &str) -> Report {
    read(text.as_bytes(), SEED, None).unwrap()
}

#[track_caller]
fn assert_found(text: &str, expected: &[&str]) {
    let report = verify(text);
    let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{report}");
    assert!(!report.is_right());
}

#[test]
fn a_right_output_is_reported_by_term() {
    let text = lines(&[1, 2, 3]) + &line(4, 17) + &line(5, 20) + &line(6, 20);
    let report = verify(&text);
    assert!(report.is_right());
    assert_eq!(
        report.to_string(),
        "term 3 (token 17): 1 to 4\nterm 6 (token 20): 5 to 6\nright: every message from 1 to 6 once, in order"
    );
}

#[test]
fn an_empty_output_is_right_unless_messages_are_expected() {
    assert_eq!(verify("").to_string(), "right: there is no message");
    let report = read(&b""[..], SEED, Some(2)).unwrap();
    assert_eq!(
        report.to_string(),
        "line 0: the messages at 1 to 2 are missing at the end\nwrong: 1 finding in 0 lines"
    );
}

#[test]
fn a_duplicate_is_found() {
    let text = lines(&[1, 2, 2, 3, 1]);
    let expected = [
        "line 3: the message at 2 stands there a second time",
        "line 5: the message at 1 stands there a second time",
    ];
    assert_found(&text, &expected);
}

#[test]
fn a_gap_is_found() {
    let one = "line 2: the message at 2 is missing before this line";
    assert_found(&lines(&[1, 3, 4]), &[one]);
    let at_the_start = "line 1: the messages at 1 to 4 are missing before this line";
    assert_found(&lines(&[5]), &[at_the_start]);
}

#[test]
fn swapped_messages_are_found_and_are_no_gap() {
    let swapped = "line 3: the message at 2 stands after the one at 3";
    assert_found(&lines(&[1, 3, 2, 4]), &[swapped]);
}

#[test]
fn findings_stand_in_the_order_of_the_file() {
    let expected = [
        "line 2: the message at 3 is missing before this line",
        "line 3: the message at 2 stands after the one at 4",
        "line 4: the message at 4 stands there a second time",
        "line 5: the message at 5 is missing before this line",
    ];
    assert_found(&lines(&[1, 4, 2, 4, 6]), &expected);
}

#[test]
fn a_wrong_payload_is_found() {
    let other = line(2, 17).replacen("2 ", "3 ", 1);
    let text = lines(&[1, 2]) + &other;
    assert_found(&text, &["line 3: the message at 3 has a wrong payload"]);
    let report = read(lines(&[1]).as_bytes(), SEED + 1, None).unwrap();
    assert_eq!(report.findings[0].fault, Fault::WrongPayload(1));
}

#[test]
fn a_token_that_goes_back_is_found() {
    let text = line(1, 17) + &line(2, 20) + &line(3, 17) + &line(4, 20);
    let back = "line 3: the message at 3 bears the token 17, after one of token 20";
    assert_found(&text, &[back]);
}

#[test]
fn a_torn_last_line_is_found_and_does_not_count() {
    let text = lines(&[1, 2]);
    let text = text.strip_suffix('\n').unwrap();
    let torn = "line 2: the last line is torn: it has no newline at its end";
    assert_found(text, &[torn]);
    assert_eq!(verify(text).last, 1);
}

#[test]
fn a_line_that_cannot_be_read_is_found() {
    let text = lines(&[1]) + "hello\n" + &lines(&[2]);
    let unreadable = "line 2: the line cannot be read: it is not `position token term payload`";
    assert_found(&text, &[unreadable]);
}

#[test]
fn an_output_that_ends_too_early_is_found() {
    let text = lines(&[1, 2]);
    let report = read(text.as_bytes(), SEED, Some(3)).unwrap();
    assert_eq!(
        report.findings[0].to_string(),
        "line 2: the message at 3 is missing at the end"
    );
    assert!(read(text.as_bytes(), SEED, Some(2)).unwrap().is_right());
}

#[test]
fn of_very_many_findings_all_are_counted_and_some_are_kept() {
    let text = "x\n".repeat(Report::MAX_FINDINGS + 7);
    let report = verify(&text);
    assert_eq!(report.findings.len(), Report::MAX_FINDINGS);
    assert!(
        report
            .to_string()
            .ends_with("wrong: 1007 findings in 0 lines")
    );
}
