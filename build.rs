//! `sqlx::migrate!` embeds the migrations, but stable Rust can't tell cargo that it read a folder.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
