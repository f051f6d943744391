//! Whatever bytes a peer sends, the codecs do not panic, and a request that they accept survives a
//! round trip. `tests/fuzz` runs these with coverage; as ordinary tests they run the corpus in
//! `__fuzz__` and some random inputs.

use bytes::BytesMut;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tarpc::ClientMessage;

use super::*;
use crate::client;
use crate::error::Error;
use crate::hello::{HELLO_LEN, Hello};
use crate::types::Claimed;

/// The request as JSON, to compare.
fn said(call: &SessiondRequest) -> Value {
    serde_json::to_value(call).expect("JSON")
}

/// The frames that were written.
fn frames(mut outbound: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = outbound.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*header) as usize);
        frames.push(frame);
        outbound = rest;
    }
    assert!(outbound.is_empty());
    frames
}

#[test]
fn message_pack_frame() {
    bolero::check!().for_each(|frame: &[u8]| {
        let mut outbound = BytesMut::new();
        let mut server = message_pack::Server::new(FRAME_MAX as usize);
        match server.decode(frame, &mut outbound) {
            Ok(Decoded::Item(ClientMessage::Request(request))) => {
                let call = message_pack::Call {
                    id: request.id,
                    deadline_ms: 1_000,
                    call: Some(&request.message),
                };
                let again = rmp_serde::to_vec_named(&call).expect("encoded");
                let again = server.decode(&again, &mut outbound);
                let Ok(Decoded::Item(ClientMessage::Request(again))) = again else {
                    panic!("not read again")
                };
                assert_eq!(
                    (again.id, said(&again.message)),
                    (request.id, said(&request.message))
                );
                assert!(outbound.is_empty());
                let reply = Response {
                    request_id: request.id,
                    message: Ok(SessiondResponse::Ping(())),
                };
                server.encode(reply, &mut outbound).expect("encoded");
                assert_eq!(frames(&outbound).len(), 1);
            }
            Ok(Decoded::Answered) => assert_eq!(frames(&outbound).len(), 1),
            Ok(_) => assert!(outbound.is_empty()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                assert!(outbound.is_empty());
            }
        }
        // The client's side, with the same bytes as an answer.
        let _ = client::reply::<Result<Claimed, Error>>(frame);
    });
}

#[test]
fn json_rpc_frames() {
    bolero::check!().for_each(|input: &[u8]| {
        let mut server = json_rpc::Server::new(FRAME_MAX as usize);
        // One connection; each line is a frame.
        for frame in input.split(|byte| *byte == b'\n') {
            let mut outbound = BytesMut::new();
            match server
                .decode(frame, &mut outbound)
                .expect("the connection goes on")
            {
                Decoded::Item(ClientMessage::Request(request)) => {
                    let tagged = said(&request.message);
                    let again = serde_json::from_value(tagged.clone()).expect("read again");
                    assert_eq!(said(&again), tagged);
                    if frame.len() % 2 == 0 {
                        let reply = Response {
                            request_id: request.id,
                            message: Ok(SessiondResponse::Ping(())),
                        };
                        server.encode(reply, &mut outbound).expect("encoded");
                        let sent: Value = serde_json::from_slice(frame).expect("JSON");
                        let told: Value =
                            serde_json::from_slice(frames(&outbound)[0]).expect("JSON");
                        assert_eq!(told["id"], sent["id"]);
                    }
                }
                Decoded::Answered => {
                    let told: Value = serde_json::from_slice(frames(&outbound)[0]).expect("JSON");
                    assert!(told["error"]["code"].is_i64() && told.get("id").is_some());
                }
                _ => assert!(outbound.is_empty()),
            }
        }
    });
}

/// A whole connection: the hello, then frames in the codec that it asks for.
#[test]
fn hello_and_frames() {
    bolero::check!().for_each(|input: &[u8]| {
        let Some((first, rest)) = input.split_first_chunk::<HELLO_LEN>() else {
            return;
        };
        let Ok(hello) = Hello::decode(first) else {
            return;
        };
        let again = Hello::decode(&hello.encode()).expect("ours");
        assert_eq!(again, hello);
        let _ = (
            hello.accept_keeper(crate::backends::KEEPER_VERSION),
            again.welcome(crate::PROTOCOL_VERSION, 1),
        );
        let Ok(codec) = hello.accept() else { return };
        let stream = tokio::io::join(rest, tokio::io::sink());
        let mut frames = server(stream, codec, hello.frame_max, Budget::new(1024 * 1024));
        // All bytes are there at once, so nothing has to wait.
        while let Some(Some(Ok(_))) = frames.next().now_or_never() {}
    });
}
