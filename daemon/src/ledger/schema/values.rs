//! How values are stored in columns.

use super::*;

/// A key, and the number of a loss.
pub(super) fn loss_bytes(key: &Key, loss: Loss) -> Vec<u8> {
    let number = Loss::ALL
        .into_iter()
        .position(|other| other == loss)
        .and_then(|at| u8::try_from(at).ok());
    let mut bytes = key.to_bytes();
    bytes.push(number.unwrap_or(u8::MAX));
    bytes
}

pub(super) fn loss_of(bytes: &[u8]) -> Option<(Key, Loss)> {
    let (number, key) = bytes.split_last()?;
    Some((Key::from_bytes(key)?, *Loss::ALL.get(usize::from(*number))?))
}

/// The bytes of the name of what was lost, their number before them (0: it has none), then as
/// [`loss_bytes`], and the loss's number and time.
pub(super) fn record_bytes((key, loss): &(Key, LossRecord)) -> Vec<u8> {
    let name = loss.of.as_ref().map_or("", BackendName::as_str).as_bytes();
    // A name has at most as many bytes as `BackendName` takes.
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let why = loss_bytes(key, loss.because);
    let (id, at) = (loss.id.0.to_be_bytes(), loss.at_ms.to_be_bytes());
    [&[length][..], name, &why, &id, &at].concat()
}

pub(super) fn records_of(mut bytes: &[u8]) -> Option<Vec<(Key, LossRecord)>> {
    let mut losses = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let (why, rest) = rest.split_at_checked(Key::BYTES + 1)?;
        let (id, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let (key, because) = loss_of(why)?;
        let of = match std::str::from_utf8(name).ok()? {
            "" => None,
            name => Some(name.parse().ok()?),
        };
        let loss = LossRecord {
            id: LossId(u64::from_be_bytes(*id)),
            at_ms: u64::from_be_bytes(*at),
            of,
            because,
        };
        losses.push((key, loss));
        bytes = rest;
    }
    Some(losses)
}

/// A key, and the number of the rule that is to be told; 255 where it was told.
pub(super) fn rule_bytes(key: &Key, rule: Option<Loss>) -> Vec<u8> {
    match rule {
        Some(rule) => loss_bytes(key, rule),
        None => [key.to_bytes(), vec![u8::MAX]].concat(),
    }
}

pub(super) fn rule_of(bytes: &[u8]) -> Option<(Key, Option<Loss>)> {
    match bytes.split_last()? {
        (&u8::MAX, key) => Some((Key::from_bytes(key)?, None)),
        _ => loss_of(bytes).map(|(key, rule)| (key, Some(rule))),
    }
}

/// No bytes for none, one byte for hidden, else the digest.
pub(super) fn conversation_bytes(conversation: Conversation) -> Vec<u8> {
    match conversation {
        Conversation::None => Vec::new(),
        Conversation::Hidden => vec![1],
        Conversation::Of(id) => id.to_vec(),
    }
}

pub(super) fn conversation_of(bytes: &[u8]) -> Option<Conversation> {
    match bytes {
        [] => Some(Conversation::None),
        [1] => Some(Conversation::Hidden),
        bytes => Some(Conversation::Of(bytes.try_into().ok()?)),
    }
}

pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map([], read)?.collect()
}

pub(super) fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    text.parse().map_err(|_| FromSqlError::InvalidType.into())
}

/// As [`parsed`], for a column that may be NULL.
pub(super) fn optional<T: std::str::FromStr>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    row.get::<_, Option<String>>(column)?
        .map(|_| parsed::<T>(row, column))
        .transpose()
}

/// A process as text: pid, start time and pidfd inode (or `-`), with slashes between.
pub(super) struct Process(pub(super) ProcessId);

impl ToSql for Process {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let ProcessId { pid, start, inode } = self.0;
        let inode = inode.map_or_else(|| "-".to_owned(), |inode| inode.to_string());
        Ok(format!("{pid}/{}/{inode}", start.0).into())
    }
}

impl FromSql for Process {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let mut parts = value.as_str()?.splitn(3, '/');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (pid, start) = (number(), number());
        let inode = parts.next();
        let process = || {
            let pid = u32::try_from(pid?).ok()?;
            let inode = match inode? {
                "-" => None,
                inode => Some(inode.parse().ok()?),
            };
            Some(ProcessId {
                pid,
                start: StartTime(start?),
                inode,
            })
        };
        process().map(Self).ok_or(FromSqlError::InvalidType)
    }
}
