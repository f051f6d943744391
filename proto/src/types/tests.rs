use super::*;

#[test]
fn a_session_id_is_visible_ascii() {
    assert!("!~".parse::<SessionId>().is_ok());
    for bad in ["", "a b", "a\u{7f}", "é", &"x".repeat(SESSION_ID_MAX + 1)] {
        assert_eq!(bad.parse::<SessionId>(), Err(SessionIdError), "{bad:?}");
    }
    assert!(
        SessionId::mint() < SessionId::mint(),
        "version 7 is in order of time"
    );
}

#[test]
fn an_epoch_is_text_in_json_and_a_number_in_messagepack() {
    let epoch = Epoch(u64::MAX);
    assert_eq!(
        serde_json::to_string(&epoch).expect("json"),
        "\"18446744073709551615\""
    );
    assert_eq!(
        serde_json::from_str::<Epoch>("\"18446744073709551615\"").expect("text"),
        epoch
    );
    assert_eq!(
        serde_json::from_str::<Epoch>("7").expect("number"),
        Epoch(7)
    );
    assert_eq!(rmp_serde::to_vec_named(&epoch).expect("msgpack").len(), 9);
}
