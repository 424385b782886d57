//! Remedies for messages that come from a store, a library or the system and name no remedy.

/// A part of the message, and the remedy.
const REMEDIES: [(&str, &str); 8] = [
    (
        "permission denied for schema",
        "the role may make no tables there: migrate as the owner of the database (ALTER DATABASE ... OWNER TO ..., or the owner of deploy/postgres/roles.sql)",
    ),
    (
        "UnknownIssuer",
        "no authority that is known here vouches for the server's certificate: name the file of yours by sslrootcert=/path behind `?` in the URL, of Redis or Postgres",
    ),
    ("NotValidForName", "the certificate is for another name: connect by the name that it has"),
    (
        "NOAUTH",
        "a password is wanted: redis://:password@host:6379; by sentinels, ?sentinel_password=... behind it",
    ),
    ("WRONGPASS", "user or password are wrong: redis://user:password@host:6379"),
    (
        "NOPERM",
        "the user of Redis may not do that; docs/guarantees.md#rights-in-redis has the rights that it needs",
    ),
    ("password authentication failed", "user or password of --database-url are wrong"),
    (
        "read-only transaction",
        "Postgres takes no writes: name the primary, or set default_transaction_read_only off for the role",
    ),
];

/// How to write a password in a URL.
pub const IN_URLS: &str =
    "in a user name or a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25";

/// The message, with the remedy if there is one.
pub fn with_remedy(words: &str) -> String {
    // The driver writes some codes of Redis in its own way: NoPerm, No Permissions.
    let has = |part: &str| words.to_lowercase().contains(&part.to_lowercase());
    match REMEDIES.iter().find(|(part, _)| has(part)) {
        Some((_, remedy)) => format!("{words} ({remedy})"),
        None => words.to_owned(),
    }
}
