//! Who acts for the holder, beside the record.

use super::process::Household;
use crate::form::Form;

const FIELD: &str = "processes";

pub(super) fn of(form: &Form) -> Option<Household> {
    Household::from_json(form.field(FIELD)?)
}

pub(super) fn set(form: &mut Form, household: Option<&Household>) {
    form.set_field(FIELD, household.map(Household::to_json));
}

/// Whether the record is held by the one who signed it, and all who could act for it are dead.
pub(super) fn is_gone(form: &Form) -> bool {
    let record = form.record();
    record.holder.is_some()
        && record.signed().is_some()
        && of(form).is_some_and(|household| household.is_gone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_processes_prove_nothing() {
        let content =
            r#"{"format": "soloist-lease", "formatVersion": 1, "holder": "a", "processes": 3}"#;
        let form = Form::parse(content.as_bytes()).unwrap();
        assert!(!is_gone(&form));
    }
}
