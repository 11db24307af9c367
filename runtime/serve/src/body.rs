//! the body of a request  =>  its bytes, counted against the limits as they arrive

use crate::refusal::{Answer, Refusal};
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory budget, in KiB, that the bodies of all requests share.
#[derive(Clone)]
pub struct Room {
    left: Arc<Semaphore>,
    body_bytes_max: usize,
}

/// A received body. Dropping it returns its share of the memory budget.
pub struct Received {
    pub bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// The bytes received so far; they are not copied as long as they are a single chunk.
#[derive(Default)]
struct Whole {
    first: Bytes,
    joined: Vec<u8>,
}

impl Whole {
    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = data;
        } else {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
            self.joined.extend_from_slice(&data);
        }
    }

    fn bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.into() }
    }
}

/// Longest time that a client may send nothing while its body is being received.
const SILENCE_MAX: Duration = Duration::from_secs(10);

impl Room {
    pub fn new(bodies_kib: usize, body_bytes_max: usize) -> Room {
        Room { left: Arc::new(Semaphore::new(bodies_kib.min(Semaphore::MAX_PERMITS))), body_bytes_max }
    }

    /// Reads a body to its end. `Content-Length` only allows an early refusal: no memory is allocated because of it.
    pub async fn receive(&self, headers: &HeaderMap, mut body: Body, until: Instant) -> Answer<Received> {
        let most = self.body_bytes_max;
        let too_large = || {
            let message = format!("the body has more than {most} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message, "send a smaller batch, or binary tensors")
        };
        if headers.get(header::CONTENT_ENCODING).is_some_and(|v| v != "identity") {
            let message = "the body is compressed (`Content-Encoding`)";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Refusal::new(status, "malformed", message, "send it without compression"));
        }
        let told = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if told.is_some_and(|told| told > most as u64) {
            return Err(too_large());
        }
        let (mut whole, mut length, mut room) = (Whole::default(), 0usize, None);
        loop {
            let patience = SILENCE_MAX.min(until.saturating_duration_since(Instant::now()));
            let frame = tokio::time::timeout(patience, body.frame()).await.map_err(|_| {
                let message = "the body of the request did not arrive in time";
                Refusal::new(StatusCode::REQUEST_TIMEOUT, "slow", message, "send the body at once")
            })?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|e| {
                Refusal::bad_request(format!("the body of the request broke off: {e}"), "send as much as announced")
            })?;
            // Trailers carry nothing that is needed.
            let Ok(data) = frame.into_data() else { continue };
            length = length.saturating_add(data.len());
            if length > most {
                return Err(too_large());
            }
            self.take(&mut room, length)?;
            whole.push(data);
        }
        Ok(Received { bytes: whole.bytes(), _room: room })
    }

    /// Grows the permit of a body to the number of KiB that have arrived.
    fn take(&self, room: &mut Option<OwnedSemaphorePermit>, length: usize) -> Answer<()> {
        let wanted = length.div_ceil(1 << 10) - room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = self.left.clone().try_acquire_many_owned(wanted as u32).map_err(|_| {
            let message = "the bodies of the requests that are being answered take all the memory that they may";
            let status = StatusCode::TOO_MANY_REQUESTS;
            Refusal::new(status, "bodies-full", message, "ask again later, or raise `--bodies-max`").retry_after(1)
        })?;
        match room {
            Some(room) => room.merge(more),
            None => *room = Some(more),
        }
        Ok(())
    }
}
