//! Remedies for failures whose words come from a store, a library or a system, and name none.

/// A part of the words, and the remedy.
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
        "the user of Redis may not do that; docs/durability.md#rights-in-redis has the rights that it needs",
    ),
    ("password authentication failed", "user or password of --database-url are wrong"),
    (
        "read-only transaction",
        "Postgres takes no writes: name the primary, or set default_transaction_read_only off for the role",
    ),
];

/// What a password in a URL needs.
pub const IN_URLS: &str =
    "in a user name or a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25";

/// The words, with the remedy if there is one.
pub fn with_remedy(words: &str) -> String {
    // NoPerm, No Permissions: the driver has words of its own.
    let has = |part: &str| words.to_lowercase().contains(&part.to_lowercase());
    match REMEDIES.iter().find(|(part, _)| has(part)) {
        Some((_, remedy)) => format!("{words} ({remedy})"),
        None => words.to_owned(),
    }
}
