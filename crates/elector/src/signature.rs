//! soloist's signature under a record, as one line of text.
//!
//! `v1 instance=<32 hex> term=4 lease=15 write=9 base=1207 released=no pod=<uid> heir=<identity> holder=<identity>`
//!
//! `pod` and `heir` are left out if there is none. The holder comes last, because it may contain anything.

use std::time::Duration;

use soloist_core::ids::{Identity, InstanceId, OpId, PodUid, Term, Version};
use soloist_core::record::Signature;
use soloist_core::timings::LeaseDuration;

/// As it is written into the store.
pub(crate) fn to_text(signature: &Signature) -> String {
    let Signature {
        instance,
        pod,
        holder,
        term,
        duration,
        write,
        base,
        released,
        heir,
    } = signature;
    let optional = |name: &str, value: Option<&str>| match value {
        // What has a space in it could not be read back; without it, only a quick restart is lost, or an heir's turn.
        Some(value) if !value.contains(' ') => format!(" {name}={value}"),
        Some(_) | None => String::new(),
    };
    let pod = optional("pod", pod.as_ref().map(PodUid::as_str));
    let heir = optional("heir", heir.as_ref().map(Identity::as_str));
    let released = if *released { "yes" } else { "no" };
    let lease = duration.seconds();
    format!(
        "v1 instance={instance} term={term} lease={lease} write={write} base={base} released={released}{pod}{heir} holder={holder}"
    )
}

/// Reads it back; `None` for anything that is not exactly a signature, whoever wrote it.
pub(crate) fn parse(text: &str) -> Option<Signature> {
    let (fields, holder) = text.split_once(" holder=")?;
    let mut fields = fields.split(' ');
    if fields.next()? != "v1" {
        return None;
    }
    let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
    let instance = InstanceId::parse(field("instance")?)?;
    let term = Term::new(field("term")?.parse().ok()?);
    let lease = Duration::from_secs(field("lease")?.parse().ok()?);
    let write = OpId::new(field("write")?.parse().ok()?);
    let base = Version::new(field("base")?.parse().ok()?);
    let released = match field("released")? {
        "yes" => true,
        "no" => false,
        _ => return None,
    };
    let mut fields = fields.peekable();
    let mut optional = |name: &str| {
        let value = fields.next_if(|field| field.starts_with(name))?;
        Some(&value[name.len()..])
    };
    let pod = match optional("pod=") {
        Some(pod) => Some(PodUid::new(pod)?),
        None => None,
    };
    let heir = match optional("heir=") {
        Some(heir) => Some(Identity::found(heir)?),
        None => None,
    };
    if fields.next().is_some() {
        return None;
    }
    Some(Signature {
        instance,
        pod,
        holder: Identity::found(holder)?,
        term,
        duration: LeaseDuration::try_new(lease).ok()?,
        write,
        base,
        released,
        heir,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(pod: Option<&str>, holder: &str, released: bool) -> Signature {
        Signature {
            instance: InstanceId::from_random(0xfeed),
            pod: pod.and_then(PodUid::new),
            holder: Identity::found(holder).unwrap(),
            term: Term::new(u64::MAX),
            duration: LeaseDuration::SHORTEST,
            write: OpId::new(9),
            base: Version::new(1207),
            released,
            heir: None,
        }
    }

    #[test]
    fn a_signature_survives_being_written_and_read() {
        for signature in [
            signature(None, "a", false),
            signature(Some("0c1e-77"), "pod-a", true),
            signature(Some("1"), "x holder=y pod=z", false),
            signature(None, " ", false),
            Signature {
                heir: Identity::found("web-1"),
                ..signature(Some("1"), "a", true)
            },
            Signature {
                heir: Identity::found("web-1"),
                ..signature(None, "a", true)
            },
        ] {
            assert_eq!(parse(&to_text(&signature)), Some(signature));
        }
    }

    #[test]
    fn what_is_not_a_signature_is_none_and_no_trouble() {
        let good = to_text(&signature(Some("1"), "a", false));
        for bad in [
            "",
            "v1",
            "holder=a",
            &good.replace("v1", "v2"),
            &good.replace("released=no", "released=maybe"),
            &good.replace("lease=2", "lease=1"),
            &good.replace("lease=2", "lease=99999999999"),
            &good.replace("write=9", "write=-9"),
            &good.replace("pod=1", "pod="),
            &good.replace("pod=1", "pod=1 extra=1"),
            &good.replace("pod=1", "heir=b pod=1"),
            &good.replace("pod=1", "pod=1 heir="),
            &good.replace("holder=a", "holder="),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
